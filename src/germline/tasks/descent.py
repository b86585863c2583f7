"""Adam on the points of `memorize`: what a gradient makes of the same network and the same task.

The baseline to compare evolution with. It is no algorithm of a run: it needs what no genome has,
the derivative of the score.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from msgspec.structs import replace

from germline import draws, mutation
from germline.draws import Purpose
from germline.errors import InputError
from germline.genome import Uint32, check_type
from germline.policies.building import build
from germline.policies.protocols import PolicySpec
from germline.tasks import fitting, memorize
from germline.tasks.datasets import Points
from germline.tasks.memorize import Memorize

Measure = Callable[[jax.Array, Points], tuple[jax.Array, jax.Array]]

_birth = jax.jit(mutation.birth, static_argnames="layout")


class Step(NamedTuple):
    """After so many steps: mean cross-entropy and wrong answers on all points of each part.

    There is no `validation` where no points are held out.
    """

    number: int
    loss: float
    errors: int
    validation_loss: float | None = None
    validation_errors: int | None = None


def descend(
    task: Memorize,
    spec: PolicySpec,
    *,
    seed: int,
    steps: int,
    rate: float = 1e-3,
    batch: int | None = None,
    every: int = 1,
) -> list[Step]:
    """Learn the training points by Adam, from the weights of `Birth(seed)`.

    A step sees all points, or a `batch` of them: an epoch shows each at most once, in an order
    drawn by counter. Every so many steps are reported, the first, before any, and the last too.
    """
    task = replace(task, part="training", behaviour=None)
    training = memorize.points(task)
    total = len(training.labels)
    _check(task, spec, total, seed, steps, rate, batch, every)
    adam = optax.adam(rate)
    measure = _measure(spec)

    @jax.jit
    def step(theta: jax.Array, state: Any, shown: Points) -> tuple[jax.Array, Any]:  # noqa: ANN401
        gradient = jax.grad(lambda theta: measure(theta, shown)[0])(theta)
        with jax.numpy_dtype_promotion("standard"):
            moves, state = adam.update(gradient, state)
            return optax.apply_updates(theta, moves), state

    seen = jax.jit(measure)
    held = replace(task, part="validation") if task.validation else None

    def look(number: int, theta: jax.Array) -> Step:
        loss, errors = seen(theta, training)
        found = Step(number, float(loss), int(errors))
        if held is None:
            return found
        loss, errors = seen(theta, memorize.points(held))
        return found._replace(validation_loss=float(loss), validation_errors=int(errors))

    theta = _birth(np.uint32(seed), spec.layout())
    state = adam.init(theta)
    curve = [look(0, theta)]
    for number in range(1, steps + 1):
        chosen = slice(None) if batch is None else _batch(seed, number - 1, total, batch)
        theta, state = step(theta, state, Points(*(part[chosen] for part in training)))
        if number % every == 0 or number == steps:
            curve.append(look(number, theta))
    return curve


def _measure(spec: PolicySpec) -> Measure:
    """Mean cross-entropy of weights [params] on points, and how many answers are wrong."""

    def measure(theta: jax.Array, shown: Points) -> tuple[jax.Array, jax.Array]:
        policy = build(spec, theta)
        outputs = jax.vmap(lambda obs: policy(obs, policy.initial_carry())[0])(shown.inputs)
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, shown.labels)
        wrong = outputs.argmax(-1).astype(jnp.int32) != shown.labels
        return losses.mean(), wrong.sum()

    return measure


def _batch(seed: int, step: int, total: int, batch: int) -> np.ndarray:
    """Which points a step sees; those left over of an epoch wait for the next."""
    epoch, place = divmod(step, total // batch)
    order = np.argsort(draws.draw(seed, Purpose.BATCH, epoch, np.arange(total)), kind="stable")
    return order[place * batch :][:batch]


def _check(
    task: Memorize,
    spec: PolicySpec,
    total: int,
    seed: int,
    steps: int,
    rate: float,
    batch: int | None,
    every: int,
) -> None:
    check_type("seed", seed, Uint32)
    fitting.check(spec, task.space())
    if getattr(spec, "normalise", None) is not None:
        raise InputError("policy: normalise: there are no statistics in a descent; leave it out")
    if steps < 0:
        raise InputError(f"steps: {steps} is not 0 or more")
    if every < 1:
        raise InputError(f"every: {every} is not 1 or more")
    if not (rate > 0 and math.isfinite(rate)):
        raise InputError(f"rate: {rate} is not a number above 0")
    if batch is not None and not 1 <= batch <= total:
        raise InputError(f"batch: {batch} is not from 1 to {total:,}, the number of points")
