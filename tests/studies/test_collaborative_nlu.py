"""collaborative-nlu accepts only fine-tunings of one model."""

from pathlib import Path

import pytest

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import FOLDER_VERSION, write_json
from studies.collaborative_nlu import Options, run


def test_runs_of_other_models_are_refused(tmp_path: Path) -> None:
    """A pattern like RUNS/*-rte-seed* would mix the runs of all kinds in one mean."""
    for kind in ("mha", "mhe_mul"):
        settings = {"task": "rte", "seed": 1, "start": kind}
        config = {"folder_version": FOLDER_VERSION, "settings": settings}
        write_json(tmp_path / kind / "config.json", config)
    options = Options(runs=[tmp_path / "mha", tmp_path / "mhe_mul"], out=tmp_path / "out")
    with pytest.raises(UserError, match="start from different models"):
        run(options, "")
    assert not options.out.exists()
