"""Detokenised text against references with sacreBLEU; every number with what it means."""

import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json
from fairseq_mhe.prepare.languages import bleu_tokeniser_of, has_spaces
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.prepare.tokenise import tokeniser

#: A hyphen inside a word; as in Perl, one of two with a single letter between them.
_COMPOUND = re.compile(r"(\S)-(\S)")
#: What stands for <unk> in a reference, as in fairseq's own output.
_UNKNOWN = "<<unk>>"
#: Bootstrap resamples, for confidence intervals and p-values, and their random seed, sacreBLEU's.
RESAMPLES, SEED = 1000, 12345
#: sacreBLEU's tokenisers, of those that need no download: its signatures name them.
TOKENISERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")


@dataclass(frozen=True)
class Score:
    """A score (0 to 100), half its 95% bootstrap confidence interval, and sacreBLEU's signature."""

    score: float
    confidence: float
    signature: str


@dataclass(frozen=True)
class BLEU4(Score):
    """BLEU with its parts: the n-grams' precisions in percent, the brevity penalty, the lengths."""

    precisions: tuple[float, ...]
    brevity_penalty: float
    length: int
    reference_length: int

    def __str__(self) -> str:
        """As fairseq-generate prints it."""
        parts = "/".join(f"{precision:.1f}" for precision in self.precisions)
        ratio, lengths = self.length / self.reference_length, (self.length, self.reference_length)
        return (
            f"BLEU4 = {self.score:.2f}, {parts} (BP={self.brevity_penalty:.3f}, "
            f"ratio={ratio:.3f}, syslen={lengths[0]}, reflen={lengths[1]})"
        )


@dataclass(frozen=True)
class Scores:
    """The scores of one system; ``tokenised`` is None where the language is not known.

    ``given_tokens`` is of a text that others have tokenised, and None of any other.
    """

    bleu: Score
    chrf: Score
    sentences: int
    tokenised: Score | None = None
    given_tokens: BLEU4 | None = None

    def values(self) -> dict[str, Any]:
        """As JSON has them; what there is of given texts only is left out of others."""
        found = asdict(self)
        if self.given_tokens is None:
            del found["given_tokens"]
        return found


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str | None = None,
    tokenise: str | None = None,
) -> Scores:
    """BLEU and chrF of detokenised hypotheses, with sacreBLEU's defaults for their ``language``.

    With it there is BLEU as the older literature counted it (``tokenised_bleu``), too, but for
    languages without spaces, where Moses' tokens are no words.
    ``tokenise``: of `TOKENISERS`, in place of the language's.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    check_counts(hypotheses, references)
    bleu, chrf = BLEU(tokenize=bleu_tokeniser(language, tokenise)), CHRF()
    results = _bootstrapped(hypotheses, references, {"BLEU": bleu, "chrF": chrf})
    tokenised = None
    if language and has_spaces(language):
        tokenised = tokenised_bleu(hypotheses, references, language)
    return Scores(
        _score(bleu, "BLEU", results), _score(chrf, "chrF2", results), len(hypotheses), tokenised
    )


def bleu_tokeniser(language: str | None, chosen: str | None = None) -> str:
    """What sacreBLEU splits a language's text by: ``chosen`` of `TOKENISERS`, or the language's.

    Raises:
        UserError: what it needs is not installed.
    """
    name = chosen or (bleu_tokeniser_of(language) if language else "13a")
    try:
        BLEU(tokenize=name)
    except RuntimeError:
        extra = name.removesuffix("-mecab")
        raise UserError(
            f"BLEU by {name} needs a dictionary: pip install 'sacrebleu[{extra}]', or give "
            "another --bleu-tokenizer (char, say)"
        ) from None
    return name


def tokeniser_in(signature: str) -> str:
    """The tokeniser that sacreBLEU's signature names."""
    found = signature.split("|tok:")[1]  # which may go on with its version
    return next(name for name in TOKENISERS if found.startswith(name))


