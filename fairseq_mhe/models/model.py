"""The base of our models: their options, building, training by CUDA graphs, loading."""

import argparse
from textwrap import shorten
from typing import Any, Self

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import BaseFairseqModel
from fairseq.modules import FairseqDropout, gelu
from torch import Tensor, nn
from torch.nn import functional as F

from fairseq_mhe.attention.few_shapes import Linear
from fairseq_mhe.attention.fused import drop
from fairseq_mhe.attention.generation import use_generation_form
from fairseq_mhe.common.errors import UserError, one_clear_line
from fairseq_mhe.models import graphs
from fairseq_mhe.models.configs import plain_options
from fairseq_mhe.models.packed import pack_linears

#: Our classes -> the names under which --retain-dropout-modules knows fairseq's.
_STOCK_NAMES = {
    "Encoder": "TransformerEncoder",
    "Decoder": "TransformerDecoder",
    "EncoderLayer": "TransformerEncoderLayerBase",
    "DecoderLayer": "TransformerDecoderLayerBase",
}


class FastDropout(FairseqDropout):
    """fairseq's dropout module with our `drop`, which draws bfloat16 masks faster on a CPU."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        active = self.p > 0 and (self.training or self.apply_during_inference)
        return drop(x, self.p) if active else x


def _use_fast_modules(model: nn.Module) -> None:
    """Replace fairseq's dropout, linear layers and GELU (Hendrycks and Gimpel 2016, 1606.08415).

    They are slow in bfloat16: torch's GELU takes a fifth of the time. In float32 and bfloat16 its
    values equal fairseq's to the bit. Gradients do, too, on CPUs with AVX-512; elsewhere they are
    equal up to float32 rounding. The output layer stays: to pad the gradient of its logits takes
    longer than to compile its products.
    """
    module: Any
    for module in list(model.modules()):
        if getattr(module, "activation_fn", None) is gelu:
            module.activation_fn = F.gelu
        for name, child in module.named_children():
            if type(child) is FairseqDropout:
                stock_name = _STOCK_NAMES.get(child.module_name, child.module_name)
                setattr(module, name, FastDropout(child.p, stock_name))
            elif type(child) is nn.Linear and name != "output_projection":
                setattr(module, name, Linear(child))


#: Arguments of a model's forward pass that hold tokens (B, S) and (B, T).
_TOKENS = "src_tokens", "prev_output_tokens"


class MHEModel(BaseFairseqModel):
    """Base of our models; a model lists it before fairseq's class, whose methods it extends."""

    PLACES: tuple[str, ...]  # keys of options.PLACES at which the model has attention
    CONFIG: type[FairseqDataclass]  # declares the model's options
    args: argparse.Namespace  # the options that the model was built from
    generation_precision = "float32"  # format of large weights in generation on a CPU
    _graphs: graphs.Graphs | None = None

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of ``CONFIG`` without defaults: those come from the architecture."""
        gen_parser_from_dataclass(parser, cls.CONFIG(), delete_default=True)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> Self:
        """Build from flat options: fairseq-train's, a checkpoint's or a hydra configuration's."""
        options = plain_options(cfg)
        with one_clear_line():
            graphs.check_options(vars(options))
            model = cls.assemble(options, task)
        model.args = options
        # None if convert built the options.
        model.generation_precision = options.generation_precision or "float32"
        _use_fast_modules(model)
        return model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run fairseq's forward pass; with --cuda-graphs replay a graph if one fits the batch."""
        if self._may_use_graphs(args, kwargs):
            if self._graphs is None:
                self._graphs = graphs.Graphs(self)
            tokens = [kwargs[name] for name in _TOKENS if name in kwargs]
            features = self._graphs(*tokens)
            if features is not None:
                return self.decoder.output_layer(features), {"attn": None}
        return super().forward(*args, **kwargs)

    def _may_use_graphs(self, args: Any, kwargs: Any) -> bool:
        """Return whether a graph may run a call: --cuda-graphs is set, it passes only tokens."""
        on_gpu = next(self.parameters()).is_cuda
        trains = self.training and on_gpu and torch.is_grad_enabled()
        enabled = trains and getattr(self.args, "cuda_graphs", False)
        only_tokens = not args and kwargs.keys() <= {*_TOKENS, "src_lengths"}
        # Autocast caches converted weights; hooks (of fairseq's NanDetector) must see every layer.
        eager = torch.is_autocast_enabled() or self._forward_hooks
        return enabled and only_tokens and not eager

    @classmethod
    def assemble(cls, options: Any, task: Any) -> Self:
        """Build the model from complete options by fairseq's ``build_model`` with our parts."""
        return super().build_model(options, task)

    def make_generation_fast_(self, **kwargs: Any) -> None:
        """Fold attention into plain heads and pack weights; no weights can be loaded afterwards."""
        if self._is_generation_fast:
            return
        super().make_generation_fast_(**kwargs)
        use_generation_form(self)
        with one_clear_line():
            pack_linears(self, self.generation_precision)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load as fairseq does; raise UserError for weights of another kind, row or vocabulary."""
        if self._is_generation_fast:
            raise UserError(
                "make_generation_fast_() has folded this model's weights: load the checkpoint into "
                "a new model"
            )
        try:
            return super().load_state_dict(*args, **kwargs)
        except RuntimeError as error:
            difference = shorten(str(error).partition("\n")[2], 200, placeholder=" ...")
            raise UserError(
                f"the checkpoint is not of this model: {difference}; use the --arch, --attention "
                "and dictionary it was trained with, or another --save-dir"
            ) from None
