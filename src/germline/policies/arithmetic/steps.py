"""The steps and shifts of exact arithmetic: what an integer stands for in every layer.

A weight w stands for w·2^step, an observation for x·2⁻⁷, and an activation for x·2^unit. A layer's
sums Σ w·x + b then stand for multiples of 2^(step + unit_in); they are shifted right by k bits and
clipped to 0...127, which stand for multiples of 2^unit_out, unit_out = step + unit_in + k.
"""

import math
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Any, TypeVar, cast

import msgspec

from germline import bfloat16
from germline.errors import InputError
from germline.genome import MAX_GENES
from germline.layout import Layout, Tensor
from germline.policies import registry
from germline.policies.protocols import ExactNetwork

LARGEST = 127  # of weights and activations, in size
OBSERVED = -7  # observations are uint8 >> 1 or int8, in units of 2⁻⁷

# A chosen step clips less than 1 % of normal weights at the declared age: |z| > 2.576.
CLIPPED_BEYOND = 2.576
# A chosen shift lets sums of this many standard deviations through unclipped.
SATURATED_BEYOND = 2.0
# The root mean square of observations that shifts are chosen for, of a largest 1.
TYPICAL_OBSERVATION = 0.5

Steps = (
    Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=-64, le=16)], ...],
        msgspec.Meta(min_length=1, max_length=1024),
    ]
    | None
)
Shifts = (
    Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=0, le=23)], ...],
        msgspec.Meta(min_length=1, max_length=1024),
    ]
    | None
)
Spec = TypeVar("Spec")


@dataclass(frozen=True)
class Scale:
    """What the integers of one layer stand for. `inputs` is 0 for values that are only read."""

    inputs: int
    step: int
    unit_in: int
    shift: int

    @property
    def sums(self) -> int:
        """The power of two that the layer's sums are multiples of."""
        return self.step + self.unit_in

    @property
    def unit_out(self) -> int:
        """The power of two that the layer's activations are multiples of."""
        return self.sums + self.shift

    @property
    def largest_bias(self) -> int:
        """Biases are clipped to this size: as much as an activation can hold."""
        return LARGEST << self.shift


def exact(spec: Spec, *, sigma: float = 0.002, genes: int = 500) -> Spec:
    """Give the settings of a network that computes in integers as well.

    Steps and shifts are chosen for the weights that a lineage of `genes` mutations of size `sigma`
    has: √(birth² + genes·σ²). They become part of the settings, and so of every genome.
    """
    name = registry.name_of(cast(Any, spec))
    if not hasattr(spec, "steps"):
        able = [other for other in registry.names() if registry.has_setting(other, "steps")]
        raise InputError(f"policy {name}: has no exact arithmetic; {', '.join(able)} have")
    size = abs(bfloat16.scale(sigma, "sigma"))
    if not 0 <= genes <= MAX_GENES:
        raise InputError(
            f"genes: exact arithmetic is fitted to 0 to {MAX_GENES:,} genes, not {genes}"
        )
    plain = msgspec.structs.replace(cast(Any, spec), steps=None, shifts=None)
    steps, shifts = _choose(plain.layout(), size, genes)
    found = msgspec.structs.replace(plain, steps=steps, shifts=shifts)
    try:
        found.layout()
    except InputError as error:
        raise InputError(
            f"policy {name}: no steps fit sigma {sigma} and {genes} genes: {error}"
        ) from None
    return found


def check_observed(dtype: str) -> None:
    """Refuse observations that integers of 8 bits do not hold."""
    if dtype not in ("uint8", "int8"):
        raise InputError(f"exact arithmetic takes uint8 or int8 observations, not {dtype}")


def stepped(layout: Layout, spec: ExactNetwork) -> Layout:
    """The layout with the step of every tensor, if the settings have steps at all."""
    if spec.steps is None and spec.shifts is None:
        return layout
    tensors: list[Tensor] = []
    for (_, group), scale in zip(_layers(layout), scales(layout, spec).values(), strict=True):
        for tensor in group:
            step = scale.sums if tensor.name.endswith("/bias") else scale.step
            tensors.append(replace(tensor, step=step))
    return Layout(tuple(tensors))


def scales(layout: Layout, spec: ExactNetwork) -> dict[str, Scale]:
    """What the integers of every layer stand for, by its name; refuses what may overflow."""
    layers = _layers(layout)
    for name, given in (("steps", spec.steps), ("shifts", spec.shifts)):
        if given is None or len(given) != len(layers):
            found = 0 if given is None else len(given)
            raise InputError(
                f"{name}: exact arithmetic needs one for each of the {len(layers)} layers, "
                f"got {found}"
            )
    for setting in ("activation", "normalise", "similarity"):
        if getattr(spec, setting, None):
            raise InputError(f"{setting}: has no exact arithmetic; use it without steps and shifts")
    assert spec.steps is not None
    assert spec.shifts is not None
    unit, found_scales = OBSERVED, {}
    for (name, group), step, shift in zip(layers, spec.steps, spec.shifts, strict=True):
        scale = Scale(_inputs(group), step, unit if _inputs(group) else 0, shift)
        # Sums stay within int32: every product is at most 127², every bias 127·2^shift.
        if scale.inputs * LARGEST**2 + scale.largest_bias >= 2**31:
            raise InputError(f"{name}: {scale.inputs:,} inputs are too many for exact arithmetic")
        found_scales[name] = scale
        unit = scale.unit_out
    last = list(found_scales.values())[-1]
    if spec.head == "continuous" and not 0 <= -last.sums <= 24:
        raise InputError(f"steps: a continuous output in steps of 2^{last.sums} is not exact")
    return found_scales


def _choose(layout: Layout, sigma: float, genes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The finest steps and shifts that keep clipping and saturation rare at the declared age."""
    steps, shifts = [], []
    unit, square = OBSERVED, TYPICAL_OBSERVATION**2
    drift = genes * sigma**2
    for _, group in _layers(layout):
        weight = group[0]
        variance = weight.birth_scale**2 + drift or sigma**2  # what is born empty grows later
        step = _power_above(CLIPPED_BEYOND * math.sqrt(variance) / (LARGEST + 0.5))
        inputs, shift = _inputs(group), 0
        if inputs:
            # Sums of many terms are near normal; ReLU passes half of their square on.
            sums = inputs * variance * square + drift
            top = _power_above(SATURATED_BEYOND * math.sqrt(sums) / (LARGEST + 1))
            shift = max(0, top - step - unit)
            unit, square = step + unit + shift, sums / 2
        steps.append(step)
        shifts.append(shift)
    return tuple(steps), tuple(shifts)


def _power_above(value: float) -> int:
    """The exponent of the smallest power of two that is not below `value`."""
    mantissa, exponent = math.frexp(value)
    return exponent - 1 if mantissa == 0.5 else exponent


def _layers(layout: Layout) -> list[tuple[str, list[Tensor]]]:
    """The tensors of each layer, in the order in which the layers feed one another."""
    return [(name, list(group)) for name, group in groupby(layout.tensors, lambda t: t.layer)]


def _inputs(group: list[Tensor]) -> int:
    """How many products a sum of this layer has; 0 if the layer is only read."""
    matrices = group[0].matrices
    return 0 if matrices is None else matrices[1]
