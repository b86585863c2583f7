"""The large DQN network of "Deep Neuroevolution" (Such et al. 2017): 84×84×4 pixels to actions."""

from typing import Annotated

import msgspec

from germline.layout import Layout, Tensor, layer
from germline.policies.arithmetic.padding import Padding, window
from germline.policies.arithmetic.steps import Shifts, Steps, stepped
from germline.policies.protocols import Array, Carry, Head, Layers, VirtualNormaliser

_CONVOLUTIONS = {"conv1": (8, 4, 32), "conv2": (4, 2, 64), "conv3": (3, 1, 64)}
"""kernel, stride, filters"""
_PIXELS, _FRAMES, _HIDDEN = 84, 4, 512


class Dqn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Three convolutions, 512 hidden units, one output per action.

    With TensorFlow's SAME padding, as in the paper, it has 4,052,658 weights at 18 actions, with
    VALID padding 1,693,362. `normalise=virtual` puts virtual batch normalisation into the hidden
    layers.
    """

    actions: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 18
    padding: Padding = "same"
    head: Head = None
    normalise: VirtualNormaliser = None
    steps: Steps = None
    shifts: Shifts = None

    @property
    def observation(self) -> tuple[int, ...]:
        """Rows, columns and the last four frames, the newest last."""
        return (_PIXELS, _PIXELS, _FRAMES)

    def layout(self) -> Layout:
        """Give conv1 to conv3, dense and out, each with weight and bias."""
        virtual = self.normalise is not None
        tensors: list[Tensor] = []
        side, channels = _PIXELS, _FRAMES
        for name, (kernel, stride, filters) in _CONVOLUTIONS.items():
            tensors += layer(name, (kernel, kernel, channels, filters), normalised=virtual)
            side, channels = window(side, kernel, stride, self.padding)[0], filters
        tensors += layer("dense", (side * side * channels, _HIDDEN), normalised=virtual)
        tensors += layer("out", (_HIDDEN, self.actions), gain=0.1)
        return stepped(Layout(tuple(tensors)), self)

    def forward(self, net: Layers, obs: Array, carry: Carry) -> tuple[Array, Carry]:
        """Pixels [84, 84, 4] to one output per action."""
        x = net.observe(obs)
        for name, (kernel, stride, _) in _CONVOLUTIONS.items():
            x = net.hidden(name, net.convolve(name, x, (kernel, stride), self.padding))
        x = net.hidden("dense", net.linear("dense", x.reshape(-1)))
        return net.output("out", net.linear("out", x), self.head), carry

    def initial_carry(self) -> Carry:
        """Nothing is remembered."""
        return ()
