"""A convolutional network of any size, for pictures that the paper's network does not fit."""

from itertools import pairwise
from typing import Annotated

import msgspec

from germline.errors import InputError
from germline.layout import Layout, Tensor, layer
from germline.policies.arithmetic.padding import Padding, window
from germline.policies.arithmetic.steps import Shifts, Steps, stepped
from germline.policies.mlp import Hidden
from germline.policies.protocols import Array, Carry, Head, Layers, VirtualNormaliser

Side = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Sides = Annotated[tuple[Side, ...], msgspec.Meta(min_length=1, max_length=64)]
MAX_PATCHES = 2**26  # numbers that the windows of a convolution see, laid out for one observation
Picture = Annotated[tuple[Side, ...], msgspec.Meta(min_length=3, max_length=3)]


class Conv(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Square convolutions, then dense layers, all ReLU, then one output per action.

    `filters`, `kernels` and `strides` have one number per convolution. The defaults are half the
    widths of the first DQN. `normalise=virtual` puts virtual batch normalisation into the hidden
    layers.
    """

    observation: Picture = (84, 84, 4)
    filters: Sides = (16, 32)
    kernels: Sides = (8, 4)
    strides: Sides = (4, 2)
    hidden: Hidden = (256,)
    actions: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 18
    padding: Padding = "valid"
    head: Head = None
    normalise: VirtualNormaliser = None
    steps: Steps = None
    shifts: Shifts = None

    def __post_init__(self) -> None:
        if not len(self.filters) == len(self.kernels) == len(self.strides):
            raise InputError(
                f"filters, kernels and strides: {len(self.filters)}, {len(self.kernels)} and "
                f"{len(self.strides)} of them; give one of each per convolution"
            )

    def layout(self) -> Layout:
        """Give conv1, conv2, ..., dense1, ... and out, each with weight and bias."""
        virtual = self.normalise is not None
        tensors: list[Tensor] = []
        rows, columns, channels = self.observation
        for name, kernel, stride, filters in self._convolutions():
            tensors += layer(name, (kernel, kernel, channels, filters), normalised=virtual)
            rows, columns = (window(n, kernel, stride, self.padding)[0] for n in (rows, columns))
            if min(rows, columns) < 1:
                raise InputError(f"kernels: nothing is left of the picture after {name}")
            if (patches := rows * columns * kernel * kernel * channels) > MAX_PATCHES:
                raise InputError(f"kernels: {name} would see {patches:,} numbers, too many")
            channels = filters
        widths = (rows * columns * channels, *self.hidden)
        for number, shape in enumerate(pairwise(widths), 1):
            tensors += layer(f"dense{number}", shape, normalised=virtual)
        tensors += layer("out", (widths[-1], self.actions), gain=0.1)
        return stepped(Layout(tuple(tensors)), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Pixels [rows, columns, channels] to one output per action."""
        x = net.observe(obs)
        for name, kernel, stride, _ in self._convolutions():
            x = net.hidden(name, net.convolve(name, x, (kernel, stride), self.padding))
        x = x.reshape(-1)
        for number in range(1, len(self.hidden) + 1):
            x = net.hidden(f"dense{number}", net.linear(f"dense{number}", x))
        return net.output("out", net.linear("out", x), self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered."""
        return ()

    def _convolutions(self) -> list[tuple[str, int, int, int]]:
        """Name, kernel, stride and filters of each."""
        sizes = zip(self.kernels, self.strides, self.filters, strict=True)
        return [(f"conv{number}", *size) for number, size in enumerate(sizes, 1)]