def add_tokeniser(parser: ArgumentParser) -> None:
    """The option for what BLEU is counted of."""
    told = "of BLEU (default: by the target language's script: zh, ja-mecab, ko-mecab; char for "
    told += "Thai, Lao, Khmer, Burmese and Tibetan; else 13a)"
    parser.add_argument("--bleu-tokenizer", choices=TOKENISERS, help=told)


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU on Moses' tokens with hyphenated compounds split, without smoothing.

    This is how Vaswani et al. 2017 and others of that time scored English-German: tensor2tensor's
    get_ende_bleu.sh, tokenizer.perl -l de, ``s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`` and
    multi-bleu.perl. It is higher than detokenised BLEU by about a point and does not compare with
    it.
    """
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    tokenise = tokeniser("moses", language)
    split = [
        [_COMPOUND.sub(r"\1 ##AT##-##AT## \2", tokenise(line)) for line in lines]
        for lines in (hypotheses, references)
    ]
    return _score(bleu, "BLEU", _bootstrapped(split[0], split[1], {"BLEU": bleu}))


def bleu4(hypotheses: Sequence[str], references: Sequence[str]) -> BLEU4:
    """BLEU of tokens as they are, as fairseq-generate counts it.

    <unk> in a reference matches nothing.
    """
    references = [
        " ".join(_UNKNOWN if word == "<unk>" else word for word in line.split())
        for line in references
    ]
    bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    found = bleu.corpus_score(hypotheses, [references])
    whole = _score(bleu, "BLEU", _bootstrapped(hypotheses, references, {"BLEU": bleu}))
    precisions = tuple(round(precision, 4) for precision in found.precisions)
    return BLEU4(
        **asdict(whole),
        precisions=precisions,
        brevity_penalty=round(found.bp, 6),
        length=found.sys_len,
        reference_length=found.ref_len,
    )


def _bootstrapped(
    hypotheses: Sequence[str], references: Sequence[str], metrics: dict[str, Metric]
) -> dict[str, list[str | Result]]:
    """One system's scores with their intervals."""
    return PairedTest([("system", hypotheses)], metrics, [references], "bs", RESAMPLES)()[1]


def _score(metric: BLEU | CHRF, name: str, results: Mapping[str, Sequence[str | Result]]) -> Score:
    """The only system's score by a metric, which sacreBLEU calls ``name``."""
    result = results[name][0]
    assert isinstance(result, Result)  # noqa: S101 - str is the system's name, under another key
    return Score(
        round(result.score, 4), round(float(result.ci or 0), 4), str(metric.get_signature())
    )


def check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse what sacreBLEU would score wrongly in silence: it takes as many lines as both have.

    Raises:
        UserError: no sentences, or counts that differ.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} hypotheses but {len(references)} references: "
            "score the same sentences in the same order, one a line"
        )
    if not references:
        raise UserError("nothing to score: there are no sentences")


def read_aligned(references: Path, others: Sequence[Path], advice: str) -> list[list[str]]:
    """The lines of references, and of texts with a line for each of them; ``advice``: if not so.

    Raises:
        UserError: a file cannot be read, or has more or fewer lines; it is named.
    """
    found = [list(read_lines(path)) for path in (references, *others)]
    for path, lines in zip(others, found[1:], strict=True):
        if len(lines) != len(found[0]):
            raise UserError(
                f"{path} has {len(lines):,} lines, {references} has {len(found[0]):,}: {advice}"
            )
    return found


def read_translations(folder: Path) -> dict[str, list[str]]:
    """The "references", "sources" and "hypotheses" of a translated data set, line by line.

    Raises:
        UserError: as `read_aligned`.
    """
    names = ("references", "sources", "hypotheses")
    references, *others = (folder / f"{name}.txt" for name in names)
    advice = f"remove {folder} and evaluate the run again, which translates anew"
    return dict(zip(names, read_aligned(references, others, advice), strict=True))


def read_tokens(folder: Path) -> list[list[str]] | None:
    """Translations and references in the tokens of a given text; None where it was not given so.

    Raises:
        UserError: as `read_aligned`.
    """
    names = (folder / "hypotheses.tokens.txt", folder / "references.tokens.txt")
    if not all(path.is_file() for path in names):
        return None
    return read_aligned(
        names[0], names[1:], f"remove {folder} and evaluate the run again, which translates anew"
    )


def read_scores(path: Path) -> Scores:
    """What ``scores.values()`` were written to.

    Raises:
        UserError: the file cannot be read.
    """
    values = read_json(path)
    tokenised = Score(**values["tokenised"]) if values.get("tokenised") else None
    given = values.get("given_tokens")
    if given:
        given = BLEU4(**{**given, "precisions": tuple(given["precisions"])})
    bleu, chrf = Score(**values["bleu"]), Score(**values["chrf"])
    return Scores(bleu, chrf, values["sentences"], tokenised, given or None)


def described(scores: Scores) -> list[str]:
    """A line for each score, with what it means."""
    count = f", {scores.sentences} sentences"
    lines = [f"BLEU {_described(scores.bleu, count)}", f"chrF {_described(scores.chrf, count)}"]
    if scores.tokenised:
        older = _described(scores.tokenised)
        lines.append(f"tokenised, compounds split, as in older papers: {older}")
    if scores.given_tokens:
        lines.append(f"on the tokens of the given text: {scores.given_tokens}")
    return lines


def _described(score: Score, more: str = "") -> str:
    return f"{score.score:.2f} ± {score.confidence:.2f}  ({score.signature}{more})"
