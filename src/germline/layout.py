"""The layout of a network's weights: how one flat vector θ is cut into named tensors.

A layout is what decoding needs to know of a network, and all it needs: names, shapes, birth
scales, and which parts form a layer, a row or a head. Its digest is part of every genome's id.
"""

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby
from operator import and_
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from germline import bfloat16
from germline.errors import InputError

MAX_WEIGHTS = 2**28
MAX_TENSORS = 4096

BlockKind = Literal["layer", "row", "head"]

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")


@dataclass(frozen=True)
class Tensor:
    """One tensor of a network, its last axis the outputs.

    `gain` 0 means born as +0.0 (biases); otherwise weights are born as bf16(gain/√fan_in) · z.
    With `heads` the leading axis counts heads: memory slots, or the members of an ensemble.
    `step` is the power of two of one integer step in exact arithmetic.
    """

    name: str
    shape: tuple[int, ...]
    fan_in: int = 1
    gain: float = 1.0
    heads: bool = False
    step: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or len(self.name) > 200:
            raise InputError(f"tensor name {self.name[:200]!r}: use letters, digits, _ . - and /")
        whole = all(type(n) is int for n in (*self.shape, self.fan_in))
        if not whole or not 1 + self.heads <= len(self.shape) <= 8 or min(self.shape) < 1:
            raise InputError(f"tensor {self.name}: shape {self.shape} needs 1 to 8 axes, each >= 1")
        if self.fan_in < 1 or self.gain < 0:
            given = f"fan_in {self.fan_in} must be >= 1 and gain {self.gain} >= 0"
            raise InputError(f"tensor {self.name}: {given}")
        if self.step is not None and not -64 <= self.step <= 16:
            raise InputError(f"tensor {self.name}: step 2^{self.step} is not in 2^-64 to 2^16")
        _ = self.birth_scale

    @property
    def size(self) -> int:
        """The number of weights."""
        return math.prod(self.shape)

    @property
    def layer(self) -> str:
        """The layer it belongs to: its name up to the last slash."""
        return self.name.rpartition("/")[0] or self.name

    @property
    def birth_scale(self) -> float:
        """The bfloat16 value that multiplies the noise at birth; 0 for what is born as zeros."""
        if self.gain == 0:
            return 0.0
        return bfloat16.scale(self.gain / math.sqrt(self.fan_in), f"birth scale of {self.name}")

    @property
    def matrices(self) -> tuple[int, int, int] | None:
        """(count, rows, columns) of its matrices, one per head; None for vectors.

        A convolution (height, width, in, out) is one matrix of height·width·in rows.
        """
        count, inner = (self.shape[0], self.shape[1:]) if self.heads else (1, self.shape)
        if len(inner) < 2:
            return None
        return count, math.prod(inner[:-1]), inner[-1]

    @property
    def canonical(self) -> str:
        """The line that enters the layout's digest."""
        shape = "x".join(map(str, self.shape))
        step = "-" if self.step is None else self.step
        heads = "heads" if self.heads else "-"
        scale = f"{bfloat16.bits(self.birth_scale):04x}"
        return f"tensor {self.name} {shape} {self.fan_in} {scale} {heads} {step}\n"


