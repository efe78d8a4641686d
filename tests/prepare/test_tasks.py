"""GLUE's and SuperGLUE's files as fairseq reads them afterwards; bad files in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.prepare.task_files import read_task
from fairseq_mhe.prepare.task_folder import open_task, open_tasks, prepare_task
from fairseq_mhe.prepare.task_inputs import shortened
from fairseq_mhe.prepare.tasks import TASKS
from fairseq_mhe.prepare.text_processing import join_sentencepiece
from tests.prepare.conftest import LINES

#: Task -> the first line of an official table, and the form of the others.
TABLES = {
    "cola": ("", "gj04\t{label}\t*\t{x}"),
    "sst2": ("sentence\tlabel", "{x} \t{label}"),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{label}\t1\t2\t{x}\t{y}"),
    "stsb": ("index\tgenre\tsentence1\tsentence2\tscore", "{n}\tnews\t{x}\t{y}\t{n}.250"),
    "mnli": ("index\tsentence1\tsentence2\tlabel1\tgold_label", "{n}\t{x}\t{y}\t-\t{label}"),
    "rte": ("index\tsentence1\tsentence2\tlabel", "{n}\t{x}\t{y}\t{label}"),
}


def official(name: str, start: int = 0) -> str:
    """Four examples in the official format."""
    a, b = LINES[40 + start : 44 + start], LINES[44 + start : 48 + start]
    if name == "boolq":
        questions = enumerate(zip(a, b, strict=True))
        rows = [{"question": y, "passage": x, "label": n % 2 == 1} for n, (x, y) in questions]
        return "".join(f"{json.dumps(row)}\n" for row in rows)
    if name == "multirc":
        answers = [{"text": x, "idx": n, "label": n % 2} for n, x in enumerate(a)]
        which = {"question": "which", "answers": answers[:3], "idx": 0}
        who = {"question": "who", "answers": answers[3:], "idx": 1}
        row = {"idx": 7, "passage": {"text": b[0], "questions": [which, who]}}
        return f"{json.dumps(row)}\n"
    head, form = TABLES[name]
    labels = TASKS[name].labels or ("-",)
    lines = [
        form.format(n=n, x=x, y=y, label=labels[n % len(labels)])
        for n, (x, y) in enumerate(zip(a, b, strict=True))
    ]
    return "".join(f"{line}\n" for line in ([head] if head else []) + lines)


def put(folder: Path, name: str, content: dict[str, str]) -> Path:
    """The official folder with some splits' content."""
    task = TASKS[name]
    (folder / task.folder).mkdir(parents=True)
    for split, lines in content.items():
        (folder / task.folder / f"{split}{task.suffix}").write_text(lines, encoding="utf-8")
    return folder


def fairseqs(folder: Path, subset: str) -> list[tuple[str, Any]]:
    """What fairseq's task reads: the text of all inputs, and the target."""
    data = open_task(folder)
    regression = data.task.labels is None
    config = SentencePredictionConfig(
        data=str(data.binary), num_classes=len(data.task.labels or "1"), no_shuffle=True
    )
    config.init_token, config.separator_token, config.seed = 0, 2, 1
    config.regression_target, config.max_positions = regression, data.block
    task = SentencePredictionTask.setup_task(config)
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    examples = []
    for index in range(len(dataset)):
        batch = dataset.collater([dataset[index]])
        tokens = batch["net_input"]["src_tokens"][0]
        assert tokens[0] == 0
        assert len(tokens) <= data.block
        words = " ".join(task.source_dictionary[token] for token in tokens.tolist())
        parts = join_sentencepiece(words).replace("<s>", "").split("</s>")
        text = "|".join(part.strip() for part in parts if part)
        examples.append((text, batch["target"].view(-1)[0].item()))
    return examples


@pytest.mark.parametrize(
    "name", ["cola", "sst2", "mrpc", "stsb", "mnli", "rte", "boolq", "multirc"]
)
def test_fairseq_reads_every_example(name: str, language_text: Path, tmp_path: Path) -> None:
    task = TASKS[name]
    names = enumerate(("train", *task.scored))
    splits = {split: official(name, 8 * number) for number, split in names}
    source = put(tmp_path / "official", name, splits)
    out = prepare_task(task, source, language_text, tmp_path / "out", block=200)
    data = open_task(out)
    for subset, split in {"train": "train", **data.subsets}.items():
        examples, _ = read_task(task, source / task.folder / f"{split}{task.suffix}")
        assert len(examples) == 4
        found = fairseqs(out, subset)
        for (words, target), example in zip(found, examples, strict=True):
            assert "<unk>" not in words
            assert words == "|".join(" ".join(part.split()) for part in example.texts)
            wanted = task.labels.index(example.label) if task.labels else float(example.label)
            assert target == wanted
    if name == "multirc":
        assert data.examples("valid")["groups"] == ["7.0", "7.0", "7.0", "7.1"]
    assert set(data.subsets.values()) == set(task.scored)


