"""The version of what run and data folders hold: a folder of another version is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_mhe.common.errors import UserError

#: Raised by whoever changes what the files of these folders hold.
FOLDER_VERSION = 3


def check_folder_version(folder: Path, content: Mapping[str, Any], advice: str) -> None:
    """See that a folder's config.json or manifest.json is of this version.

    Args:
        folder: the folder, for the message.
        content: what its file holds.
        advice: what to do with a folder of another version.

    Raises:
        UserError: the file is of another version.
    """
    if content.get("folder_version") != FOLDER_VERSION:
        raise UserError(f"{folder} was made by another version of fairseq-mhe: {advice}")
