"""The files of a bundle of each format, its example program, and the refusal of bad input."""

import json
import runpy
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

import fairseq_mhe
from fairseq_mhe import cli
from fairseq_mhe.deploy.bundle import CONFIG, VERSION, open_bundle, write_sums
from fairseq_mhe.deploy.export import card
from fairseq_mhe.deploy.trained import read_bundle
from fairseq_mhe.deploy.translator import Translator
from fairseq_mhe.prepare.subword import MODEL_NAMES, learn_sentencepiece
from fairseq_mhe.prepare.text import write_lines
from fairseq_mhe.prepare.text_processing import TextProcessing, normalise
from fairseq_mhe.prepare.tokenise import ESCAPED, detokeniser
from tests.deploy.conftest import SOURCES, hypotheses, trained
from tests.fixtures.processes import PYTHON, python
from tests.fixtures.refusals import refuses
from tests.fixtures.small_runs import SMALL, run_of

EXAMPLES = Path(fairseq_mhe.__file__).parent / "deploy" / "examples"
COMMON = {"README.md", "SHA256SUMS", "bpe.codes", "bundle.json", "example.py"}


def export(kind: str, out: Path, *more: str) -> int:
    words = ["export", str(run_of(kind)), str(out), "--data", str(SMALL / "data"), *more]
    return cli.main(words)


@pytest.fixture(scope="module")
def for_ctranslate2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("for ctranslate2") / "a bundle"
    assert export("mhe_mul", out, "--format", "ctranslate2") == 0
    return out


def test_a_bundle_has_checksums_and_no_pickle(exported: Path, for_ctranslate2: Path) -> None:
    fairseq_files = {"model.safetensors", "config.json", "dict.en.txt", "dict.de.txt"}
    assert {path.name for path in exported.iterdir()} == COMMON | fairseq_files
    ctranslate2_files = {"model.bin", "config.json", "shared_vocabulary.json"}
    assert {path.name for path in for_ctranslate2.iterdir()} == COMMON | ctranslate2_files
    for folder in (exported, for_ctranslate2):
        starts = {path.read_bytes()[:2] for path in folder.iterdir()}
        assert not starts & {b"PK", b"\x80\x02", b"\x80\x04"}  # a pickle, or torch's zip of them
        assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
        check = ["sha256sum", "--strict", "--check", "SHA256SUMS"]
        done = subprocess.run(check, cwd=folder, check=True, capture_output=True, text=True)
        assert len(done.stdout.splitlines()) == len(list(folder.iterdir())) - 1


def test_weights_equal_those_of_the_run_and_tied_weights_are_stored_once(exported: Path) -> None:
    model = trained().source.model
    loaded = read_bundle(open_bundle(exported)).source.model.state_dict()
    torch.testing.assert_close(loaded, model.state_dict(), rtol=0, atol=0)
    numbers = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert numbers < (exported / "model.safetensors").stat().st_size < numbers + 20_000


