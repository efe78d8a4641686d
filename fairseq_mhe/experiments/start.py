"""Convert a trained model into the checkpoint from which another training starts."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.checkpoints.checkpoint import open_source
from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, read_json, sha256, write_json
from fairseq_mhe.common.progress import say
from fairseq_mhe.common.quiet import quiet_fairseq
from fairseq_mhe.convert.change_kind import convert
from fairseq_mhe.convert.compare import open_material


def make_start(
    output: Path, kind: str, options: Mapping[str, Any], model: Path, data: Path | None
) -> str:
    """Convert a trained ``model`` into the checkpoint ``output``; return its SHA-256.

    ``options``: "sentences" pairs of train fit the conversion, and as many of valid measure it; the
    rest are options of `convert`. UserError if ``output`` was converted otherwise.
    """
    record = output.with_name("conversion.json")
    made_of: Json = {"to": kind, **options, "model": sha256(model)}
    if record.exists():
        made = read_json(record)
        if made["made_of"] != made_of:
            problem = "was converted from another model or by other options"
            raise UserError(f"{output.parent} {problem}: choose another --out")
        return str(made["sha256"])
    say(f"converting {model} to {output}")
    output.parent.mkdir(parents=True, exist_ok=True)
    source = open_source(model)
    fitted: Any = {}
    if set(source.attention.values()) == {kind}:
        shutil.copyfile(model, output)
    else:
        fit = dict(options)
        sentences = fit.pop("sentences", 0)
        with quiet_fairseq():
            material = open_material(source, data, sentences)
            fitted = convert(output, kind, material, **fit)
    checksum = sha256(output)
    write_json(record, {"made_of": made_of, "sha256": checksum, "report": fitted})
    return checksum
