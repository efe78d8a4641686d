"""The table shows what the runs reached, with the documented keys, and refuses unlike runs."""

import csv
import json
import math
import re
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from sacrebleu.metrics import BLEU

from fairseq_mhe import cli
from fairseq_mhe.common.files import write_json
from fairseq_mhe.models.architectures import ROWS
from fairseq_mhe.models.families import ARCHITECTURES, TRANSLATION
from fairseq_mhe.prepare.text import read_lines
from fairseq_mhe.prepare.text_processing import TextProcessing
from fairseq_mhe.report.results import gather, summarise
from fairseq_mhe.report.translation_table import FILES, write_table
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.scoring import score_folder
from tests.fixtures.refusals import refuses
from tests.fixtures.runs import REFERENCES

MakeRun = Callable[..., Job]
Patch = pytest.MonkeyPatch
DOCUMENTED_KEYS = {
    *("attention", "attention_parameters", "total_parameters", "kv_bytes_per_token"),
    *("bleu", "chrf", "prr", "p_value", "tokens_per_second", "sentences_per_second"),
    *("signature", "valid_loss"),
}
TOKENISED = {"score": 31.0, "signature": "tok:none"}
GERMAN = TextProcessing("en", "de", "none", "bpe")


@pytest.fixture(autouse=True)
def few_pictures(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    """Draw pictures only in tests that name them: that takes most of the time."""
    if "picture" not in request.function.__name__:
        monkeypatch.setattr(Figure, "savefig", lambda _, path, **how: path.touch())


def change(path: Path, *names: str, to: Any) -> None:
    """Change the value at a path of names in a JSON file."""
    whole = inner = json.loads(path.read_text())
    for name in names[:-1]:
        inner = inner[name]
    inner[names[-1]] = to
    write_json(path, whole)


def notes(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.startswith("- "))


def test_each_kind_has_the_means_over_its_seeds(make_run: MakeRun) -> None:
    """The first seeds translate alike: if they alone were compared, PRR were 100 and p were 1."""
    wrongs = {"mha": (3, 2, 2), "mhe_mul": (3, 15, 16)}
    runs = {
        kind: [make_run(kind, wrong, seed) for seed, wrong in enumerate(of_kind, start=1)]
        for kind, of_kind in wrongs.items()
    }
    mha, mhe = summarise(gather(run.folder for of_kind in runs.values() for run in of_kind))
    assert set(mha) >= DOCUMENTED_KEYS <= set(mhe)
    assert (mha["attention"], mhe["attention"], mha["seeds"]) == ("mha", "mhe_mul", [1, 2, 3])
    texts = [list(read_lines(run.folder / "test" / "hypotheses.txt")) for run in runs["mha"]]
    bleus = [BLEU().corpus_score(hypotheses, [REFERENCES]).score for hypotheses in texts]
    assert mha["bleu"] == pytest.approx(statistics.mean(bleus), abs=1e-3)
    assert mha["bleu_deviation"] == pytest.approx(statistics.stdev(bleus), abs=1e-3)
    assert (mha["tokens_per_second"], mha["valid_loss"]) == (2000.0, 6.25)
    assert (mha["prr"], mha["p_value"]) == (100.0, None)
    assert mhe["prr"] == pytest.approx(100 * mhe["bleu"] / mha["bleu"], abs=0.01)
    assert mhe["prr_low"] < mhe["prr"] < mhe["prr_high"]
    assert mhe["p_value"] < 1.0
    change(runs["mha"][1].metrics, "tokens_per_second", to=None)
    (alone,) = summarise(gather(run.folder for run in runs["mha"]))
    assert alone["tokens_per_second"] is None, "a mean needs all seeds"
    (alone,) = summarise(gather([runs["mhe_mul"][0].folder]))
    assert (alone["prr"], alone["p_value"], alone["bleu_deviation"]) == (None, None, None)


@pytest.mark.parametrize(
    ("names", "value"),
    [(("options", "max_update"), 41), (("options", "bf16"), True), (("start",), "a" * 64)],
)
def test_a_cell_takes_runs_that_differ_by_the_seed_alone(
    make_run: MakeRun, names: tuple[str, ...], value: Any
) -> None:
    runs = [make_run("mha", 2, seed=1), make_run("mha", 6, seed=2)]
    with refuses("same seed"):
        gather([runs[0].folder] * 2)
    change(runs[1].folder / "config.json", "settings", *names, to=value)
    with refuses(names[-1]):
        gather(run.folder for run in runs)
    if names == ("start",):  # each seed may start from its own checkpoint
        change(runs[0].folder / "config.json", "settings", *names, to="b" * 64)
        gather(run.folder for run in runs)


def test_runs_that_cannot_be_compared_are_refused(make_run: MakeRun, tmp_path: Path) -> None:
    done, other = make_run("mha", 3), make_run("mhe_mul", 3)
    test = other.folder / "test"
    text = (test / "scores.json").read_text()
    (test / "scores.json").write_text(text.replace("tok:13a", "tok:zh"))
    with refuses(other.folder, "tokenizers"):
        gather([done.folder, other.folder])
    (test / "references.txt").write_text("something else\n" * len(REFERENCES))
    score_folder(test, GERMAN)
    with refuses("different sentences"):
        gather([done.folder, other.folder])
    for path in (test / "scores.json", other.metrics, other.folder / "config.json"):
        path.unlink()
        with refuses(other.folder, path.stem):
            gather([done.folder, other.folder])


@pytest.mark.parametrize("value", [math.nan, "21.3", 101.0, None])
def test_a_score_that_is_no_number_from_0_to_100_is_refused(make_run: MakeRun, value: Any) -> None:
    """A BLEU of NaN was once printed."""
    run = make_run("mha", 3)
    scores = run.folder / "test" / "scores.json"
    change(scores, "bleu", "score", to=value)
    with refuses(scores, "fairseq-mhe evaluate"):
        gather([run.folder])


@pytest.mark.parametrize("name", ["hypotheses", "references"])
def test_scores_of_other_texts_are_refused(make_run: MakeRun, name: str) -> None:
    """A table once showed the BLEU of scores.json beside the PRR of edited hypotheses."""
    run = make_run("mha", 3)
    edited = run.folder / "test" / f"{name}.txt"
    edited.write_text(edited.read_text().replace("Lampe", "Leuchte"))
    with refuses(edited, "fairseq-mhe evaluate"):
        gather([run.folder])
    score_folder(run.folder / "test", GERMAN)
    (cell,) = gather([run.folder])
    assert cell.of_seeds("bleu") == [pytest.approx(cell.sample().mean, abs=1e-4)]


def test_a_baseline_that_learned_nothing_gives_a_note_in_place_of_prr(
    make_run: MakeRun, tmp_path: Path
) -> None:
    runs = [make_run("mha", len(REFERENCES)), make_run("mhe_mul", 5)]
    write_table(gather(run.folder for run in runs), tmp_path / "out", "A title")
    rows = json.loads((tmp_path / "out" / "table.json").read_text())
    names = ("prr", "prr_low", "prr_high", "p_value")
    assert {row[name] for row in rows for name in names} == {None}
    assert "it has not learned" in notes((tmp_path / "out" / "table.md").read_text())


def test_table_writes_files_and_picture_and_leaves_the_runs(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    runs = [make_run("mha", 3), make_run("mhe_mul", 5)]
    before = {path: path.stat().st_mtime_ns for run in runs for path in run.folder.rglob("*")}
    line = ["table", *(str(run.folder) for run in runs), "--out", str(tmp_path / "out")]
    assert cli.main([*line, "--title", r"A title of $\foo$"]) == 0
    text = (tmp_path / "out" / "table.md").read_text()
    assert capsys.readouterr().out == text
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(FILES)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert text.startswith("# A title of $\\foo$\n")
    assert re.search(r"(?m)^\| mhe_mul +\| +1,500 \| +9,999 \| +64 \|", text)
    assert "tok:13a" in notes(text)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert cli.main(line) == 0
    shown = capsys.readouterr().out
    assert re.search(r"\| attention parameters +\| +4,000 \| +1,500 \|", shown), "transposed"
    assert cli.main([*line, "--subset", "valid"]) == 2, "valid is not scored"


def test_the_papers_rows_have_its_numbers_beside_ours_in_every_format(
    make_run: MakeRun, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Line breaks in title and names must not break any format; LaTeX must be escaped."""
    runs = [make_run("mha", 2, row="base"), make_run("mhe_mul", 5, row="base")]
    runs += [make_run("mha", 4, row="12h"), make_run("mhe_mul", 5, row="12h")]
    counts = (18_874_368, 4_886_784, 42_467_328, 13_312_512)
    own = {"arch": "own", "encoder_ffn_embed_dim": 1024}  # neither this nor width 48 is the paper's
    monkeypatch.setitem(ARCHITECTURES, "own", partial(TRANSLATION.configure, ROWS["base"]))
    changes = (own, {"attention_head_dim": 48}, {}, {})
    for run, count, changed in zip(runs, counts, changes, strict=True):
        change(run.counts, "attention_parameters", to=count)
        for key, to in changed.items():
            change(run.folder / "config.json", "settings", "options", key, to=to)
        change(run.folder / "test" / "scores.json", "tokenised", to=TOKENISED)
    cells = gather(run.folder for run in runs)
    write_table(cells, tmp_path / "out", "A title,\n1% & more", ["big-mha\n\\input{run}"])

    def text(end: str) -> str:
        return (tmp_path / "out" / f"table.{end}").read_text()

    assert text("md").startswith("# A title, 1% & more\n")
    assert re.search(r"\| 12h +\| mhe_mul +\| +13,312,512 \| +13\.31 \|", text("md"))
    assert re.search(r"\| 12h +\| +12 \| +768 \| +12 \| +64 \|", text("md")), "sizes"
    assert "left out: big-mha" in notes(text("md"))
    latex = text("tex")
    assert r"mhe\_mul" in latex
    outside = [line for line in latex.split("\n") if not line.startswith("%")]
    assert not [line for line in outside if re.search(r"(?<!\\)[_%#]|input", line)], "escaped"
    values: list[dict[str, Any]] = json.loads(text("json"))
    with (tmp_path / "out" / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["bleu"]) for row in rows] == [each["bleu"] for each in values]
    assert f" {values[-1]['prr_low']:.1f} to {values[-1]['prr_high']:.1f} |" in text("md")
    assert [row["paper_bleu"] for row in rows] == ["", "", "25.7", "24.2"]
    assert [each["head_width"] for each in values] == [64, 48, 64, 64]
    for mha, mhe in (values[:2], values[2:]):
        assert mhe["prr"] == pytest.approx(100 * mhe["bleu"] / mha["bleu"], abs=0.01), "of its row"
    assert (values[-1]["updates"], values[-1]["dropout"]) == (40, 0.1), "as trained"


def test_notes_say_where_runs_differ(make_run: MakeRun, tmp_path: Path) -> None:
    def written(*runs: Job) -> str:
        write_table(gather(run.folder for run in runs), tmp_path / "out", "A title")
        return notes((tmp_path / "out" / "table.md").read_text())

    runs = [make_run(kind, 3) for kind in ("sha", "mha", "mhe_mul")]
    assert not re.search("Other settings|are -|Trained in", written(*runs))
    sha, mha, mhe = runs
    config = mhe.folder / "config.json"
    for name, value in (("max_update", 100), ("lr", [1.0]), ("bf16", True)):
        change(config, "settings", "options", name, to=value)
    change(config, "settings", "data", "fingerprint", to="1" * 64)
    change(config, "decoding", "beam", to=1)
    change(config, "versions", to={"torch": "2.3"})
    change(mhe.metrics, "measured", to="on a GPU")
    change(mhe.metrics, "ended_by_patience", to=1500)
    change(mha.folder / "config.json", "versions", to={"torch": "2.1"})
    change(sha.folder / "config.json", "settings", "start", to="a" * 64)
    text = written(*runs)
    for fact in (
        "sha (start a checkpoint), mhe_mul (max_update 100, lr [1.0]",
        "lr [1.0], data 11111111, generation.beam 1, bf16 True",
        *("torch 2.1", "torch 2.3", "alone; on a GPU", "1,500 updates"),
    ):
        assert fact in text
    text = written(mha, make_run("mha", 4, seed=2), mhe)
    assert "mha 1, 2; mhe_mul 1" in text, "seeds"
    assert "of a single training over sentences alone" in text, "± of mhe_mul"
    base = make_run("mha", 3, row="base")
    change(base.folder / "config.json", "settings", "options", "bf16", to=True)
    text = written(mha, base)
    assert "Other settings" not in text, "another row"
    assert "Trained in float32 (tiny-mha-seed1) and bf16 (base-mha-seed1)." in text
