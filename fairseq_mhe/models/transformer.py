"""fairseq's Transformer with our attention; the language models reuse its encoder and decoder."""

from typing import Any, Self

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models import transformer as stock
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer.transformer_base import TransformerModelBase
from fairseq.modules import transformer_layer
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_mhe.attention import Attention
from fairseq_mhe.attention.cache import sentence_order
from fairseq_mhe.attention.masks import CausalMask, padded_on_the_right
from fairseq_mhe.models.architectures import MODEL_NAME
from fairseq_mhe.models.configs import TransformerMHEConfig
from fairseq_mhe.models.decoding_graphs import (
    LEASE,
    DecodingGraphs,
    generates_by_graphs,
    leave_graphs,
)
from fairseq_mhe.models.model import MHEModel
from fairseq_mhe.models.options import PLACES, build_sublayer


class EncoderLayer(transformer_layer.TransformerEncoderLayerBase):
    """fairseq's encoder layer with our self-attention."""

    def build_self_attention(self, embed_dim: int, cfg: Any) -> Attention:
        return build_sublayer(cfg, "encoder")


class DecoderLayer(transformer_layer.TransformerDecoderLayerBase):
    """fairseq's decoder layer with our self- and cross-attention."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # If True, every layer computes attention weights in validation; fairseq uses one layer's.
        self.need_attn = False

    def build_self_attention(self, embed_dim: int, cfg: Any, **_: Any) -> Attention:
        return build_sublayer(cfg, "decoder")

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> Attention:
        return build_sublayer(cfg, "cross")

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Ignore fairseq's call, which would set ``need_attn``: `Decoder` chooses the layer."""


