"""Small checkpoints of every kind of attention, random and briefly trained, and a small data folder for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import indexed_dataset
from torch import nn

from fairseq_mhe.attention import VARIANTS
from fairseq_mhe.convert.checkpoint import Source, open_source
from tests.models.conftest import SIZES, make_dictionary, make_model

#: Kinds that have an exact stock form whatever their sizes.
FOLDABLE = tuple(kind for kind in VARIANTS if kind != "collaborative")
SENTENCES = 60
UPDATES = 60


def flat_options(**options: Any) -> dict[str, Any]:
    """The options of ``make_model(**options)``, as a checkpoint holds them."""
    decoder = {name.replace("encoder", "decoder"): value for name, value in SIZES.items()}
    return {"_name": "transformer_mhe_base", **SIZES, **decoder, "share_all_embeddings": True, **options}


def save(path: Path, model: nn.Module, updates: int = 7, half: torch.dtype | None = None, **options: Any) -> Path:
    """A checkpoint of ``make_model(**options)``, as fairseq-train writes it."""
    weights = {name: value.to(half) if half else value for name, value in model.state_dict().items()}
    cfg = {"model": flat_options(**options), "task": {"_name": "translation"}, "common": {"user_dir": "somewhere"}}
    names = {"lr_scheduler_state": {}, "optimizer_name": "FairseqAdam", "criterion_name": "CrossEntropyCriterion"}
    history = [{**names, "num_updates": updates}]
    extra = {"train_iterator": {"epoch": 1}}
    state = {"args": None, "cfg": cfg, "model": weights, "optimizer_history": history, "extra_state": extra}
    torch.save({**state, "task_state": {}}, path)
    return path


def stir(model: nn.Module, seed: int = 1) -> nn.Module:
    """Make everything that starts at zero, or nearly, matter: biases, head embeddings, content terms, layer norms."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def learnable_batch(sentences: int = 16, seed: int = 0) -> dict[str, torch.Tensor]:
    """Sentences of 2 to 9 words to be copied, padded on the right: src_tokens (B, S) with target (B, S)."""
    generator = torch.Generator().manual_seed(seed)
    dictionary = make_dictionary()
    source = torch.full((sentences, 10), dictionary.pad())
    target = torch.full((sentences, 10), dictionary.pad())
    for row in range(sentences):
        words = torch.randint(4, len(dictionary), (2 + row % 8,), generator=generator)
        end = torch.tensor([dictionary.eos()])
        source[row, : len(words) + 1] = torch.cat((words, end))
        target[row, : len(words) + 1] = torch.cat((end, words))
    return {"src_tokens": source, "src_lengths": source.ne(dictionary.pad()).sum(1), "prev_output_tokens": target}


@functools.cache
def trained(**options: Any) -> nn.Module:
    """A model after some updates of copying sentences; it is shared, so that tests must not change it."""
    model = make_model(**options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    losses = []
    for update in range(UPDATES):
        batch = learnable_batch(seed=update)
        logits = model(**batch)[0]  # (B, T, vocabulary)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["src_tokens"].flatten(), ignore_index=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.3, "nothing was learned, so that these are no trained weights"
    return model.eval()


@pytest.fixture
def make_source(tmp_path: Path) -> Callable[..., Source]:
    """Opens the checkpoint of a random (default) or trained model, ``stirred`` or as it is."""

    def make(name: str = "source.pt", learned: bool = False, stirred: bool = True, **options: Any) -> Source:
        half = options.pop("half", None)
        model = trained(**options) if learned else make_model(**options)
        if stirred and not learned:
            stir(model)
        return open_source(save(tmp_path / name, model, half=half, **options))

    return make


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fairseq-preprocess would make of ``SENTENCES`` pairs for each split, of 1 to 9 words."""
    folder = tmp_path_factory.mktemp("data")
    dictionary = make_dictionary()
    generator = torch.Generator().manual_seed(3)
    for language in ("en", "de"):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    for split in ("train", "valid", "test"):
        sentences = [
            torch.cat((torch.randint(4, len(dictionary), (1 + i % 9,), generator=generator), torch.tensor([2])))
            for i in range(SENTENCES)
        ]
        for language in ("en", "de"):
            prefix = folder / f"{split}.en-de.{language}"
            builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(dictionary))
            for sentence in sentences:
                builder.add_item(sentence)
            builder.finalize(f"{prefix}.idx")
    return folder
