"""Counting parameters and caches in models that are really built, for ``fairseq-mhe params``.

``python -m fairseq_mhe.experiments.row_counts`` counts again and writes parameters.json.
"""

from typing import Any

from fairseq_mhe.attention import KINDS
from fairseq_mhe.common.files import write_json
from fairseq_mhe.experiments.params import STORED, modules_of_kinds
from fairseq_mhe.models.architectures import ROWS, SMALL_ROWS
from fairseq_mhe.models.build import SETTINGS, VOCABULARY, build_on_meta, build_setting
from fairseq_mhe.models.counting import attention_parameters, cache_bytes, total_parameters
from fairseq_mhe.models.options import size_options


def count_all() -> dict[str, Any]:
    """The content of parameters.json."""
    return {
        "modules": modules_of_kinds(),
        "vocabulary": VOCABULARY,
        "rows": {row: {kind: _of_row(row, kind) for kind in KINDS} for row in (*ROWS, *SMALL_ROWS)},
        "settings": {setting: _of_setting(setting) for setting in SETTINGS},
    }


def _of_row(row: str, kind: str) -> dict[str, int]:
    """Parameters of the attention and of all but the words' embeddings; bytes of the cache."""
    model: Any = build_on_meta(row, kind, VOCABULARY)
    cache = cache_bytes(model)
    width = model.decoder.embed_tokens.embedding_dim
    return {
        "attention": attention_parameters(model),
        "without_words": total_parameters(model) - VOCABULARY * width,
        "width": width,
        "per_target_token": cache.per_target_token,
        "per_source_token": cache.per_source_token,
    }


def _of_setting(setting: str) -> dict[str, Any]:
    """A setting's sizes, its kinds' own sizes, and the attention parameters of each kind."""
    size = SETTINGS[setting]
    own = [
        f"{kind}: {option.name} {getattr(build_setting(setting, kind)[0], option.name)}"
        for option, kinds in size_options().values()
        for kind in kinds
    ]
    return {
        "sizes": f"{size.sublayers} sublayers, width {size.embed_dim}, {size.heads} heads",
        "own": ", ".join(own),
        "sublayers": size.sublayers,
        "attention": {kind: attention_parameters(build_setting(setting, kind)) for kind in KINDS},
    }


if __name__ == "__main__":
    write_json(STORED, count_all())
