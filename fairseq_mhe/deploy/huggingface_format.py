"""The bundle format that Hugging Face's transformers loads with its own classes, without our code.

Marian's class holds post-norm models, Pegasus' class pre-norm models. Both classes have fairseq's
layers, load the table of positions as weights, and add a bias to the logits. The bias excludes
tokens that fairseq's dictionary lacks. Attention becomes multi-head attention (the exact fold).
"""

from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from fairseq_mhe.common.errors import UserError
from fairseq_mhe.common.files import Json, write_json, yaml_beside
from fairseq_mhe.convert.fold import folded_parameters
from fairseq_mhe.deploy.trained import WEIGHTS, Trained

_NEVER = -1e9  # as the bias of a logit it excludes a token, in every number format
_CONSTANTS = yaml_beside(__file__, "huggingface.yaml")


def write(trained: Trained, folder: Path) -> None:
    """Write all files of the format; raises UserError if no class can hold the model."""
    from fairseq_mhe.deploy.tokenizer_json import make_tokenizer

    _check(trained)
    folder.mkdir()
    dictionary = trained.task.source_dictionary
    tokenizer, rows = make_tokenizer(trained.text, dictionary)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), "utf-8")
    special = ("bos", "pad", "eos")
    tokens = {f"{name}_token": getattr(dictionary, f"{name}_word") for name in special}
    ids = {f"{name}_id": tokenizer.token_to_id(token) for name, token in tokens.items()}
    ids["decoder_start_token_id"] = ids["eos_token_id"]
    contents = {
        "config": _config(trained, len(rows)) | ids,
        "generation_config": _generation(trained, ids) | ids,
        "tokenizer_config": tokens | {"model_max_length": trained.positions[0]},
    }
    for name, content in contents.items():
        write_json(folder / f"{name}.json", _CONSTANTS[name] | content)
    weights = _weights(trained, rows)
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))


def _check(trained: Trained) -> None:
    """Raise UserError if no class of transformers holds the model."""
    options = trained.source.options
    same = {name: [options[other]] for name, other in _CONSTANTS["same"].items()}
    for name, values in (_CONSTANTS["held"] | same).items():
        if options[name] not in values:
            raise UserError(
                f"no class of transformers holds {trained.source.path}: its option {name} is "
                f"{options[name]!r}, not {' or '.join(map(repr, values))}; export in another format"
            )


@torch.no_grad()
def _weights(trained: Trained, rows: list[int | None]) -> dict[str, Tensor]:
    """Return all weights by transformers' names; ``rows`` (N) comes from `make_tokenizer`."""
    model = trained.source.model
    parameters = folded_parameters(model)
    unknown = trained.task.source_dictionary.unk()
    known_rows = torch.tensor([unknown if row is None else row for row in rows])  # (N,)
    bias = torch.tensor([_NEVER if row is None else 0.0 for row in rows])  # (N,)
    table = parameters["decoder.embed_tokens.weight"]  # (V, C)
    weights = {"final_logits_bias": bias[None], "model.shared.weight": table[known_rows]}
    for name, value in parameters.items():
        if ".layers." in name or ".layer_norm." in name:
            weights[f"model.{name}"] = value
    for name in ("encoder", "decoder"):
        side = getattr(model, name)
        no_padding = side.padding_idx + 1
        tokens = torch.full((1, trained.positions[0]), no_padding)  # (1, S)
        positions = side.embed_positions(tokens)[0]  # (S, C)
        weights[f"model.{name}.embed_positions.weight"] = positions
    return {name: value.contiguous() for name, value in weights.items()}


def _config(trained: Trained, vocabulary: int) -> Json:
    """Return config.json; each class ignores the options that only the other has."""
    options = trained.source.options
    model_type, class_name = "marian", "MarianMTModel"
    if options["decoder_normalize_before"]:
        model_type, class_name = "pegasus", "PegasusForConditionalGeneration"
    sizes = {name: options[option] for name, option in _CONSTANTS["options"].items()}
    return sizes | {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": vocabulary,
        "scale_embedding": not options["no_scale_embedding"],
        "max_position_embeddings": trained.positions[0],
    }


def _generation(trained: Trained, ids: Json) -> Json:
    """Return generation_config.json. As it has no ``max_len_a``, the positions limit the length."""
    decoding = trained.decoding
    longest = trained.positions[1] - 1
    if not decoding.max_len_a:
        longest = min(longest, decoding.max_len_b + 1)
    return {
        "num_beams": decoding.beam,
        "length_penalty": decoding.lenpen,
        "max_new_tokens": longest,
        "bad_words_ids": [[ids["pad_token_id"]]],
        "forced_eos_token_id": ids["eos_token_id"],
    }
