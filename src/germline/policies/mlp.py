"""A multilayer perceptron."""

from itertools import pairwise
from typing import Annotated

import msgspec

from germline.layout import Layout, Tensor, layer

Width = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Hidden = Annotated[tuple[Width, ...], msgspec.Meta(max_length=64)]


class Mlp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dense layers from `inputs` over `hidden` to `outputs`; the last is born a tenth as large."""

    inputs: Width = 4
    hidden: Hidden = (64, 64)
    outputs: Width = 2

    def layout(self) -> Layout:
        """Give dense1, dense2, ..., each with weight and bias."""
        tensors: list[Tensor] = []
        widths = (self.inputs, *self.hidden, self.outputs)
        last = len(widths) - 1
        for number, shape in enumerate(pairwise(widths), 1):
            tensors += layer(f"dense{number}", shape, gain=0.1 if number == last else 1.0)
        return Layout(tuple(tensors))