@dataclass(frozen=True, eq=False)
class Layout:
    """The tensors of a network in the order in which θ holds them. Equal when their digests are."""

    tensors: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.tensors) <= MAX_TENSORS:
            raise InputError(f"a layout has 1 to {MAX_TENSORS} tensors, not {len(self.tensors)}")
        if self.size > MAX_WEIGHTS:
            raise InputError(f"{self.size:,} weights are more than the {MAX_WEIGHTS:,} allowed")
        if twice := _repeated(t.name for t in self.tensors):
            raise InputError(f"two tensors of a layout have the same name, {twice}")
        heads = {t.shape[0] for t in self.tensors if t.heads}
        if len(heads) > 1:
            found = " and ".join(map(str, sorted(heads)))
            raise InputError(f"tensors of a layout differ in their number of heads: {found}")
        if parted := _repeated(layer for layer, _ in groupby(t.layer for t in self.tensors)):
            raise InputError(f"the tensors of layer {parted} must stand side by side")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over one line per tensor, in hex."""
        lines = "".join(t.canonical for t in self.tensors)
        return hashlib.sha256(f"germline layout 1\n{lines}".encode()).hexdigest()

    @cached_property
    def size(self) -> int:
        """The number of weights in θ."""
        return sum(t.size for t in self.tensors)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each tensor starts in θ."""
        starts = [0]
        for tensor in self.tensors[:-1]:
            starts.append(starts[-1] + tensor.size)
        return tuple(starts)

    def unflatten(self, theta: Any) -> dict[str, Any]:  # noqa: ANN401 - numpy or JAX array
        """Cut θ [..., params] into {name: [..., *shape]}; views for numpy, slices for JAX."""
        return {
            t.name: theta[..., start : start + t.size].reshape(*theta.shape[:-1], *t.shape)
            for t, start in zip(self.tensors, self.offsets, strict=True)
        }

    def flatten(self, tensors: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Join named tensors into θ [params]; names and shapes must be exactly the layout's."""
        expected = {t.name for t in self.tensors}
        if wrong := sorted(expected ^ tensors.keys()):
            known = "is missing" if wrong[0] in expected else "is not one of the network's"
            names = ", ".join(t.name for t in self.tensors[:8])
            raise InputError(f"tensor {wrong[0][:80]!r} {known}; the network has {names}")
        for t in self.tensors:
            given = tensors[t.name]
            if given.shape != t.shape or given.dtype != np.float32:
                raise InputError(
                    f"tensor {t.name!r}: expected float32 {list(t.shape)}, "
                    f"got {given.dtype} {list(given.shape)}"
                )
        return np.concatenate([tensors[t.name].ravel() for t in self.tensors])

    def blocks(self, kind: BlockKind) -> NDArray[np.uint32]:
        """The parts of θ that a `block` mutation chooses from: [blocks, ranges, (start, stop)].

        A layer is its tensors, a row is one run along a tensor's last axis (all that leaves one
        input; a whole bias), a head is its slice of every tensor with heads.
        """
        spans = list(zip(self.tensors, self.offsets, strict=True))
        if kind == "layer":
            layers: dict[str, list[int]] = {}
            for t, start in spans:
                layers.setdefault(t.layer, [start, start])[1] = start + t.size
            return np.array(list(layers.values()), np.uint32)[:, None, :]
        if kind == "row":
            rows = [_runs(start, t.size // t.shape[-1], t.shape[-1]) for t, start in spans]
            return np.concatenate(rows)[:, None, :]
        heads = [_runs(s, t.shape[0], t.size // t.shape[0]) for t, s in spans if t.heads]
        return np.stack(heads, axis=1)

    def empty_heads(self, theta: Any) -> Any:  # noqa: ANN401 - numpy or JAX array
        """Whether each head [heads] holds nothing in θ [params]: all its weights are zero."""
        parts = [
            (theta[start : start + t.size].reshape(t.shape[0], -1) == 0).all(1)
            for t, start in zip(self.tensors, self.offsets, strict=True)
            if t.heads
        ]
        return reduce(and_, parts)


def layer(
    name: str,
    shape: tuple[int, ...],
    gain: float = 1.0,
    *,
    heads: int = 0,
    normalised: bool = False,
) -> tuple[Tensor, ...]:
    """Give a weight whose last axis is the outputs, and its bias, which is born as zeros.

    With `heads` there is one of both per head. A normalised layer has a gain too, also born zero.
    """
    if heads and normalised:
        raise InputError(f"layer {name}: heads have no normalised layers")
    fan_in = math.prod(shape[:-1])
    lead = (heads,) if heads else ()
    headed = heads > 0
    zeros = ("gain", "bias") if normalised else ("bias",)
    return (
        Tensor(f"{name}/weight", lead + shape, fan_in, gain, headed),
        *(Tensor(f"{name}/{z}", lead + shape[-1:], fan_in, 0.0, headed) for z in zeros),
    )


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that is there twice; None if there is none."""
    met: set[str] = set()
    for name in names:
        if name in met:
            return name
        met.add(name)
    return None


def _runs(start: int, count: int, length: int) -> NDArray[np.uint32]:
    """`count` neighbouring ranges of `length` from `start`: [count, (start, stop)]."""
    first = start + length * np.arange(count, dtype=np.uint32)
    return np.stack([first, first + np.uint32(length)], axis=1)
