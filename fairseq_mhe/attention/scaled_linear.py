"""A linear layer for generation, whose inputs' factors stand in its weight."""

from torch import Tensor, nn
from torch.nn.functional import linear


class ScaledLinear(nn.Linear):
    """Multiplies inputs by factors and by a weight, by one product that is made once.

    Its parameters are those of the layer that it takes the place of.
    """

    product: Tensor  # (out, in)

    def __init__(self, layer: nn.Linear, factors: Tensor) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        product = layer.weight.detach() * factors.detach()
        self.register_buffer("product", product, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        return linear(x, self.product, self.bias)