def test_a_ctranslate2_bundle_translates_without_fairseq(for_ctranslate2: Path) -> None:
    translator = Translator.load(for_ctranslate2, cpu=True, threads=1)
    assert translator.engine == "ctranslate2"
    assert translator.translate(SOURCES) == hypotheses("mhe_mul")
    example = for_ctranslate2 / "example.py"
    assert "fairseq" not in example.read_text(encoding="utf-8")
    lines = ["", "A lamp.", "lamp " * 1024]
    done = subprocess.run([PYTHON, example, *lines], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == translator.translate(lines[:2])
    assert done.stderr.endswith(" subwords, the model takes 1024: cut the line\n")


def test_a_bundle_names_the_packages_that_its_example_imports(
    exported: Path, for_ctranslate2: Path
) -> None:
    """A fresh environment has only these; the bundle's text has BPE, so no SentencePiece."""
    for folder, line in (
        (for_ctranslate2, "pip install ctranslate2 subword-nmt sacremoses\n"),
        (exported, "pip install 'PATH/TO/fairseq-mhe[fairseq]' "),
    ):
        assert line in (folder / "README.md").read_text("utf-8")
        assert line in (folder / "example.py").read_text("utf-8")
    code = (
        "import runpy, sys; sys.modules['sentencepiece'] = None; sys.argv = ['example.py', 'A.']\n"
    )
    code += f"runpy.run_path({str(for_ctranslate2 / 'example.py')!r})"
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_fairseq_example_translates(exported: Path, translator: Translator) -> None:
    code = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    done = python(code, exported / "example.py", "A lamp.")
    assert done.stdout.splitlines() == translator.translate(["A lamp."]), done.stderr


LINES = [
    "The lamp \u201cNumber 3\u201d  isn't on (yet)!",
    "Turn it off -- please ? <b>A & B</b> [1|2]",
    "caf\u0065\u0301 3.5",
    "C\x80ontrol\x07 cha\x1cracters\x85here\x7f \x90\ud83d .",
]


@pytest.mark.parametrize(
    ("kind", "tokenizer", "options"),
    [
        ("bpe", "moses", {}),
        ("bpe", ESCAPED, {"punctuation": True, "lowercase": True}),
        ("sentencepiece", "none", {}),
        ("sentencepiece", "moses", {"punctuation": True, "lowercase": True}),
    ],
)
def test_the_ctranslate2_example_processes_text_like_the_data_folder(
    tmp_path: Path,
    kind: str,
    tokenizer: str,
    options: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """CTranslate2 is a mock that returns its input as the translation."""
    path = tmp_path / MODEL_NAMES[kind]
    shutil.copyfile(SMALL / "data" / "subword" / "bpe.codes", tmp_path / MODEL_NAMES["bpe"])
    if kind == "sentencepiece":
        write_lines(tmp_path / "text", SOURCES * 5)
        learn_sentencepiece([tmp_path / "text"], 60, path)
    text = TextProcessing("en", "de", tokenizer, kind, **options, folder=tmp_path)
    translate = Mock(side_effect=lambda sentences, **_: [SimpleNamespace(hypotheses=sentences)])
    module = Mock(**{"Translator.return_value.translate_batch": translate})
    monkeypatch.setitem(sys.modules, "ctranslate2", module)
    monkeypatch.setattr(sys, "argv", ["example.py", *LINES])
    config = {"text": text.stored, "moses": ["en", "de"], "positions": [99, 99]}
    config["decoding"] = asdict(trained().decoding)
    (tmp_path / "bundle.json").write_text(json.dumps(config))
    runpy.run_path(str(shutil.copy(EXAMPLES / "ctranslate2.py", tmp_path / "example.py")))
    segmented = [" ".join(call.args[0][0]) for call in translate.call_args_list]
    assert segmented == text.segment(LINES)
    assert capsys.readouterr().out.splitlines() == text.plain(text.segment(LINES))


@pytest.mark.parametrize("tokenizer", ["none", ESCAPED])
def test_the_transformers_example_tokenises_like_the_data_folder(
    tmp_path: Path,
    tokenizer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """transformers is a mock that returns its input as the translation."""
    text = TextProcessing("en", "de", tokenizer, "bpe", punctuation=True)
    encode = Mock(side_effect=lambda lines, **_: {"input_ids": torch.zeros(1, 9), "line": lines})
    encode.decode = Mock(side_effect=lambda line, **_: line)
    encode.model_max_length = 99
    module = Mock(**{"AutoTokenizer.from_pretrained.return_value": encode})
    model = module.AutoModelForSeq2SeqLM.from_pretrained.return_value
    model.generate.side_effect = lambda line, **_: line
    monkeypatch.setitem(sys.modules, "transformers", module)
    monkeypatch.setattr(sys, "argv", ["example.py", *LINES])
    config = {"text": text.stored, "moses": ["en", "de"]}
    (tmp_path / "bundle.json").write_text(json.dumps(config))
    runpy.run_path(str(shutil.copy(EXAMPLES / "huggingface.py", tmp_path / "example.py")))
    tokens = text.tokens(list(map(normalise, LINES)), 0)
    assert [call.args[0][0] for call in encode.call_args_list] == tokens
    expected = list(map(detokeniser(tokenizer, "de"), tokens))
    assert capsys.readouterr().out.splitlines() == expected


def test_the_card_knows_the_licence_of_the_embedded_corpus() -> None:
    of_corpus = trained()
    manifest = {**of_corpus.data.manifest, "source": {"corpus": "home-assistant"}}
    of_corpus = replace(of_corpus, data=replace(of_corpus.data, manifest=manifest))
    assert 'license: "apache-2.0"' in card(of_corpus, "fairseq", "", "")
    assert 'license: "unknown"' in card(of_corpus, "fairseq", "My own words", "")
    assert 'license: "mit"' in card(of_corpus, "fairseq", "", "mit")


def test_scores_of_other_texts_are_left_out_of_the_card(tmp_path: Path) -> None:
    run = Path(shutil.copytree(run_of("mhe_mul"), tmp_path / "run"))
    (run / "test" / "hypotheses.txt").write_text("Edited.\n")
    words = ["export", str(run), str(tmp_path / "out"), "--data", str(SMALL / "data")]
    assert cli.main(words) == 0
    assert "Not scored." in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_the_card_has_the_facts_of_the_run_and_of_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairseq_mhe.deploy.export.user_dir", lambda: Path("some/my_kinds"))
    words = ["--data-name", "Some interface", "--data-licence", "apache-2.0"]
    assert export("mhe_mul", tmp_path / "out", *words) == 0
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "\nimport my_kinds\n" in (tmp_path / "out" / "example.py").read_text()
    scores = json.loads((run_of("mhe_mul") / "test" / "scores.json").read_text())
    counts = json.loads((run_of("mhe_mul") / "counts.json").read_text())
    for fact in (
        'license: "apache-2.0"',
        "| data | Some interface |",
        f"- test: BLEU {scores['bleu']['score']:.2f} ± ",
        scores["bleu"]["signature"],
        f"| parameters | {counts['total_parameters']:,} |",
        "| attention | mhe_mul |",
        "| `fairseq-train DATA/bin --user-dir my_kinds --task translation",
    ):
        assert fact in card


@pytest.mark.parametrize(
    ("file", "changes", "named"),
    [
        (CONFIG, {"version": VERSION + 1}, "update fairseq-mhe"),
        (CONFIG, {"format": "huggingface"}, "bundle for huggingface"),
        ("config.json", {"attention": "mine"}, "--user-dir"),
    ],
)
def test_a_bundle_of_another_program_is_refused(
    exported: Path, tmp_path: Path, file: str, changes: dict[str, Any], named: str
) -> None:
    bundle = Path(shutil.copytree(exported, tmp_path / "my bundle"))
    config = {**json.loads((bundle / file).read_text()), **changes}
    (bundle / file).write_text(json.dumps(config))
    write_sums(bundle)
    with refuses(bundle, named):
        Translator.load(bundle)


def test_a_colon_in_the_path_is_refused(exported: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(exported, tmp_path / "my:bundle")
    with refuses("my:bundle"):
        Translator.load(bundle)


def test_a_bundle_of_version_0_3_is_read(exported: Path, tmp_path: Path) -> None:
    """It has no version, and no number of files."""
    bundle = Path(shutil.copytree(exported, tmp_path / "old"))
    config = json.loads((bundle / CONFIG).read_text())
    del config["version"], config["files"]
    (bundle / CONFIG).write_text(json.dumps(config))
    write_sums(bundle)
    assert open_bundle(bundle).positions == open_bundle(exported).positions


def flipped(content: bytes) -> bytes:
    """Change the lowest bit of the byte in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def cut_off(content: bytes) -> bytes:
    return content[: len(content) * 2 // 3]


@pytest.mark.parametrize("damage", [flipped, cut_off])
@pytest.mark.parametrize("format", ["fairseq", "ctranslate2"])
def test_a_damaged_file_of_a_bundle_is_named(
    exported: Path, for_ctranslate2: Path, tmp_path: Path, format: str, damage: Any
) -> None:
    """Most damages still load, and translate to other words."""
    whole = for_ctranslate2 if format == "ctranslate2" else exported
    names = {path.name for path in whole.iterdir()} - {"README.md", "example.py"}
    for name in names:
        bundle = Path(shutil.copytree(whole, tmp_path / f"damaged {name}"))
        (bundle / name).write_bytes(damage((whole / name).read_bytes()))
        with refuses(bundle, "" if name == "SHA256SUMS" else name):
            Translator.load(bundle)
        (bundle / name).unlink()
        with refuses(name):
            open_bundle(bundle)


def test_the_card_and_the_example_of_a_bundle_may_be_edited(exported: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(exported, tmp_path / "edited"))
    (bundle / "README.md").write_text("# My model\n")
    (bundle / "example.py").unlink()
    (bundle / "LICENSE").write_text("CC0\n")
    assert open_bundle(bundle).format == "fairseq"


@pytest.mark.parametrize(
    ("case", "named"), [("nowhere", "--data"), ("other", "--data"), ("damaged", "bin/dict.en.txt")]
)
def test_a_run_without_its_data_is_refused(tmp_path: Path, case: str, named: str) -> None:
    run = Path(shutil.copytree(run_of("mha"), tmp_path / "run"))
    data = Path(shutil.copytree(SMALL / "data", tmp_path / "data"))
    if case == "damaged":
        (data / "bin" / "dict.en.txt").write_bytes(b"\xff")
    config = json.loads((run / "config.json").read_text())
    config["surroundings"]["data"] = "nowhere" if case == "nowhere" else str(data)
    if case == "other":
        config["settings"]["data"]["fingerprint"] = "of other data"
    (run / "config.json").write_text(json.dumps(config))
    with refuses(named):
        Translator.load(run)
    (run / "model.pt").unlink()
    with refuses(run, "model.pt"):
        Translator.load(run)
    (run / "config.json").write_text(json.dumps({**config, "decoding": None}))
    with refuses(run, "language model"):
        Translator.load(run)
