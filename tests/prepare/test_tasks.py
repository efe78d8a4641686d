"""Tasks of GLUE, SuperGLUE and SQuAD, from official files to the examples that fairseq reads."""

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from fairseq_mhe import cli
from fairseq_mhe.models.understanding import WordsPredictionTask
from fairseq_mhe.prepare.corpora.official_task import OfficialTask
from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.manifest import TEXT
from fairseq_mhe.prepare.subword import join
from fairseq_mhe.prepare.task_files import read_task, task_file
from fairseq_mhe.prepare.task_folder import open_task, prepare_task
from fairseq_mhe.prepare.task_inputs import Inputs, read_inputs, truncate, windows
from fairseq_mhe.prepare.tasks import TASKS, Task
from tests.fixtures.miniature import Server, remote_file
from tests.fixtures.refusals import refuses
from tests.fixtures.task_files import TABLES, put_task, squad_content, superglue_rows, table
from tests.prepare.conftest import LINES

plain = partial(join, kind="sentencepiece")
LONG = [line for line in LINES[40:] if len(line.split()) > 3]
Make = Callable[..., Path]


@pytest.fixture
def make(language_text: Path, tmp_path: Path) -> Make:
    """A function that makes the folder of a task with ``count`` examples."""

    def make(name: str, count: int = 7, block: int = 200, write: bool = True) -> Path:
        source = put_task(tmp_path / "in", name, LONG, count) if write else tmp_path / "in"
        return prepare_task(TASKS[name], source, language_text, tmp_path / "out", block)

    return make


def batches(kind: type[SentencePredictionTask], folder: Path, subset: str) -> Iterator[Any]:
    """Yield the batches of fairseq's task, one example each, and its dictionary."""
    data = open_task(folder)
    classes = len(data.task.labels or "1")
    config = SentencePredictionConfig(data=str(data.binary), num_classes=classes, no_shuffle=True)
    config.init_token, config.separator_token, config.seed = 0, 2, 1
    config.regression_target = data.task.labels is None
    config.max_positions = data.manifest["block"]
    task = kind.setup_task(config)
    task.load_dataset(subset)
    dataset = task.dataset(subset)
    for index in range(len(dataset)):
        yield dataset.collater([dataset[index]]), task.source_dictionary


def read_back(folder: Path, subset: str) -> list[tuple[str, Any]]:
    """Return the inputs as text, and the target, of every example that fairseq reads."""
    examples = []
    for batch, dictionary in batches(SentencePredictionTask, folder, subset):
        tokens = batch["net_input"]["src_tokens"][0]
        assert tokens[0] == 0
        assert len(tokens) <= open_task(folder).manifest["block"]
        words = " ".join(dictionary[token] for token in tokens.tolist())
        assert "<unk>" not in words
        parts = plain(words).replace("<s>", "").split("</s>")
        text = "|".join(part.strip() for part in parts if part)
        examples.append((text, batch["target"].view(-1)[0].item()))
    return examples


@pytest.mark.parametrize("name", ["cola", "sst2", "mrpc", "stsb", "mnli", "rte", "boolq"])
def test_fairseq_reads_every_example(name: str, make: Make) -> None:
    task, out = TASKS[name], make(name, 4)
    texts, step = len(task.columns), 3 if name == "boolq" else 2
    for number, subset in enumerate(["train", *task.subsets]):
        for n, (words, target) in enumerate(read_back(out, subset)):
            start = 11 * number + step * n
            assert words == "|".join(" ".join(x.split()) for x in LONG[start : start + texts])
            assert target == (n % len(task.labels) if task.labels else n + 0.25)
        assert n == 3


def test_multirc_has_an_example_for_each_answer(make: Make) -> None:
    out = make("multirc", 2)
    passage, question, answer = LONG[11:14]
    assert read_back(out, "valid")[:2] == [(f"{passage}|{question} {answer}", n) for n in (0, 1)]
    groups = ["0.0", "0.0", "0.1", "0.1", "1.0", "1.0", "1.1", "1.1"]
    assert open_task(out).examples("valid")["groups"] == groups


