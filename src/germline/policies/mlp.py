"""A multilayer perceptron."""

from itertools import pairwise
from typing import Annotated, Literal

import msgspec

from germline.layout import Layout, Tensor, layer
from germline.policies.arithmetic.steps import Shifts, Steps, stepped
from germline.policies.protocols import (
    Activation,
    Array,
    Carry,
    Head,
    Layers,
    ObservationNormaliser,
)

Width = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
Hidden = Annotated[tuple[Width, ...], msgspec.Meta(max_length=64)]


class Mlp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dense layers from `inputs` over `hidden` to `outputs`; the last is born a tenth as large.

    Hidden units are ReLU, or tanh. `normalise=observations` scales what is seen by the statistics
    of the context.
    """

    inputs: Width = 4
    hidden: Hidden = (64, 64)
    outputs: Width = 2
    activation: Literal["tanh"] | None = None
    head: Head = None
    normalise: ObservationNormaliser = None
    steps: Steps = None
    shifts: Shifts = None

    @property
    def observation(self) -> tuple[int, ...]:
        """One number per input."""
        return (self.inputs,)

    def layout(self) -> Layout:
        """Give dense1, dense2, ..., each with weight and bias."""
        return stepped(Layout(perceptron(self.inputs, self.hidden, self.outputs)), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Observation [inputs] to [outputs]."""
        last, y = perceive(net, net.observe(obs), len(self.hidden), self.activation or "relu")
        return net.output(last, y, self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered."""
        return ()


def perceptron(
    inputs: int, hidden: tuple[int, ...], outputs: int, heads: int = 0
) -> tuple[Tensor, ...]:
    """The tensors of dense1, dense2, ...; with `heads`, of that many perceptrons side by side."""
    tensors: list[Tensor] = []
    widths = (inputs, *hidden, outputs)
    last = len(widths) - 1
    for number, shape in enumerate(pairwise(widths), 1):
        gain = 0.1 if number == last else 1.0
        tensors += layer(f"dense{number}", shape, gain, heads=heads)
    return tuple(tensors)


def perceive(
    net: Layers, x: Array, hidden: int, activation: Activation = "relu"
) -> tuple[str, Array]:
    """The name of the last layer of a perceptron, and its sums, for what the first one sees."""
    for number in range(1, hidden + 1):
        name = f"dense{number}"
        x = net.hidden(name, net.linear(name, x), activation)
    last = f"dense{hidden + 1}"
    return last, net.linear(last, x)
