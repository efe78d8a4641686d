"""What each JSON file of a run folder holds, and the way to read them, whoever made the folder."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

from fairseq_mhe.common.files import read_json
from fairseq_mhe.common.forms import Form, Number
from fairseq_mhe.models.options import PLACES
from fairseq_mhe.runs.recipes import RECIPES, Training

#: sacreBLEU's tokenisers, of those that need no download: its signatures name them.
TOKENISERS = ("13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none")
_AGAIN = "delete it and run the command that made the run again, which makes it anew"
_TYPES = get_type_hints(Training)
_TRAINING = {
    f.name if f.default is MISSING else f"?{f.name}": _TYPES[f.name] for f in fields(Training)
}
_TRAINING["?precision"] = ("float32", "bf16", "fp16")
_SETTINGS = {
    "row": tuple(RECIPES),
    "attention": dict.fromkeys(PLACES, str),
    "seed": int,
    "training": _TRAINING,
    "data": {"languages": [str, str], "fingerprint": str},
    "?options": [str],
    "?start": str,
}
_SCORE = {"score": float, "confidence": float, "signature": str}
_BLEU = {**_SCORE, "signature": re.compile(rf".*\|tok:({'|'.join(TOKENISERS)}).*")}
_BLEU4 = {
    **_SCORE,
    "precisions": [float, float, float, float],
    "brevity_penalty": float,
    "length": int,
    "reference_length": int,
}
_CURVE = [[int, Number]]
CONFIG = Form(
    {"settings": _SETTINGS, "surroundings": {"?data": str, "?start": str}, "versions": {str: str}},
    "put back what it was, or remove its folder and make the run again",
)
_FORMS = {
    "metrics.json": Form(
        {
            "train": _CURVE,
            "valid": _CURVE,
            "tokens_per_second": (Number, None),
            "measured": str,
            "?ended_by_patience": int,
        },
        _AGAIN,
    ),
    "counts.json": Form(
        {
            "attention_parameters": int,
            "total_parameters": int,
            "kv_bytes_per_token": int,
            "?kv_bytes_per_source_token": int,
        },
        _AGAIN,
    ),
    "generation.json": Form(
        {"sentences": int, "sentences_per_second": float, "measured": str}, _AGAIN
    ),
    "scores.json": Form(
        {
            "bleu": _BLEU,
            "chrf": _SCORE,
            "sentences": int,
            "?tokenised": (_SCORE, None),  # older runs have none
            "?given_tokens": (_BLEU4, None),
        },
        _AGAIN,
    ),
    "comet.json": Form({"score": float, "model": str}, _AGAIN),
}


def read_result(path: Path) -> dict[str, Any]:
    """What a result's JSON file says under the names that belong there; its name tells the form.

    Raises:
        UserError: the file cannot be read, or holds something else.
    """
    form = _FORMS[path.name]
    names = {name.removeprefix("?") for name in form.shape}
    return {name: value for name, value in read_json(path, form).items() if name in names}
