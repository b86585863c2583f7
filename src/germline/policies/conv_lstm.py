"""A convolutional network with a long short-term memory, for Atari in 42×42 pixels."""

from typing import Annotated

import msgspec
import numpy as np

from germline.layout import Layout, Tensor, layer
from germline.policies.padding import window
from germline.policies.protocols import Array, Carry, Head, Layers, VirtualNormaliser

_CONVOLUTIONS = ("conv1", "conv2", "conv3", "conv4")
_PIXELS, _KERNEL, _STRIDE, _FILTERS, _UNITS = 42, 3, 2, 32, 256


class ConvLstm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Four 3×3 convolutions of stride 2 with 32 filters and ELU, then an LSTM of 256 units.

    `normalise=virtual` adds virtual batch normalisation to the convolutions.
    """

    actions: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 18
    head: Head = None
    normalise: VirtualNormaliser = None

    @property
    def observation(self) -> tuple[int, ...]:
        """Rows and columns of one frame."""
        return (_PIXELS, _PIXELS, 1)

    def layout(self) -> Layout:
        """Give conv1 to conv4, the four gates of the LSTM in one matrix, and out."""
        tensors: list[Tensor] = []
        side, channels = _PIXELS, 1
        for name in _CONVOLUTIONS:
            shape = (_KERNEL, _KERNEL, channels, _FILTERS)
            tensors += layer(name, shape, normalised=self.normalise is not None)
            side, channels = window(side, _KERNEL, _STRIDE, "same")[0], _FILTERS
        tensors += layer("lstm", (side * side * channels + _UNITS, 4 * _UNITS))
        tensors += layer("out", (_UNITS, self.actions), gain=0.1)
        return Layout(tuple(tensors))

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """One frame [42, 42, 1] and (output, cell) [256] each to one output per action."""
        import jax.numpy as jnp
        from jax.nn import sigmoid

        state, cell = carry
        x = net.observe(obs)
        for name in _CONVOLUTIONS:
            x = net.hidden(name, net.convolve(name, x, (_KERNEL, _STRIDE), "same"), "elu")
        seen = jnp.concatenate([x.reshape(-1), state.astype(x.dtype)])
        add, forget, show, candidate = jnp.split(net.linear("lstm", seen), 4)
        # One more for the forget gate: a newborn should remember rather than forget.
        cell = sigmoid(forget + 1) * cell + sigmoid(add) * jnp.tanh(candidate)
        state = sigmoid(show) * jnp.tanh(cell)
        y = net.linear("out", state.astype(x.dtype))
        return net.output("out", y, self.head), (state, cell)

    def initial_carry(self) -> Carry:
        """Zeros (output, cell) [256] each."""
        return np.zeros(_UNITS, np.float32), np.zeros(_UNITS, np.float32)
