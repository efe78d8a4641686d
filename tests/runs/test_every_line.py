"""Every line of valid and test is kept, from the text to the score: BLEU is of all sentences."""

from pathlib import Path

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


def test_training_translation_and_scoring_keep_every_line(
    tmp_path: Path, corpus: dict[str, Pairs]
) -> None:
    texts = {"train": ODD + corpus["train"][:300]}
    texts |= {split: corpus[split][:8] + ODD + corpus[split][8:10] for split in ("valid", "test")}
    data = tmp_path / "data"
    words = ["prepare", "--out", str(data), "--vocab-size", "200"]
    for split, pairs in texts.items():
        words += [f"--{split}", str(write_parallel(tmp_path / split, pairs))]
    assert cli.main([*words, "--source-lang", "en", "--target-lang", "de"]) == 0
    counts = read_json(data / "manifest.json")["steps"]["clean"]["counts"]
    train = counts["train"]
    assert (train["empty"], train["too_long"], train["ratio"], train["kept"]) == (2, 2, 1, 300)
    assert [counts[split]["kept"] for split in ("valid", "test")] == [15, 15]
    assert max(open_data(data).longest("test")) > 1024, "fairseq's limits of lengths are not tried"

    line = ["train", "tiny", "mhe_mul", "--updates", "2", "--cpu", "--evaluate"]
    assert cli.main([*line, "--data", str(data), "--out", str(tmp_path)]) == 0
    folder = tmp_path / "tiny-mhe_mul-seed1" / "test"
    scores = read_json(folder / "scores.json")
    assert scores["sentences"] == 15
    hypotheses, references = (
        (folder / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        for name in ("hypotheses", "references")
    )
    assert references == (data / "raw" / "test.de").read_text(encoding="utf-8").splitlines()
    bleu = BLEU().corpus_score(hypotheses, [references]).score
    assert round(bleu, 4) == scores["bleu"]["score"]