def test_truncated_examples_are_counted_and_said(
    language_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = put(tmp_path / "in", "rte", dict.fromkeys(("train", "dev"), official("rte")))
    out = prepare_task(TASKS["rte"], source, language_text, tmp_path / "out", block=12)
    assert len(fairseqs(out, "valid")) == 4
    assert "rte valid: 4 examples, 3 truncated\n" in capsys.readouterr().err


def test_the_longer_text_is_cut() -> None:
    assert shortened([list("abcdef"), list("xy")], 6) == [list("abcd"), list("xy")]
    assert shortened([list("abcd"), list("wxyz")], 5) == [list("ab"), list("wxy")]
    assert shortened([list("ab"), list("xy")], 4) == [list("ab"), list("xy")]
    assert shortened([list("abc")], 2) == [list("ab")]


BAD = [
    (
        "rte",
        "index\tsentence1\tlabel\n0\ta\tentailment\n",
        "line 2 is no row of rte: there is no",
    ),
    (
        "rte",
        "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tmaybe\n",
        "there is no label 'maybe'",
    ),
    ("rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\n", "has no examples"),
    ("rte", "", "has no examples"),
    ("stsb", "index\tsentence1\tsentence2\tscore\n0\ta\tb\tx\n", "could not convert .* 'x'"),
    ("boolq", '{"question": "a"\n', "line 1 is no row of boolq: Expecting"),
    (
        "boolq",
        '{"question": "a", "passage": 3, "label": true}\n',
        "1 is no row of boolq: 'int'",
    ),
    ("multirc", '{"passage": "text"}\n', "line 1 is no row of multirc"),
]


def test_incomplete_rows_of_train_are_dropped_and_counted(
    language_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As QQP's train has them."""
    whole = official("rte")
    torn = whole + "4\ta\t \tentailment\n5\ta\n"
    source = put(tmp_path / "in", "rte", {"train": torn, "dev": whole})
    out = prepare_task(TASKS["rte"], source, language_text, tmp_path / "out", block=200)
    assert fairseqs(out, "train") == fairseqs(out, "valid")
    assert "rte train: 4 examples, 2 dropped" in capsys.readouterr().err
    source = put(tmp_path / "bad", "rte", {"train": whole, "dev": torn})
    with pytest.raises(UserError, match=r"line 6 .* a text or a label is missing"):
        prepare_task(TASKS["rte"], source, language_text, tmp_path / "other", block=200)


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_bad_files_end_in_one_line(
    name: str, content: str, message: str, language_text: Path, tmp_path: Path
) -> None:
    task = TASKS[name]
    source = put(tmp_path / "in", name, {"train": content, task.scored[0]: content})
    with pytest.raises(UserError, match=message) as caught:
        prepare_task(task, source, language_text, tmp_path / "out", block=64)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "bin").exists()


def test_a_folder_of_another_kind_is_not_written_over(
    language_text: Path, tmp_path: Path
) -> None:
    source = put(tmp_path, "rte", dict.fromkeys(("train", "dev"), official("rte")))
    with pytest.raises(UserError, match="holds running text: name another --out"):
        prepare_task(TASKS["rte"], source, language_text, language_text, block=64)
    with pytest.raises(UserError, match="is running text, not a task"):
        open_task(language_text)


def test_a_task_has_one_folder(language_text: Path, tmp_path: Path) -> None:
    folders = []
    for number, name in enumerate(("rte", "cola", "rte")):
        texts = dict.fromkeys(("train", "dev"), official(name))
        source = put(tmp_path / f"in{number}", name, texts)
        out = tmp_path / f"{name}{number}"
        folders.append(prepare_task(TASKS[name], source, language_text, out, block=64))
    assert [task.task.name for task in open_tasks(folders[:2])] == ["rte", "cola"]
    with pytest.raises(UserError, match=r"rte0 and .*rte2 are both of rte: name one of them"):
        open_tasks(folders)


def test_a_missing_file_is_told(language_text: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has no RTE/train.tsv nor train.tsv nor rte.train.tsv"
    ):
        prepare_task(TASKS["rte"], tmp_path, language_text, tmp_path / "out", block=64)
