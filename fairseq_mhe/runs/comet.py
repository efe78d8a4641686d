"""COMET (Rei et al. 2020) beside BLEU, where the user has installed it: it fetches its model."""

import importlib

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import read_json, write_json
from fairseq_mhe.runs.job import Job
from fairseq_mhe.runs.scoring import read_translations

#: The model that WMT's participants report.
MODEL = "Unbabel/wmt22-comet-da"
#: In the folder of a data set's translations.
FILE = "comet.json"


def add_score(job: Job, subset: str, model: str, gpu: bool) -> None:
    """Score translations once, into comet.json; raises UserError where no model can be loaded."""
    folder = job.subset(subset)
    path = folder / FILE
    if path.exists() and read_json(path)["model"] == model:
        return
    comet = importlib.import_module("comet")
    try:
        loaded = comet.load_from_checkpoint(comet.download_model(model))
    except Exception as error:  # whatever its download or its framework raises
        raise UserError(f"COMET cannot load its model {model}: {error}") from error
    texts = read_translations(folder)
    rows = zip(texts["sources"], texts["hypotheses"], texts["references"], strict=True)
    triples = [{"src": source, "mt": output, "ref": right} for source, output, right in rows]
    system = loaded.predict(triples, batch_size=16, gpus=int(gpu)).system_score
    write_json(path, {"score": round(float(system), 4), "model": model})
