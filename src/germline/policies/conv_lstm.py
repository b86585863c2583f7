"""A convolutional network with a long short-term memory, for Atari in 42×42 pixels."""

from typing import Annotated

import msgspec
import numpy as np

from germline.layout import Layout, Tensor, layer
from germline.policies.arithmetic.padding import window
from germline.policies.protocols import Array, Carry, Head, Layers, VirtualNormaliser

_CONVOLUTIONS = ("conv1", "conv2", "conv3", "conv4")
_PIXELS, _KERNEL, _STRIDE = 42, 3, 2
_FILTERS, _UNITS = 32, 256  # if not said; not defaults, so that ids of genomes stay as they were

Size = Annotated[int, msgspec.Meta(ge=1, le=4096)] | None


class ConvLstm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Four 3×3 convolutions of stride 2 with ELU, then a long short-term memory.

    Each convolution has 32 `filters` and the memory 256 `units`, if not said otherwise.
    `normalise=virtual` adds virtual batch normalisation to the convolutions and the gates.
    """

    actions: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 18
    head: Head = None
    normalise: VirtualNormaliser = None
    filters: Size = None
    units: Size = None

    @property
    def observation(self) -> tuple[int, ...]:
        """Rows and columns of one frame."""
        return (_PIXELS, _PIXELS, 1)

    def layout(self) -> Layout:
        """Give conv1 to conv4, the four gates of the LSTM in one matrix, and out."""
        filters, units = self.filters or _FILTERS, self.units or _UNITS
        tensors: list[Tensor] = []
        side, channels = _PIXELS, 1
        for name in _CONVOLUTIONS:
            shape: tuple[int, ...] = (_KERNEL, _KERNEL, channels, filters)
            tensors += layer(name, shape, normalised=self.normalise is not None)
            side, channels = window(side, _KERNEL, _STRIDE, "same")[0], filters
        shape = (side * side * channels + units, 4 * units)
        tensors += layer("lstm", shape, normalised=self.normalise is not None)
        tensors += layer("out", (units, self.actions), gain=0.1)
        return Layout(tuple(tensors))

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """One frame [42, 42, 1] and (output, cell) [units] each to one output per action."""
        import jax.numpy as jnp
        from jax.nn import sigmoid

        state, cell = carry
        x = net.observe(obs)
        for name in _CONVOLUTIONS:
            x = net.hidden(name, net.convolve(name, x, (_KERNEL, _STRIDE), "same"), "elu")
        seen = jnp.concatenate([x.reshape(-1), state.astype(x.dtype)])
        gates = net.linear("lstm", seen)
        if self.normalise is not None:
            gates = net.hidden("lstm", gates, "linear").astype(jnp.float32)
        add, forget, show, candidate = jnp.split(gates, 4)
        # One more for the forget gate: a newborn should remember rather than forget.
        cell = sigmoid(forget + 1) * cell + sigmoid(add) * jnp.tanh(candidate)
        state = sigmoid(show) * jnp.tanh(cell)
        y = net.linear("out", state.astype(x.dtype))
        return net.output("out", y, self.head), (state, cell)

    def initial_carry(self) -> Carry:
        """Zeros (output, cell) [units] each."""
        units = self.units or _UNITS
        return np.zeros(units, np.float32), np.zeros(units, np.float32)
