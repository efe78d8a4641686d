"""The tasks of GLUE, SuperGLUE and SQuAD: columns, labels, metrics.

Wang et al. 2018 (arXiv 1804.07461) and 2019 (arXiv 1905.00537), Rajpurkar et al. 2016 (1606.05250)
and 2018 (1806.03822).
"""

from dataclasses import dataclass

# What a task asks for.
CLASSES = "classes"  #: a class, or a number, of one or two texts
CHOICE = "choice"  #: which of two texts goes with a third
WORDS = "words"  #: a class of two marked spans
CANDIDATES = "candidates"  #: which candidate fills a gap
ANSWERS = "answers"  #: an answer within a passage
#: The text (0 or 1) that a span is in, its first character, and the one after its last.
Span = tuple[int, int, int]


@dataclass(frozen=True)
class Example:
    """One input of one to three texts, and its label.

    ``group``: what is scored together, if any; ``spans``: what is marked; ``candidate``: what fills
    the gap.
    """

    texts: tuple[str, ...]
    label: str
    group: str = ""
    spans: tuple[Span, ...] = ()
    candidate: str = ""


@dataclass(frozen=True)
class Task:
    """One task.

    ``folder``: its name in the official archive; ``columns``: of its texts; ``label``: column;
    ``labels``: all that there are, in the order of classes, or None where a number is predicted;
    ``metrics``: names of `runs.metrics`, the mean of which is the task's score; ``scored``: the
    official names of the sets that are scored; ``header``: columns of a file without a header;
    ``form``: what is asked for.
    """

    name: str
    folder: str
    columns: tuple[str, ...]
    label: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    scored: tuple[str, ...] = ("dev",)
    header: tuple[str, ...] = ()
    suite: str = "glue"
    form: str = CLASSES

    @property
    def suffix(self) -> str:
        """Of its files' names."""
        return {"superglue": ".jsonl", "squad": ".json"}.get(self.suite, ".tsv")


def _superglue(
    name: str,
    folder: str,
    columns: tuple[str, ...],
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("accuracy",),
    form: str = CLASSES,
) -> Task:
    """A task of SuperGLUE."""
    return Task(
        name, folder, columns, "label", labels, metrics, ("val",), suite="superglue", form=form
    )


_BINARY, _TRUE = ("0", "1"), ("false", "true")
_ENTAILS = ("not_entailment", "entailment")
_PAIR = ("sentence1", "sentence2")
_THREE = ("contradiction", "neutral", "entailment")
_TASKS = (
    Task(
        "cola",
        "CoLA",
        ("sentence",),
        "label",
        _BINARY,
        ("matthews",),
        header=("source", "label", "mark", "sentence"),
    ),
    Task("sst2", "SST-2", ("sentence",), "label", _BINARY, ("accuracy",)),
    Task("mrpc", "MRPC", ("#1 String", "#2 String"), "Quality", _BINARY, ("f1", "accuracy")),
    Task("qqp", "QQP", ("question1", "question2"), "is_duplicate", _BINARY, ("f1", "accuracy")),
    Task("stsb", "STS-B", _PAIR, "score", None, ("pearson", "spearman")),
    Task(
        "mnli",
        "MNLI",
        _PAIR,
        "gold_label",
        _THREE,
        ("accuracy",),
        scored=("dev_matched", "dev_mismatched"),
    ),
    Task("qnli", "QNLI", ("question", "sentence"), "label", _ENTAILS, ("accuracy",)),
    Task("rte", "RTE", _PAIR, "label", _ENTAILS, ("accuracy",)),
    Task("wnli", "WNLI", _PAIR, "label", _BINARY, ("accuracy",)),
    _superglue("boolq", "BoolQ", ("passage", "question"), _TRUE),
    _superglue("cb", "CB", ("premise", "hypothesis"), _THREE, ("macro_f1", "accuracy")),
    _superglue("copa", "COPA", ("premise", "choice1", "choice2"), _BINARY, form=CHOICE),
    _superglue("multirc", "MultiRC", ("passage", "answer"), _BINARY, ("f1", "exact_groups")),
    _superglue("record", "ReCoRD", ("passage", "query"), _BINARY, ("f1", "exact"), CANDIDATES),
    _superglue("superglue_rte", "RTE", ("premise", "hypothesis"), _ENTAILS),
    _superglue("wic", "WiC", _PAIR, _TRUE, form=WORDS),
    _superglue("wsc", "WSC", ("text",), _TRUE, form=WORDS),
    # The score is F1, as in the paper's table.
    *(
        Task(name, "SQuAD", ("question", "context"), "", None, ("f1",), suite="squad", form=ANSWERS)
        for name in ("squad1", "squad2")
    ),
    # Of the embedded corpus, for a first look (`corpora.home_assistant_language`).
    Task(
        "integration",
        "integration",
        ("message",),
        "integration",
        (
            *("home_connect", "knx", "midea", "miele", "mqtt"),
            *("roborock", "sofar", "teslemetry", "victron_gx", "zha"),
        ),
        ("accuracy",),
        suite="home_assistant",
    ),
)
TASKS = {task.name: task for task in _TASKS}
