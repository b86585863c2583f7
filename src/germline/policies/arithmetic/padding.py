"""How far a window slides over an image: TensorFlow's SAME and VALID."""

from typing import Literal

Padding = Literal["same", "valid"]


def window(side: int, kernel: int, stride: int, padding: Padding) -> tuple[int, int, int]:
    """(outputs, zeros before, zeros after) along one side of an image.

    SAME pads as TensorFlow does: an odd zero goes to the end, so to the bottom and the right.
    """
    if padding == "valid":
        return (side - kernel) // stride + 1, 0, 0
    outputs = -(-side // stride)
    zeros = max(0, (outputs - 1) * stride + kernel - side)
    return outputs, zeros // 2, zeros - zeros // 2
