"""fairseq's encoder and decoder with their attention built by the registry, for any model."""

import argparse
from collections import defaultdict
from textwrap import shorten
from typing import Any, Self

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.base import trains_on_gpu
from fairseq_mhe.attention.cache import sentence_order
from fairseq_mhe.attention.kernel import CausalMask
from fairseq_mhe.common.cpu import keep_freed_memory
from fairseq_mhe.common.errors import ErrorExit, one_clear_line
from fairseq_mhe.models.options import build_place, check_options, draw_as_before, plain_options
from fairseq_mhe.models.packed import pack_linears
from fairseq_mhe.models.quick import quicken

#: alignment_layer that matches no layer: no attention weights are computed.
NO_LAYER = -1


class EncoderLayer(TransformerEncoderLayerBase):
    """fairseq's layer with our self-attention."""

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> Attention:
        """Called by fairseq's constructor."""
        return build_place(cfg, "encoder")


class DecoderLayer(TransformerDecoderLayerBase):
    """fairseq's layer with our self- and cross-attention."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # fairseq computes every layer's attention weights in validation, though the decoder uses
        # one layer's only and asks for it by another argument.
        self.need_attn = False

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, **_: Any
    ) -> Attention:
        """Called by fairseq's constructor."""
        return build_place(cfg, "decoder")

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> Attention:
        """Called by fairseq's constructor."""
        return build_place(cfg, "cross")

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """fairseq would set ``need_attn`` here; the decoder decides (see :class:`Decoder`)."""


def _checkpointed(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """The layer with --checkpoint-activations, as fairseq's build_encoder_layer adds it."""
    if cfg.checkpoint_activations:
        return checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    return layer


def _fold_together(stack: nn.Module, cfg: TransformerConfig) -> None:
    """Let the sublayers of each kind do together what depends on their weights alone.

    Layers that are computed again in the backward pass do it each for itself.
    """
    if cfg.checkpoint_activations:
        return
    by_kind: dict[type[Attention], list[Attention]] = defaultdict(list)
    for module in stack.modules():
        if isinstance(module, Attention):
            by_kind[type(module)].append(module)
    for kind, sublayers in by_kind.items():
        kind.fold_together(sublayers)


class Encoder(TransformerEncoderBase):
    """fairseq's encoder with our layers; its output is kept once a sentence, whatever the beam."""

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        """Called by fairseq's constructor."""
        return _checkpointed(EncoderLayer(cfg, return_fc=self.return_fc), cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Any]]:
        """As fairseq's; called by its :meth:`forward`.

        On a GPU it never asks whether anything is padded, as fairseq does in each layer: each
        question waits until the GPU has done all work before.
        """
        if not src_tokens.is_cuda:
            return super().forward_scriptable(
                src_tokens, src_lengths, return_all_hiddens, token_embeddings
            )
        if trains_on_gpu(src_tokens):
            _fold_together(self, self.cfg)
        padding = src_tokens.eq(self.padding_idx)  # (B, S)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)  # (B, S, C)
        x = x.masked_fill(padding.unsqueeze(-1), 0).transpose(0, 1)  # (S, B, C)
        states, results = [x], []
        for layer in self.layers:
            out = layer(x, encoder_padding_mask=padding)
            x, result = out if isinstance(out, tuple) else (out, None)
            states.append(x)
            results.append(result)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states if return_all_hiddens else [],
            "fc_results": results if return_all_hiddens else [],
            "src_tokens": [],
            "src_lengths": [padding.logical_not().sum(dim=1, dtype=torch.int32).unsqueeze(1)],
        }

    def reorder_encoder_out(
        self, encoder_out: dict[str, Any], new_order: Tensor
    ) -> dict[str, Any]:
        """Follow beam search without copying the output for each hypothesis.

        fairseq first calls this with every sentence repeated ``beam`` times, then with orders of
        hypotheses. ``encoder_out["beam"]`` remembers the number, and rows are selected only where
        sentences come or go.

        Args:
            encoder_out: what :meth:`forward` returned, of B sentences.
            new_order: (N,) row indices.
        """
        sentences = encoder_out["encoder_out"][0].size(1)
        if "beam" in encoder_out:
            beam = encoder_out["beam"]
        elif len(new_order) % sentences == 0:
            beam = len(new_order) // sentences
            # A sentence's first hypothesis, as if each had had ``beam`` of them before.
            new_order = new_order * beam
        else:
            beam = 1
        rows, beam = sentence_order(new_order, sentences, beam)
        reordered = (
            encoder_out if rows is None else super().reorder_encoder_out(encoder_out, rows)
        )
        return {**reordered, "beam": beam}


