"""Every line of valid and test is kept, from the text to the score: BLEU is of all sentences."""

from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from fairseq_mhe import cli
from fairseq_mhe.common.files import read_json
from fairseq_mhe.prepare.data_folder import open_data
from tests.fixtures.text import Pairs, write_parallel

#: Pairs that train loses: empty, over-long, of unlike lengths, with an endless word.
ODD = [
    ("", "Nichts."),
    ("Nothing.", " "),
    ("many " * 300, "viele " * 300),
    ("one", "eins " * 10),
    (f"data:{'Zm9v' * 400}", "x" * 1200),
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, corpus: dict[str, Pairs]) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    texts = {"train": ODD + corpus["train"][:300]}
    texts |= {split: corpus[split][:8] + ODD + corpus[split][8:10] for split in ("valid", "test")}
    words = ["prepare", "--out", str(folder / "data"), "--vocab-size", "200"]
    for split, pairs in texts.items():
        words += [f"--{split}", str(write_parallel(folder / split, pairs))]
    assert cli.main([*words, "--source-lang", "en", "--target-lang", "de"]) == 0
    return folder / "data"


def test_only_train_is_cleaned(prepared: Path) -> None:
    counts = read_json(prepared / "manifest.json")["steps"]["clean"]["counts"]
    train = counts["train"]
    assert (train["empty"], train["too_long"], train["ratio"]) == (2, 2, 1)
    assert (train["read"], train["kept"]) == (305, 300)
    for split in ("valid", "test"):
        assert (counts[split]["read"], counts[split]["kept"]) == (15, 15)
        for folder in ("raw", "tokenised", "subword"):
            for lang in ("en", "de"):
                text = (prepared / folder / f"{split}.{lang}").read_text(encoding="utf-8")
                assert text.count("\n") == 15
        longest = max(open_data(prepared).longest(split))
        assert longest > 1024, "fairseq's limits of lengths are not tried"


def test_training_translation_and_scoring_keep_every_line(prepared: Path) -> None:
    runs = prepared.parent / "runs"
    line = ["train", "tiny", "mhe_mul", "--updates", "2", "--cpu", "--evaluate"]
    assert cli.main([*line, "--data", str(prepared), "--out", str(runs)]) == 0
    folder = runs / "tiny-mhe_mul-seed1" / "test"
    scores = read_json(folder / "scores.json")
    assert scores["sentences"] == 15
    texts = [
        (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        for name in ("hypotheses", "references")
    ]
    assert texts[1] == (prepared / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    assert round(BLEU().corpus_score(texts[0], [texts[1]]).score, 4) == scores["bleu"]["score"]
