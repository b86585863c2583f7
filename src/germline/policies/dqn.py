"""The large DQN network of "Deep Neuroevolution" (Such et al. 2017): 84×84×4 pixels to actions."""

from typing import Annotated, Literal

import msgspec

from germline.layout import Layout, Tensor, layer

_CONVOLUTIONS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))  # kernel, stride, filters
_PIXELS, _FRAMES, _HIDDEN = 84, 4, 512


class Dqn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Three convolutions, 512 hidden units, one output per action.

    With TensorFlow's SAME padding, as in the paper, it has 4,052,658 weights at 18 actions, with
    VALID padding 1,693,362.
    """

    actions: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 18
    padding: Literal["same", "valid"] = "same"

    def layout(self) -> Layout:
        """Give conv1 to conv3, dense and out, each with weight and bias."""
        tensors: list[Tensor] = []
        side, channels = _PIXELS, _FRAMES
        for number, (kernel, stride, filters) in enumerate(_CONVOLUTIONS, 1):
            tensors += layer(f"conv{number}", (kernel, kernel, channels, filters))
            reach = side if self.padding == "same" else side - kernel + 1
            side, channels = -(-reach // stride), filters
        tensors += layer("dense", (side * side * channels, _HIDDEN))
        tensors += layer("out", (_HIDDEN, self.actions), gain=0.1)
        return Layout(tuple(tensors))
