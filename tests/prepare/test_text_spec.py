"""One description of the text is stored and read again, also from folders of before."""

import json
import shutil
from pathlib import Path

from fairseq_mhe.prepare.data_folder import open_data
from fairseq_mhe.prepare.text_spec import TextSpec
from tests.fixtures.small_runs import SMALL

SPEC = TextSpec("en", "de", "moses", "bpe", punctuation=True)


def test_a_folder_of_version_0_2_has_its_spec(tmp_path: Path) -> None:
    assert open_data(SMALL / "data").spec == TextSpec("en", "de", "moses", "bpe")
    folder = shutil.copytree(SMALL / "data", tmp_path / "data")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["options"] |= {"punctuation": True, "lowercase": False}  # as version 0.3 has them
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert open_data(folder).spec == SPEC
