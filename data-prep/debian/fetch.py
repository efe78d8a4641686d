"""Packages and translated descriptions, through apt, from a mirror, or from a folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from debian.control import OPENERS
from fairseq_mhe.common.errors import UserError

LANGS = ("en", "de")
RELEASE = "stable"


@dataclass(frozen=True)
class Origin:
    """Where packages are taken from: a folder or a mirror, where one is named, or else apt.

    ``archives``: where downloads are put. ``release``: of the mirror's. ``sources_list``: of apt,
    in place of the system's own. ``packages``: these only.
    """

    archives: Path
    folder: Path | None = None
    mirror: str | None = None
    release: str = RELEASE
    sources_list: Path | None = None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fetched:
    """What is there to read.

    ``release``: where it is from, as "Debian bookworm". ``descriptions``: language -> Translation
    files. ``missing``: the packages (or patterns) of the list that were not to be had.
    """

    release: str
    packages: tuple[Path, ...]
    descriptions: dict[str, tuple[Path, ...]]
    missing: tuple[str, ...]


def choose(wanted: Sequence[str], known: Iterable[str]) -> tuple[list[str], list[str]]:
    """The known packages that are wanted, and what is wanted and not known.

    A pattern (``gcc-*-locales``) stands for the last that it fits, by its numbers: those before it
    are older ones.
    """
    names = set(known)
    chosen, missing = [], []
    for name in wanted:
        fitting = (
            [one for one in names if fnmatchcase(one, name)]
            if set("*?[") & set(name)
            else names & {name}
        )
        if fitting:
            chosen.append(max(fitting, key=_by_numbers))
        else:
            missing.append(name)
    return list(dict.fromkeys(chosen)), missing


def _by_numbers(name: str) -> tuple[tuple[int, ...], str]:
    return tuple(int(part) for part in name.replace(".", "-").split("-") if part.isdigit()), name


def refuse_missing(
    named: Sequence[str], missing: Sequence[str], place: str, chosen: Sequence[str]
) -> None:
    """See that the packages that a user named are there, or else at least some.

    Raises:
        UserError: they are not.
    """
    absent = [name for name in named if name in missing]
    if absent:
        raise UserError(
            f"{place} has no package {', '.join(absent)}; check the names given by --packages"
        )
    if missing and not chosen:
        raise UserError(
            f"{place} has none of the {len(missing)} packages of the list; "
            "is it an archive of Debian's?"
        )


def from_folder(folder: Path, named: Sequence[str], names: dict[Path, str]) -> Fetched:
    """What a folder has: *.deb, and Translation-en and -de, plain or compressed.

    ``named``: take these packages only; ``names``: the name of each package's file.

    Raises:
        UserError: it has no package and no descriptions, or not the packages that are named, or two
        of one.
    """
    first: dict[str, Path] = {}
    for path, name in sorted(names.items()):
        if name in first:
            raise UserError(
                f"{first[name]} and {path.name} are both the package {name}; "
                "leave one of them there"
            )
        first[name] = path
    chosen, missing = choose(named or list(first), first)
    refuse_missing(named, missing, str(folder), chosen)
    descriptions = {lang: translation_files(folder, lang) for lang in LANGS}
    if not chosen and not all(descriptions.values()):
        raise UserError(
            f"{folder} has no .deb file, nor Translation-en and Translation-de; "
            "put what is to be read there"
        )
    return Fetched("folder", tuple(first[name] for name in chosen), descriptions, ())


def translation_files(folder: Path, lang: str) -> tuple[Path, ...]:
    """The Translation files of a language; their names may begin with the place they are from."""
    endings = tuple(f"Translation-{lang}{suffix}" for suffix in OPENERS)
    return tuple(sorted(path for path in folder.iterdir() if path.name.endswith(endings)))
