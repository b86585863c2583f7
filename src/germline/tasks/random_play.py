"""Observations of random play: the batch that virtual batch normalisation takes statistics from.

They follow from the task alone, actions and episodes being drawn by counter. So every worker makes
the same for itself, and a genome with its task is enough to play.
"""

from collections.abc import Generator
from contextlib import closing
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline import draws
from germline.draws import Purpose
from germline.errors import InputError
from germline.policies.normalisation import Context
from germline.policies.protocols import Array, PolicySpec
from germline.tasks import registry
from germline.tasks.on_device.rollout import MAX_STEPS, environment
from germline.tasks.on_device.task import DeviceTask
from germline.tasks.on_host.lanes import HostTask
from germline.tasks.protocols import Episode, Task
from germline.tasks.spaces import Space

COUNT = 128
EVERY = 16  # of so many that are seen, one is kept
SEEN = COUNT * EVERY


def context(task: Task, spec: PolicySpec) -> Context | None:
    """Give what individuals of a policy have in common by their task alone; None for nothing."""
    if getattr(spec, "normalise", None) != "virtual":
        return None
    return Context(reference=jnp.asarray(observations(task)))


def observations(task: Task) -> Array:
    """Give observations [128, *observation] of random play, spread over time and episodes."""
    check(task)
    known = registry.reference(task)
    return _observations(known.name, msgspec.json.encode(known.settings))


def check(task: Task) -> None:
    """Refuse a task that cannot be played at random."""
    if not isinstance(task, HostTask | DeviceTask):
        name = registry.reference(task).name
        raise InputError(
            "policy: normalise: virtual needs observations of random play, "
            f"which {name} does not give; atari, gym and tasks on the device do"
        )


@lru_cache(maxsize=4)
def _observations(name: str, settings: bytes) -> Array:
    task: Any = registry.make(name, msgspec.json.decode(settings))
    seen = _on_device(task) if isinstance(task, DeviceTask) else _on_host(task)
    with closing(seen):
        kept: Array = np.stack([np.asarray(obs) for obs in islice(seen, 0, SEEN, EVERY)])
    kept.setflags(write=False)
    return kept


def _on_host(task: HostTask) -> Generator[Array]:
    """All that is seen in one lane, one episode after another."""
    space = cast(Space, task.space())
    eyes, see = task.eyes(), jax.jit(task.eyes().see)
    shown = np.zeros(*eyes.shown())
    actions = iter(_actions(space).tolist() if space.single else _actions(space))
    with closing(task.lane()) as lane:
        for seed in _seeds():
            lane.start(Episode(0, seed, None), shown)
            # A copy each, since JAX may not have looked yet when the lane writes what comes next.
            obs, sight = see(shown.copy(), eyes.sight())
            yield obs
            while lane.step(next(actions), shown) is None:
                obs, sight = see(shown.copy(), sight)
                yield obs


def _on_device(task: DeviceTask) -> Generator[Array]:
    """All that is seen by one player, one episode after another."""
    played = environment(task)
    reset, step = jax.jit(played.reset), jax.jit(played.step)
    actions = iter(_actions(played.space))
    for seed in _seeds():
        key = jax.random.key(seed)
        state, obs = reset(key)
        yield obs
        for number in range((played.limit or MAX_STEPS) - 1):
            state, obs, _, over = step(state, next(actions), jax.random.fold_in(key, number))
            if over:
                break
            yield obs


def _seeds() -> tuple[int, ...]:
    """As many episodes as there could be: each has something to see."""
    return draws.episode_seeds(0, Purpose.REFERENCE, 0, np.zeros(1, np.uint32), SEEN)[0]


def _actions(space: Space) -> Array:
    """What is done [2048, ...]: the actions of outputs that are evenly drawn from [-1, 1]."""
    steps, places = np.arange(SEEN, dtype=np.uint32), np.arange(space.outputs, dtype=np.uint32)
    bits = draws.draw(0, Purpose.REFERENCE, 1, steps[:, None], places)
    outputs = (bits.astype(np.float64) / 2**31 - 1).astype(np.float32)
    return np.asarray(jax.vmap(space.action)(outputs))
