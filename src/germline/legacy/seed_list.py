"""Seed lists: TensorFlow 1's first weights and one `RandomState` for each mutation of all of them.

The published network takes pixels of 0 to 255, has no biases, and multiplies each hidden layer by
k = 1/√1.001, a batch normalisation that was never trained. Ours divides pixels by 255. Positive
factors pass through ReLU, so they are multiplied into the weights: the same network to rounding.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from germline.errors import InputError
from germline.layout import Layout
from germline.legacy.truncated_normal import truncated_normal

SIGMA = 0.005
GAIN = math.sqrt(2.6)
_K = 1 / math.sqrt(1.001)
_AT_ONCE = 2**20

Weights = NDArray[np.float32]


def weights(seeds: Sequence[int], layout: Layout) -> Weights:
    """Weights for a network of ours [params]; biases are 0."""
    if any(tensor.heads for tensor in layout.tensors):
        raise InputError("root: seed-list: is of plain layers, this network has heads")
    named = {t.name: t.shape for t in layout.tensors if t.gain}
    found = dict(zip(named, published(seeds, list(named.values())), strict=True))
    first, last = next(iter(named), None), next(reversed(named), None)
    theta = np.zeros(layout.size, np.float32)
    for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
        if tensor.name in found:
            factor = (255 if tensor.name == first else 1) * (1 if tensor.name == last else _K)
            scaled = found[tensor.name].ravel().astype(np.float64) * factor
            theta[start : start + tensor.size] = scaled
    return theta


def published(seeds: Sequence[int], shapes: Sequence[tuple[int, ...]]) -> list[Weights]:
    """The tensors as their author's program had them, without biases, outputs on the last axis."""
    tensors: list[Weights] = []
    for shape in shapes:
        std = np.float32(GAIN / math.sqrt(math.prod(shape[:-1])))
        tensors.append(truncated_normal(math.prod(shape)) * std)
    for seed in seeds:
        random = np.random.RandomState(seed)
        for tensor in tensors:
            for start in range(0, len(tensor), _AT_ONCE):
                part = tensor[start : start + _AT_ONCE]
                part += random.normal(0, SIGMA, len(part))  # summed in float64, then rounded
    return [tensor.reshape(shape) for tensor, shape in zip(tensors, shapes, strict=True)]
