"""fairseq's own commands with the user-dir: training, every way of decoding."""

import re
from pathlib import Path
from typing import Any

import pytest

import fairseq_mhe
from tests.fixtures.processes import fairseq

USER_DIR = str(Path(fairseq_mhe.__file__).parent)
SENTENCES = 13  # not a multiple of 8, the default of --required-batch-size-multiple
WORDS = ["a", "rose", "is", "red", "and", "the", "sky", "was", "blue", "over", "our", "old", "town"]


def run(command: str, *words: str, **options: Any) -> Any:
    done = fairseq(command, *words, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def train(folder: Path, save: Path, *words: str) -> Any:
    defaults = (
        "--arch transformer_mhe_tiny --share-all-embeddings --cpu --optimizer adam --lr 0.001 "
        "--criterion label_smoothed_cross_entropy --max-tokens 60 --num-workers 0 --max-update 2"
    )
    line = [str(folder / "bin"), "--user-dir", USER_DIR, "--save-dir", str(save)]
    return run("train", *line, *defaults.split(), *words)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised corpus of made-up sentences, and a trained model of two kinds of attention."""
    folder = tmp_path_factory.mktemp("commands")
    words = ["-s", "en", "-t", "de", "--destdir", str(folder / "bin"), "--joined-dictionary"]
    for split in ("train", "valid"):
        lines = [WORDS[i % 5 : i % 5 + 2 + i % 7] for i in range(SENTENCES)]
        for language, order in (("en", 1), ("de", -1)):
            text = "".join(f"{' '.join(line[::order])}\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text)
        words += [f"--{split}pref", str(folder / split)]
    run("preprocess", *words)
    for kind in ("mha", "mhe_mul"):
        train(folder, folder / kind, "--attention", kind)
    return folder


def generate(folder: Path, *words: str, kind: str = "mhe_mul") -> str:
    path = ":".join(str(folder / k / "checkpoint_last.pt") for k in kind.split("+"))
    line = [str(folder / "bin"), "--user-dir", USER_DIR, "--path", path]
    defaults = "--gen-subset valid --cpu --max-len-b 9 --max-tokens 60 --num-workers 0"
    return run("generate", *line, *defaults.split(), *words).stdout


def sentence_numbers(output: str) -> list[int]:
    return sorted(int(n) for n in re.findall(r"^H-(\d+)\t", output, re.MULTILINE))


MIXED = "--attention mha --cross-attention mhe_add --attention-dropout 0.1 --update-freq 2 "
MIXED += "--encoder-layerdrop 0.5 --decoder-layerdrop 0.5"
HALF = "--bf16 --checkpoint-activations"


@pytest.mark.parametrize("options", [HALF, "--memory-efficient-fp16", MIXED])
def test_training_runs_with_options_of_fairseq(folder: Path, tmp_path: Path, options: str) -> None:
    train(folder, tmp_path, *options.split())
    assert (tmp_path / "checkpoint_last.pt").exists()


@pytest.mark.parametrize(("kind", "beam"), [("mhe_mul", 1), ("mha+mhe_mul", 5)])
def test_generation_translates_every_sentence(folder: Path, kind: str, beam: int) -> None:
    output = generate(folder, "--beam", str(beam), "--lenpen", "0.6", kind=kind)
    assert sentence_numbers(output) == list(range(SENTENCES))


def test_interactive_translates_and_validate_prints_a_loss(folder: Path) -> None:
    path = str(folder / "mhe_mul" / "checkpoint_last.pt")
    words = [str(folder / "bin"), "--user-dir", USER_DIR, "--path", path, "--cpu"]
    done = run("interactive", *words, "--max-len-b", "9", input="a rose\nthe sky\n")
    assert sentence_numbers(done.stdout) == [0, 1]
    done = run("validate", *words, "--max-tokens", "60")
    assert re.search(r"valid on 'valid' subset \| loss \d", done.stderr + done.stdout)