def test_truncated_examples_are_counted(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("rte", 4)  # whole examples, which those of the smaller block replace
    assert len(read_back(make("rte", 4, block=12), "valid")) == 4
    assert "rte valid: 4 examples, 4 truncated\n" in capsys.readouterr().err
    assert truncate([list("abcdef"), list("xy")], 6) == [list("abcd"), list("xy")]


def test_incomplete_rows_of_train_are_dropped_and_counted(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training set of QQP has such rows."""
    put_task(tmp_path / "in", "rte", LONG, 4)
    train, dev = (tmp_path / "in" / f"rte.{split}.tsv" for split in ("train", "dev"))
    torn = dev.read_text() + "4\ta\t \tentailment\n5\ta\n"
    train.write_text(torn)
    out = make("rte", write=False)
    assert read_back(out, "train") == read_back(out, "valid")
    assert "rte train: 4 examples, 2 dropped" in capsys.readouterr().err
    dev.write_text(torn)
    with refuses(dev, "line 6"):
        make("rte", write=False)


@pytest.fixture
def inputs(language_text: Path, tmp_path: Path) -> Callable[..., Inputs]:
    """A function that reads training examples without binarising them."""

    def inputs(name: str, block: int = 200, count: int = 7) -> Inputs:
        folder, processing = put_task(tmp_path, name, LONG, count), open_data(language_text, TEXT)
        path = folder / f"{name}.train{TASKS[name].suffix}"
        return read_inputs(TASKS[name], path, processing.processing, block, True)

    return inputs


def test_copa_premises_ask_for_cause_or_effect(inputs: Callable[..., Inputs]) -> None:
    read = inputs("copa")
    rows = superglue_rows("copa", LONG, 7)
    assert [plain(line) for line in read.columns[1]] == [row["choice1"] for row in rows]
    assert plain(read.columns[0][0]) == f"{rows[0]['premise']} What was the cause of this?"
    assert plain(read.columns[0][1]) == f"{rows[1]['premise']} What happened as a result?"
    assert read.labels == ["0", "1", "0", "1", "0", "1", "0"]
    # The longest choice decides where the premise is truncated.
    short = inputs("copa", block=24)
    lengths = [[len(line.split()) for line in column] for column in short.columns]
    for premise, *choices in zip(*lengths, strict=True):
        assert premise + max(choices) + 4 <= 24
    assert short.counts["truncated"] > 0


@pytest.mark.parametrize("name", ["wic", "wsc"])
def test_spans_mark_the_words_in_fairseqs_tokens(name: str, make: Make) -> None:
    """Spans count the tokens of the whole sequence that fairseq gives the model."""
    read = batches(WordsPredictionTask, make(name), "train")
    for (batch, dictionary), row in zip(read, superglue_rows(name, LONG, 7), strict=True):
        (tokens,), (spans,) = (batch["net_input"][key].tolist() for key in ("src_tokens", "spans"))
        target = row.get("target")
        words = [target[f"span{n}_text"] for n in (1, 2)] if target else [row["word"]] * 2
        for (first, last), word in zip([spans[:2], spans[2:]], words, strict=True):
            marked = plain(dictionary.string(tokens[first : last + 1]))
            assert marked.strip(".,:!?") == " ".join(word.split()).strip(".,:!?")


def test_a_span_that_is_cut_off_is_the_texts_last_subword(inputs: Callable[..., Inputs]) -> None:
    read = inputs("wsc", block=8)
    assert read.counts["truncated"] > 0
    for line, spans in zip(read.columns[0], read.spans, strict=True):
        assert max(map(int, spans.split())) <= len(line.split())


def test_record_fills_the_gap_with_every_entity(inputs: Callable[..., Inputs]) -> None:
    read = inputs("record", count=2)
    (row, _) = superglue_rows("record", LONG, 2)
    entities = list(dict.fromkeys(LONG[0].split()))
    assert read.facts["candidates"][: len(entities)] == entities
    assert read.facts["groups"][: len(entities)] == ["0"] * len(entities)
    assert "@" not in plain("".join(read.columns[0] + read.columns[1]))
    query = row["qas"][0]["query"]
    assert plain(read.columns[1][1]) == query.replace("@placeholder", entities[1])
    assert read.labels[0] == "1"
    assert read.labels.count("1") == 4


def test_windows_cover_every_subword() -> None:
    assert windows(11, 4, 3) == [(0, 4), (3, 7), (6, 10), (9, 11)]
    for length in range(1, 40):
        covered = [set(range(start, end)) for start, end in windows(length, 7, 3)]
        assert set().union(*covered) == set(range(length))


@pytest.mark.parametrize("block", [53, 400])  # of 53: an answer begins where a window ends
def test_labels_point_to_the_answers(block: int, inputs: Callable[..., Inputs]) -> None:
    """A label counts the tokens of <s> question </s> </s> window </s>; 0 0 is no answer."""
    read = inputs("squad2", block)
    questions = {
        question["id"]: question
        for article in squad_content(LONG)["data"]
        for question in article["paragraphs"][0]["qas"]
    }
    rows = zip(read.facts["windows"], *read.columns, read.labels, strict=True)
    answered = set()
    for (number, _, start, _), query, window, label in rows:
        tokens = ["<s>", *query.split(), "</s>", "</s>", *window.split(), "</s>"]
        assert (len(tokens) <= block, start % (block // 3)) == (True, 0)
        first, last = map(int, label.split())
        question = questions[read.facts["questions"][number]]
        if (first, last) != (0, 0):
            answer = plain(" ".join(tokens[first : last + 1]))
            assert answer == question["answers"][0]["text"]
            answered.add(question["id"])
    answerable = {name for name, question in questions.items() if question["answers"]}
    assert len(answerable - answered) == read.counts["answers in no window"]
    assert bool(read.counts["answers in no window"]) == (block == 53)
    assert read.counts["questions"] == len(questions)
    assert bool(read.counts["truncated"]) == (block == 53)


HEAD = "index\tsentence1\tsentence2\tlabel\n"
STSB = f"{TABLES['stsb'][0]}\n"


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("rte", HEAD + "0\ta\tb\tmaybe\n", "'maybe'"),
        ("rte", HEAD + "0\ta\tb\n", "no examples"),
        ("stsb", f"{STSB}0\tnews\ta\tb\tNaN\n", "line 2"),
        ("boolq", '{"question": "a"\n', "line 1"),
        ("boolq", '{"question": "a", "passage": 3, "label": true}\n', "line 1"),
        ("squad2", '{"data": []}', "no questions"),
    ],
)
def test_invalid_files_are_named(
    name: str, content: str, named: str, make: Make, tmp_path: Path
) -> None:
    for path in put_task(tmp_path / "in", name, LONG).iterdir():
        path.write_text(content)
    with refuses(tmp_path / "in" / f"{name}.train", named):
        make(name, write=False)
    assert not (tmp_path / "out" / "bin").exists()


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("copa", '"cause"', '"why"', "'why'"),
        ("copa", '"choice2"', '"choice3"', "'choice2'"),
        ("wic", '"start1": 0', '"start1": Infinity', "line 1"),
        ("squad1", '"question": "', '"question": 3, "q": "', "3 is no text"),
        ("squad1", '"answer_start": ', '"answer_start": 9', "question 0-0"),
    ],
)
def test_an_invalid_value_is_named(
    name: str, old: str, new: str, named: str, make: Make, tmp_path: Path
) -> None:
    """A value in the first line of the scored set is wrong or missing."""
    folder = put_task(tmp_path / "in", name, LONG, 2)
    path = folder / f"{name}.{TASKS[name].scored[0]}{TASKS[name].suffix}"
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with refuses(path, named):
        make(name, write=False)


def test_other_folders_are_refused(language_text: Path, tmp_path: Path) -> None:
    source = put_task(tmp_path / "in", "rte", LONG, 3)
    with refuses(language_text, "holds text data"):
        prepare_task(TASKS["rte"], source, language_text, language_text, block=64)
    with refuses(tmp_path, "data-prep/text.sh"):
        prepare_task(TASKS["rte"], source, tmp_path, tmp_path / "out", block=64)
    with refuses(tmp_path, "RTE/train.tsv", "train.tsv", "rte.train.tsv"):
        prepare_task(TASKS["rte"], tmp_path, language_text, tmp_path / "out", block=64)


def published_as(name: str, *paths: Path) -> Task:
    """Return the task with ``paths`` as its published files."""
    return replace(TASKS[name], files=[remote_file(path) for path in paths])


@pytest.mark.parametrize(("name", "inside"), [("rte", "RTE"), ("qqp", "QQP"), ("boolq", "BoolQ")])
def test_an_archive_becomes_the_official_files(
    name: str, inside: str, tmp_path: Path, server: Server
) -> None:
    path, task = tmp_path / "served" / f"{name}.zip", TASKS[name]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for split in ("train", *task.scored):
            packed.writestr(f"{inside}/{split}{task.suffix}", "content")
        packed.writestr("../outside", "-")
    task = published_as(name, path)
    options = OfficialTask(out=tmp_path / "out", mirror=server.url)
    for _ in range(2):
        folder = options.obtain(task)
    assert len(server.requests) == 1
    for split in ("train", *task.scored):
        assert task_file(task, folder, split).read_text() == "content"
    assert not list(tmp_path.rglob("outside"))


def test_mrpc_is_split_by_glues_identifiers(tmp_path: Path, server: Server) -> None:
    rows = table("mrpc", LONG, 4).strip().split("\n")
    whole, identifiers = (tmp_path / "served" / name for name in ("whole.txt", "ids.tsv"))
    whole.write_text("\ufeff" + "\r\n".join(rows) + "\r\n")
    identifiers.write_text("1\t7\n3\t7\n")
    task = published_as("mrpc", whole, identifiers)
    folder = OfficialTask(out=tmp_path, mirror=server.url).obtain(task)
    for split, numbers in {"train": (0, 2), "dev": (1, 3)}.items():
        examples, _ = read_task(task, folder / f"{split}.tsv")
        assert [example.texts[0] for example in examples] == [LONG[2 * n] for n in numbers]


def test_squad_sh_downloads_and_prepares(
    language_text: Path, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_task(tmp_path, "squad1", LONG)
    paths = [tmp_path / "served" / f"{split}-v1.1.json" for split in ("train", "dev")]
    for path in paths:
        (tmp_path / f"squad1.{path.name}").rename(path)
    monkeypatch.setitem(TASKS, "squad1", published_as("squad1", *paths))
    words = ["squad1", "--text", str(language_text), "--mirror", server.url]
    assert cli.main(["corpus", "squad", *words, "--out", str(tmp_path / "out")]) == 0
    folder = open_task(tmp_path / "out")
    assert (folder.task.name, folder.manifest["block"]) == ("squad1", 384)
