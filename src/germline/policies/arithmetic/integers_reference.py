"""Exact arithmetic in plain numpy, all of it in int64: the definition, not meant to be fast."""

import numpy as np
from numpy.typing import NDArray

from germline.layout import Layout
from germline.policies.arithmetic.padding import Padding, window
from germline.policies.arithmetic.steps import LARGEST, check_observed, scales
from germline.policies.protocols import Activation, ExactNetwork, Head

Integers = NDArray[np.int64]


def outputs(
    spec: ExactNetwork, theta: NDArray[np.float32], observations: NDArray[np.generic]
) -> NDArray[np.generic]:
    """What one individual [params] gives for each observation [n, ...]: [n, outputs]."""
    net = ReferenceLayers(spec, spec.layout(), theta)
    return np.stack([spec.forward(net, obs, ())[0] for obs in observations])


class ReferenceLayers:
    """The integer weights of one individual in int64."""

    def __init__(self, spec: ExactNetwork, layout: Layout, theta: NDArray[np.float32]) -> None:
        self.scales = scales(layout, spec)
        self.tensors: dict[str, Integers] = {}
        for tensor in layout.tensors:
            scale = self.scales[tensor.layer]
            bias = tensor.name.endswith("/bias")
            step, largest = (scale.sums, scale.largest_bias) if bias else (scale.step, LARGEST)
            exact = layout.unflatten(theta)[tensor.name].astype(np.float64) / 2.0**step
            self.tensors[tensor.name] = np.clip(np.rint(exact), -largest, largest).astype(np.int64)

    def observe(self, obs: NDArray[np.generic]) -> Integers:
        """uint8 >> 1, or int8 with -128 taken as -127."""
        check_observed(str(obs.dtype))
        x = obs.astype(np.int64)
        return x >> 1 if obs.dtype == np.uint8 else np.maximum(x, -LARGEST)

    def linear(self, name: str, x: Integers) -> Integers:
        """x [inputs] or [heads, inputs] to [outputs] or [heads, outputs]."""
        weight, bias = self.tensors[f"{name}/weight"], self.tensors[f"{name}/bias"]
        if weight.ndim == 2:
            return x @ weight + bias
        return (x[..., None, :] @ weight)[:, 0] + bias

    def convolve(
        self, name: str, x: Integers, kernel_stride: tuple[int, int], padding: Padding
    ) -> Integers:
        """One kernel position at a time, over the whole image."""
        weight, bias = self.tensors[f"{name}/weight"], self.tensors[f"{name}/bias"]
        kernel, stride = kernel_stride
        rows, *above = window(x.shape[0], kernel, stride, padding)
        columns, *beside = window(x.shape[1], kernel, stride, padding)
        x = np.pad(x, (above, beside, (0, 0)))
        total = np.zeros((rows, columns, weight.shape[-1]), np.int64)
        for i in range(kernel):
            for j in range(kernel):
                seen = x[i : i + stride * rows : stride, j : j + stride * columns : stride]
                total += seen[:rows, :columns] @ weight[i, j]
        return total + bias

    def hidden(self, name: str, y: Integers, activation: Activation = "relu") -> Integers:
        """Shift right, which rounds down, and clip to 0...127."""
        return np.clip(y >> self.scales[name].shift, 0, LARGEST)

    def output(self, name: str, y: Integers, head: Head) -> NDArray[np.generic]:
        """Scores as they are; continuous values clipped to ±1, in steps of a power of two."""
        if head is None:
            return y
        bits = -self.scales[name].sums
        return (np.clip(y, -(1 << bits), 1 << bits) / 2.0**bits).astype(np.float32)

    def values(self, name: str) -> Integers:
        """A tensor that is read, not multiplied with."""
        return self.tensors[name]