class Decoder(TransformerDecoderBase):
    """fairseq's decoder with our layers; attention weights are computed only for who sees them."""

    def __init__(self, cfg: TransformerConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        #: Weights are returned outside training (as fairseq does), unless fairseq-generate says
        #: they are not printed.
        self.need_attn = True
        self._causal = CausalMask(0)

    def build_decoder_layer(
        self, cfg: TransformerConfig, no_encoder_attn: bool = False
    ) -> nn.Module:
        """Called by fairseq's constructor."""
        return _checkpointed(DecoderLayer(cfg, no_encoder_attn), cfg)

    def upgrade_state_dict_named(
        self, state_dict: dict[str, Tensor], name: str
    ) -> dict[str, Tensor]:
        """As fairseq's, but an adaptive softmax is not given the output of a tied table."""
        super().upgrade_state_dict_named(state_dict, name)
        if self.adaptive_softmax is not None:
            state_dict.pop(f"{name}.output_projection.weight", None)
        return state_dict

    def buffered_future_mask(self, tensor: Tensor) -> CausalMask:
        """The causal mask (T, T) for x (T, B, C), kept from batch to batch; called by fairseq."""
        length, device = tensor.size(0), tensor.device
        if (self._causal.length, self._causal.device) != (length, device):
            self._causal = CausalMask(length, device)
        return self._causal

    def reorder_incremental_state_scripting(
        self, incremental_state: dict[str, Any], new_order: Tensor
    ) -> None:
        """Follow beam search in every layer; ``new_order``: (N,) row indices."""
        if new_order.is_inference():
            # Such a tensor does not count its changes, so that every layer would ask the device.
            with torch.inference_mode(False):
                new_order = new_order.clone()
        super().reorder_incremental_state_scripting(incremental_state, new_order)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        incremental_state: Any = None,
        alignment_layer: int | None = None,
        **options: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As fairseq's, without weights that nobody wants: (B, T, C), {"attn", "inner_states"}."""
        none = alignment_layer is None and (self.training or not self.need_attn)
        if none:
            alignment_layer = NO_LAYER
        # By this fairseq takes a mask of padding without asking the GPU whether anything is padded:
        # `CausalMask` asks, once.
        whole = prev_output_tokens.is_cuda and incremental_state is None
        if whole and torch.is_grad_enabled():
            _fold_together(self, self.cfg)
        self.cross_self_attention: bool = whole
        x, extra = super().extract_features(
            prev_output_tokens,
            incremental_state=incremental_state,
            alignment_layer=alignment_layer,
            **options,
        )
        # fairseq's scorer of given translations adds up whatever is in the list.
        return x, {**extra, "attn": None} if none else extra

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """Called before generation; ``need_attn``: alignments will be printed."""
        self.need_attn = need_attn


class AnyKind(BaseFairseqModel):
    """What our models do alike: options, building, fast generation, loading checkpoints.

    It stands before fairseq's class among a model's bases.
    """

    #: Where its attention sits: of ``options.PLACES``.
    PLACES: tuple[str, ...]

    #: The dataclass of the model's options.
    CONFIG: type[FairseqDataclass]
    #: Products of large weights in generation on a CPU, as `pack_linears` takes it.
    generation_precision = "float32"
    #: The options that it was built from.
    args: argparse.Namespace

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """The options, without defaults, so that an architecture's values apply."""
        gen_parser_from_dataclass(parser, cls.CONFIG(), delete_default=True)

    @classmethod
    def check(cls, args: Any) -> None:
        """Refuse options that cannot work. Raises ValueError as `check_options`."""
        check_options(args, cls.PLACES)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> Self:
        """Build from flat options: fairseq-train's, a checkpoint's or a hydra configuration's."""
        keep_freed_memory()
        options = plain_options(cfg)
        with one_clear_line(ValueError):
            draw_as_before(options, cls.PLACES)
            model = cls.assemble(options, task)
        model.args = options
        int8 = bool(options.int8_generation)
        model.generation_precision = (
            "int8" if int8 else options.generation_precision or "float32"
        )
        quicken(model)
        return model

    @classmethod
    def assemble(cls, options: argparse.Namespace, task: Any) -> Self:
        """The model of options that are whole."""
        raise NotImplementedError

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Called before generation, on every layer too."""
        super().make_generation_fast_(**kwargs)
        with one_clear_line(ValueError):
            pack_linears(self, self.generation_precision)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's, but a checkpoint of another kind or row is refused in one line."""
        try:
            return super().load_state_dict(*args, **kwargs)
        except RuntimeError as error:
            difference = shorten(str(error).partition("\n")[2], 200, placeholder=" ...")
            raise ErrorExit(
                f"the checkpoint is not of this model: {difference}; use the --arch, --attention "
                "and dictionary it was trained with, or another --save-dir"
            ) from None
