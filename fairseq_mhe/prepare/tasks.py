"""The tasks of GLUE, SuperGLUE and SQuAD: columns, labels, metrics.

Wang et al. 2018 (arXiv 1804.07461) and 2019 (arXiv 1905.00537), Rajpurkar et al. 2016 (1606.05250)
and 2018 (1806.03822).
"""

from dataclasses import dataclass
from functools import partial

# What a task asks for.
CLASSES = "classes"  #: a class, or a number, of one or two texts
CHOICE = "choice"  #: which of two texts goes with a third
WORDS = "words"  #: a class of two marked spans
CANDIDATES = "candidates"  #: which candidate fills a gap
ANSWERS = "answers"  #: an answer within a passage


@dataclass(frozen=True)
class Task:
    """One task.

    ``folder``: its name in the official archive; ``columns``: of its texts; ``labels``: all that
    there are, in the order of classes, or None where a number is predicted; ``metrics``: names of
    `runs.understanding`, the mean of which is the task's score; ``label``: column; ``scored``: the
    official names of the sets that are scored; ``header``: columns of a file without a header;
    ``form``: what is asked for.
    """

    name: str
    folder: str
    columns: tuple[str, ...]
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...] = ("accuracy",)
    label: str = "label"
    scored: tuple[str, ...] = ("dev",)
    header: tuple[str, ...] = ()
    suite: str = "glue"
    form: str = CLASSES

    @property
    def suffix(self) -> str:
        """Of its files' names."""
        return {"superglue": ".jsonl", "squad": ".json"}.get(self.suite, ".tsv")

    @property
    def subsets(self) -> dict[str, str]:
        """fairseq's name of each scored set -> the official one."""
        return dict(zip(("valid", "valid1"), self.scored, strict=False))


_BINARY, _TRUE = ("0", "1"), ("false", "true")
_ENTAILS = ("not_entailment", "entailment")
_THREE = ("contradiction", "neutral", "entailment")
_SENTENCE, _PAIR = ("sentence",), ("sentence1", "sentence2")
_PREMISE, _CHOICES = ("premise", "hypothesis"), ("premise", "choice1", "choice2")
_COLA = ("source", "label", "mark", "sentence")
_MATCHED = ("dev_matched", "dev_mismatched")
_F1, _EXACT = ("f1", "accuracy"), ("f1", "exact")
_superglue = partial(Task, suite="superglue", scored=("val",))
_squad = partial(Task, labels=None, metrics=("f1",), suite="squad", form=ANSWERS)
_TASKS = (
    Task("cola", "CoLA", _SENTENCE, _BINARY, ("matthews",), header=_COLA),
    Task("sst2", "SST-2", _SENTENCE, _BINARY),
    Task("mrpc", "MRPC", ("#1 String", "#2 String"), _BINARY, _F1, "Quality"),
    Task("qqp", "QQP", ("question1", "question2"), _BINARY, _F1, "is_duplicate"),
    Task("stsb", "STS-B", _PAIR, None, ("pearson", "spearman"), "score"),
    Task("mnli", "MNLI", _PAIR, _THREE, label="gold_label", scored=_MATCHED),
    Task("qnli", "QNLI", ("question", "sentence"), _ENTAILS),
    Task("rte", "RTE", _PAIR, _ENTAILS),
    Task("wnli", "WNLI", _PAIR, _BINARY),
    _superglue("boolq", "BoolQ", ("passage", "question"), _TRUE),
    _superglue("cb", "CB", _PREMISE, _THREE, ("macro_f1", "accuracy")),
    _superglue("copa", "COPA", _CHOICES, _BINARY, form=CHOICE),
    _superglue("multirc", "MultiRC", ("passage", "answer"), _BINARY, ("f1", "exact_groups")),
    _superglue("record", "ReCoRD", ("passage", "query"), _BINARY, _EXACT, form=CANDIDATES),
    _superglue("superglue_rte", "RTE", _PREMISE, _ENTAILS),
    _superglue("wic", "WiC", _PAIR, _TRUE, form=WORDS),
    _superglue("wsc", "WSC", ("text",), _TRUE, form=WORDS),
    # The score is F1, as in the paper's table.
    _squad("squad1", "SQuAD", ("question", "context")),
    _squad("squad2", "SQuAD", ("question", "context")),
    # Of the embedded corpus, for a first look (`corpora.home_assistant`).
    Task(
        name="integration",
        folder="",
        columns=("message",),
        labels=(
            *("home_connect", "knx", "midea", "miele", "mqtt"),
            *("roborock", "sofar", "teslemetry", "victron_gx", "zha"),
        ),
        label="integration",
        suite="home_assistant",
    ),
)
TASKS = {task.name: task for task in _TASKS}