def _wrapped(layer: nn.Module, cfg: TransformerConfig) -> nn.Module:
    """Add activation checkpointing and FSDP to a layer, as fairseq's ``build_*_layer`` do."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    smallest = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    return fsdp_wrap(layer, min_num_params=smallest)


class Encoder(stock.TransformerEncoderBase):
    """fairseq's encoder with our layers; in beam search its output has one row per sentence."""

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        return _wrapped(EncoderLayer(cfg, return_fc=self.return_fc), cfg)

    def forward_scriptable(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> Any:
        """Encode (B, S) as fairseq does, but the host does not wait for a GPU in each call."""
        padding = src_tokens.eq(self.padding_idx)  # (B, S)
        x, embedding = self.forward_embedding(src_tokens, token_embeddings)  # (B, S, C)
        x = x.masked_fill(padding.unsqueeze(-1), 0)
        x = x.transpose(0, 1)  # (S, B, C)
        states = [x]
        hidden = padding if src_tokens.is_cuda or padding.any() else None
        for layer in self.layers:
            x = layer(x, encoder_padding_mask=hidden)
            states.append(x)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        lengths = padding.logical_not().sum(1, keepdim=True, dtype=torch.int32)  # (B, 1)
        return {
            "encoder_out": [x],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": states if return_all_hiddens else [],
            "src_tokens": [],
            "src_lengths": [lengths],
        }

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        """Reorder by row indices (N,) of beam search; rows are copied only if sentences change.

        fairseq's first call repeats each sentence ``beam`` times; later calls order hypotheses.
        """
        sentences = encoder_out["encoder_out"][0].size(1)
        beam = encoder_out.get("beam")
        if beam is None:
            beam = len(new_order) // sentences
            # Turn indices of sentences into the indices of their first hypotheses.
            new_order = new_order * beam
        rows, beam = sentence_order(new_order, sentences, beam)
        if rows is not None:
            encoder_out = super().reorder_encoder_out(encoder_out, rows)
        return {**encoder_out, "beam": beam}


class Decoder(stock.TransformerDecoderBase):
    """fairseq's decoder with our layers; it computes attention weights only if they are used."""

    _decoding_graphs: DecodingGraphs | None = None

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        """``cfg``: fairseq's nested configuration, or the flat options of a language model."""
        super().__init__(TransformerConfig.from_namespace(cfg), *args, **kwargs)
        # Like fairseq, return attention weights in evaluation until generation turns them off.
        self.need_attn = True

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return _wrapped(DecoderLayer(cfg, no_encoder_attn), cfg)

    def reorder_incremental_state_scripting(self, state: Any, new_order: Tensor) -> None:
        """Reorder the cache of every sublayer by the row indices ``new_order`` (N,)."""
        if lease := state.get(LEASE):
            lease.step.reorder(new_order)
            return
        for sublayer in self.sublayers_with_cache:
            sublayer.reorder_incremental_state(state, new_order)

    @property
    def sublayers_with_cache(self) -> list[Any]:
        """The sublayers that have a cache; fairseq searches all modules in each decoding step."""
        names = "self_attn", "encoder_attn"
        sublayers = [
            getattr(layer, name, None) for layer in self.layers for name in names
        ]
        return [sublayer for sublayer in sublayers if sublayer is not None]

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Any = None,
        features_only: bool = False,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        **options: Any,
    ) -> tuple[Tensor, Any]:
        """Run fairseq's forward pass; in generation on a GPU replay a graph if one fits.

        ``options``: see `extract_features`. fairseq does not use ``src_lengths`` and
        ``return_all_hiddens``: the inner states are always returned.
        """
        searches = incremental_state is not None and not (options or features_only)
        if searches and generates_by_graphs(self, prev_output_tokens):
            if self._decoding_graphs is None:
                self._decoding_graphs = DecodingGraphs(self)
            logits = self._decoding_graphs(
                prev_output_tokens, encoder_out, incremental_state
            )
            if logits is not None:
                return logits, {"attn": None}
        elif incremental_state is not None:
            leave_graphs(incremental_state, prev_output_tokens.size(1))
        x, extra = self.extract_features(
            prev_output_tokens, encoder_out, incremental_state, **options
        )
        return x if features_only else self.output_layer(x), extra

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any = None,
        incremental_state: Any = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
        positions: Tensor | None = None,
        right_padded: bool = False,
    ) -> tuple[Tensor, Any]:
        """Decode tokens (B, T) into features (B, T, C) and {"attn", "inner_states"}, as fairseq.

        Args:
            full_context_alignment: let queries look at later positions, too.
            alignment_layer, alignment_heads: return the mean weights of so many heads of this layer
                (default: all heads of the last layer, if weights are used at all).
            positions: embedded positions (B or 1, T, C) in place of those of the tokens.
            right_padded: the caller promises that padding is only on the right; nobody checks it.
        """
        memory, memory_padding = None, None  # (S, B, C), (B, S)
        if encoder_out is not None:
            (memory,) = encoder_out["encoder_out"]
            (memory_padding,) = encoder_out["encoder_padding_mask"]
        needs_weights = self.need_attn and not self.training
        if alignment_layer is None and needs_weights:
            alignment_layer = self.num_layers - 1

        if positions is None and self.embed_positions is not None:
            positions = self.embed_positions(
                prev_output_tokens, incremental_state=incremental_state
            )
        decodes = incremental_state is not None
        if decodes:
            prev_output_tokens = prev_output_tokens[:, -1:]
            positions = None if positions is None else positions[:, -1:]
        x = self._embed(prev_output_tokens, positions).transpose(0, 1)  # (T, B, C)

        causal = not decodes and not full_context_alignment
        mask = CausalMask(len(x), x.device) if causal else None
        padding = None
        if not (right_padded and (causal or decodes)):
            padding = self._padding(prev_output_tokens, causal)
        inner_states, attn = [x], None
        for index, layer in enumerate(self.layers):
            needed = index == alignment_layer
            x, weights, _ = layer(
                x,
                memory,
                memory_padding,
                incremental_state,
                self_attn_mask=mask,
                self_attn_padding_mask=padding,
                need_attn=needed,
                need_head_weights=needed,
            )
            inner_states.append(x)
            if needed and weights is not None:  # (H, B, T, S)
                attn = weights.float().to(x)[:alignment_heads].mean(dim=0)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x.transpose(0, 1)  # (B, T, C)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        # fairseq's SequenceScorer adds up attn[0] of several models, but skips a model's None.
        no_weights = alignment_layer is None
        return x, {"attn": None if no_weights else [attn], "inner_states": inner_states}

    def _embed(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        """Return the input of the first layer: (B, T), (B or 1, T, C) -> (B, T, C)."""
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if positions is not None:
            x = x + positions
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        embedded: Tensor = self.dropout_module(x)
        return embedded

    def _padding(self, tokens: Tensor, causal: bool) -> Tensor | None:
        """Return where tokens (B, T) are padding, (B, T), or None if no token could see it.

        In training the host does not wait for a GPU to learn this: layers there get a mask.
        """
        padding = tokens.eq(self.padding_idx)
        if causal:
            unseen = not tokens.is_cuda and padded_on_the_right(padding)
        else:
            unseen = not padding.any()
        return None if unseen else padding

    def upgrade_state_dict_named(
        self, state_dict: dict[str, Any], name: str
    ) -> dict[str, Any]:
        """Load old checkpoints as fairseq does.

        With --adaptive-softmax-cutoff there is no output projection, but fairseq adds its weight if
        input and output share a table. Then the model could not load its own checkpoint.
        """
        super().upgrade_state_dict_named(state_dict, name)
        if self.adaptive_softmax is not None:
            state_dict.pop(f"{name}.output_projection.weight", None)
        return state_dict

    def make_generation_fast_(self, need_attn: bool = False, **kwargs: Any) -> None:
        """Return attention weights from now on only if ``need_attn`` (--print-alignment)."""
        self.need_attn = need_attn
        self._decoding_graphs = None  # its layers compute in another way from now on


# Registered without CONFIG: fairseq would apply its defaults before the architecture's values.
@register_model(MODEL_NAME)
class TransformerMHEModel(MHEModel, TransformerModelBase):
    """fairseq's encoder-decoder Transformer with any of ``KINDS`` as its attention."""

    PLACES = tuple(PLACES)
    CONFIG = TransformerMHEConfig

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        return super().assemble(TransformerConfig.from_namespace(options), task)

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> Encoder:
        return Encoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> Decoder:
        return Decoder(cfg, tgt_dict, embed_tokens, cfg.no_cross_attention)
