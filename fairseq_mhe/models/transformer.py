"""fairseq's encoder-decoder Transformer with any attention; its stacks serve all our models."""

import argparse
import functools
from collections import defaultdict
from textwrap import shorten
from typing import Any, Self
from unittest.mock import patch

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel, register_model
from fairseq.models import transformer as stock
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_base import TransformerModelBase
from fairseq.modules import FairseqDropout, gelu, transformer_layer
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.base import trains_on_gpu
from fairseq_mhe.attention.cache import sentence_order
from fairseq_mhe.attention.kernel import CausalMask, drop
from fairseq_mhe.common.cpu import keep_freed_memory
from fairseq_mhe.common.errors import ErrorExit, one_clear_line
from fairseq_mhe.models import options as our_options
from fairseq_mhe.models.architectures import MODEL_NAME
from fairseq_mhe.models.graphs import Graphs, changing, recorder
from fairseq_mhe.models.packed import pack_linears


class EncoderLayer(transformer_layer.TransformerEncoderLayerBase):
    """fairseq's layer with our self-attention."""

    def build_self_attention(self, embed_dim: int, cfg: Any) -> Attention:
        return our_options.build_place(cfg, "encoder")


class DecoderLayer(transformer_layer.TransformerDecoderLayerBase):
    """fairseq's layer with our self- and cross-attention."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # fairseq would compute every layer's weights in validation, of which it uses one's.
        self.need_attn = False

    def build_self_attention(self, embed_dim: int, cfg: Any, **_: Any) -> Attention:
        return our_options.build_place(cfg, "decoder")

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> Attention:
        return our_options.build_place(cfg, "cross")

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """fairseq would set ``need_attn`` here; the decoder decides."""


class Encoder(stock.TransformerEncoderBase):
    """fairseq's encoder with our layers; its output is kept once a sentence, whatever the beam."""

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        with patch.object(transformer_layer, "TransformerEncoderLayerBase", EncoderLayer):
            return super().build_encoder_layer(cfg)

    def forward_scriptable(self, tokens: Tensor, *options: Any) -> Any:
        """As fairseq's, of tokens (B, S); on a GPU no layer asks whether anything is padded."""
        if not tokens.is_cuda:
            return super().forward_scriptable(tokens, *options)
        _, return_all_hiddens, embeddings = options
        padding = tokens.eq(self.padding_idx)  # (B, S)
        x, embedding = self.forward_embedding(tokens, embeddings)  # (B, S, C)
        x = x.masked_fill(padding.unsqueeze(-1), 0)
        x = x.transpose(0, 1)  # (S, B, C)
        states = [x]
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=padding)
            states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        real = padding.logical_not()
        lengths = real.sum(dim=1, dtype=torch.int32).unsqueeze(1)  # (B, 1)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states if return_all_hiddens else [],
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        """Follow beam search, by row indices (N,); rows are selected where sentences come or go.

        fairseq first repeats every sentence ``beam`` times, then orders hypotheses.
        """
        sentences = encoder_out["encoder_out"][0].size(1)
        beam = encoder_out.get("beam")
        if beam is None:
            beam = len(new_order) // sentences
            # A sentence's first hypothesis, as if each had had ``beam`` of them before.
            new_order = new_order * beam
        rows, beam = sentence_order(new_order, sentences, beam)
        if rows is not None:
            encoder_out = super().reorder_encoder_out(encoder_out, rows)
        return {**encoder_out, "beam": beam}


class Decoder(stock.TransformerDecoderBase):
    """fairseq's decoder with our layers; attention weights are computed only for who sees them."""

    def __init__(self, cfg: TransformerConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(cfg, *args, **kwargs)
        # As fairseq's outside training, until fairseq-generate says that they are not printed.
        self.need_attn = True
        self.causal = CausalMask(0)

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        with patch.object(transformer_layer, "TransformerDecoderLayerBase", DecoderLayer):
            return super().build_decoder_layer(cfg, no_encoder_attn)

    def buffered_future_mask(self, tensor: Tensor) -> CausalMask:
        """The causal mask (T, T) for x (T, B, C), kept from batch to batch; called by fairseq."""
        length, device = tensor.size(0), tensor.device
        if (self.causal.length, self.causal.device) != (length, device):
            self.causal = CausalMask(length, device)
        return self.causal

    def reorder_incremental_state_scripting(self, state: Any, new_order: Tensor) -> None:
        """Follow beam search in every layer; ``new_order``: (N,) row indices."""
        if new_order.is_inference():
            # Such a tensor does not count its changes, so that every layer would ask the device.
            with torch.inference_mode(False):
                new_order = new_order.clone()
        for sublayer in self._cached:
            sublayer.reorder_incremental_state(state, new_order)

    @functools.cached_property
    def _cached(self) -> list[Any]:
        """What has a cache; fairseq looks through all modules in each step of a search."""
        return [
            module
            for module in self.layers.modules()
            if hasattr(module, "reorder_incremental_state")
        ]

    def extract_features(
        self, tokens: Tensor, incremental_state: Any = None, **options: Any
    ) -> tuple[Tensor, Any]:
        """As fairseq's: tokens (B, T) -> (B, T, C), {"attn", "inner_states"}."""
        layer = options.pop("alignment_layer", None)
        none = layer is None and (self.training or not self.need_attn)
        # So fairseq does not ask the GPU whether anything is padded: `CausalMask` does, once.
        self.cross_self_attention: bool = tokens.is_cuda and incremental_state is None
        options["alignment_layer"] = -1 if none else layer  # -1 is no layer
        options["incremental_state"] = incremental_state
        x, extra = super().extract_features(tokens, **options)
        # fairseq's scorer of given translations adds up whatever is in the list.
        return x, {**extra, "attn": None} if none else extra

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """Called before generation; ``need_attn``: alignments will be printed."""
        self.need_attn = need_attn


def quick_gelu(x: Tensor) -> Tensor:
    """GELU (Hendrycks and Gimpel 2016, arXiv 1606.08415) of x (any shape).

    Of bfloat16 torch's own, in a fifth of the time: values are fairseq's to the bit, gradients to
    the bit or, on CPUs without AVX-512, to float32's rounding.
    """
    return F.gelu(x) if x.dtype == torch.bfloat16 else gelu(x)


class QuickDropout(FairseqDropout):
    """fairseq's; in bfloat16 by `drop`, which draws masks quickly on a CPU."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        active = self.p > 0 and (self.training or self.apply_during_inference)
        return drop(x, self.p) if active else x


def _quicken(model: nn.Module) -> None:
    """Replace fairseq's GELU and dropout, which copy bfloat16 to float32 first."""
    module: Any
    for module in model.modules():
        if getattr(module, "activation_fn", None) is gelu:
            module.activation_fn = quick_gelu
        if type(module) is FairseqDropout:
            module.__class__ = QuickDropout


#: Inputs of a model, if it has them, whose shapes are those of a batch.
_TOKENS = "src_tokens", "prev_output_tokens"


class AnyKind(BaseFairseqModel):
    """What our models do alike; it stands before fairseq's class among a model's bases."""

    PLACES: tuple[str, ...]  # of its attention, some of options.PLACES
    CONFIG: type[FairseqDataclass]  # of its options
    args: argparse.Namespace  # that it was built from
    generation_precision = "float32"  # as of pack_linears

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Without defaults, so that an architecture's values apply."""
        gen_parser_from_dataclass(parser, cls.CONFIG(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> Self:
        """Build from flat options: fairseq-train's, a checkpoint's or a hydra configuration's."""
        keep_freed_memory()
        options = our_options.plain_options(cfg)
        with one_clear_line(ValueError):
            # Weights of a seed, and numbers in results/, depend on these draws of version 0.2.
            for place in (*cls.PLACES, *cls.PLACES):
                our_options.build_place(options, place)
            name = changing(vars(options))
            if name and getattr(options, "cuda_graphs", False):
                both = f"--cuda-graphs and --{name.replace('_', '-')}"
                raise ValueError(f"{both} do not go together: leave one out")
            model = cls.assemble(options, task)
        model.args = options
        precision = "int8" if options.int8_generation else options.generation_precision
        model.generation_precision = precision or "float32"
        _quicken(model)
        return model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's; in training on a GPU by a graph, or first what depends on weights alone."""
        if self._is_for_graphs(args, kwargs):
            tokens = [kwargs[name] for name in _TOKENS if name in kwargs]
            features = self._graphs(*tokens)
            if features is not None:
                return self.decoder.output_layer(features), {"attn": None}
        # Not where layers are computed again in the backward pass.
        again = getattr(self.args, "checkpoint_activations", False)
        if not again and trains_on_gpu(next(self.parameters())):
            for sublayers in self._alike:
                sublayers[0].fold_together(sublayers)
        return super().forward(*args, **kwargs)

    def _is_for_graphs(self, args: Any, kwargs: Any) -> bool:
        """Whether `Graphs` take a batch: in training, if no more than its tokens is given."""
        asked = self.training and getattr(self.args, "cuda_graphs", False)
        plain = not args and kwargs.keys() <= {*_TOKENS, "src_lengths"}
        # Which keeps copies of weights; fairseq's NanDetector, which looks into layers.
        whole = not (torch.is_autocast_enabled() or self._forward_hooks)
        return asked and plain and whole and trains_on_gpu(next(self.parameters()))

    @functools.cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self, self._features, recorder())

    def __getstate__(self) -> dict[str, Any]:
        """What is copied (--store-ema): graphs are of one model's memory."""
        state = vars(self).copy()
        state.pop("_graphs", None)
        return state

    def _features(self, *tokens: Tensor) -> Tensor:
        """tokens (B, S) and (B, T), or (B, T) alone, padded on the right -> (B, T, C)."""
        inputs = dict(zip(_TOKENS, tokens, strict=False))
        last = tokens[-1]
        mask = CausalMask(last.size(1), last.device, right_padded=True)
        with patch.object(self.decoder, "causal", mask):  # its tensors are not for others
            features, _ = self(**inputs, src_lengths=None, features_only=True)
        return features

    @functools.cached_property
    def _alike(self) -> list[list[Attention]]:
        """Sublayers of one kind whose weights have the same shapes."""
        alike: dict[Any, list[Attention]] = defaultdict(list)
        for module in self.modules():
            if isinstance(module, Attention):
                shapes = [parameter.shape for parameter in module.parameters()]
                alike[type(module), *shapes].append(module)
        return list(alike.values())

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        """The model of options that are whole, by fairseq's own function with our parts."""
        return super().build_model(options, task)

    def make_generation_fast_(self, **kwargs: Any) -> None:
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


# Without its dataclass, with whose defaults fairseq would fill a hydra configuration too early.
@register_model(MODEL_NAME)
class TransformerMHEModel(AnyKind, TransformerModelBase):
    """fairseq's encoder-decoder Transformer with any of ``KINDS`` as its attention."""

    PLACES = tuple(our_options.PLACES)
    CONFIG = our_options.TransformerMHEConfig

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        return super().assemble(TransformerConfig.from_namespace(options), task)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> Encoder:
        return Encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> Decoder:
        return Decoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )
