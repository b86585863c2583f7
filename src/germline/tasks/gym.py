"""Any registered Gymnasium environment, played on the host, one individual at a time.

Several episodes of an individual are played side by side, in lanes, so that its network sees a
batch. The number of lanes depends on the request alone, because the size of a batch changes how
floats are rounded.
"""

import contextlib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from gymnasium import spaces

from germline.errors import InputError, shorten
from germline.messages import Sums
from germline.policies.protocols import Array, Carry, Policy
from germline.settings import nearest
from germline.tasks.film import Shot, Watch, no_pygame, undrawable
from germline.tasks.players import Players, all_arrays
from germline.tasks.protocols import CAPPED, LIMIT, TERMINATED, Episode, Outcome
from germline.tasks.spaces import Space, of_gymnasium

Plain = bool | int | float | str | None
Options = dict[str, Plain | list[Plain]]

_PATH = re.compile(r"[/\\:]|\.(xml|json|toml|py|mjb|urdf)$", re.IGNORECASE)

# Wrappers that are functions of the episode alone and take plain numbers.
WRAPPERS = (
    "AtariPreprocessing",
    "ClipAction",
    "ClipReward",
    "DelayObservation",
    "DiscretizeAction",
    "DiscretizeObservation",
    "FilterObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "GrayscaleObservation",
    "MaxAndSkipObservation",
    "RepeatAction",
    "RescaleAction",
    "RescaleObservation",
    "ReshapeObservation",
    "ResizeObservation",
    "StickyAction",
    "TimeAwareObservation",
    "TimeLimit",
)


class Wrapper(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A wrapper of `gymnasium.wrappers` by name, with its arguments."""

    name: str
    options: Options = {}


class Gym(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment by its Gymnasium id, with its arguments and wrappers, innermost first."""

    together: ClassVar[bool] = False

    id: Annotated[str, msgspec.Meta(max_length=200)]
    options: Options = {}
    wrappers: Annotated[list[Wrapper | str], msgspec.Meta(max_length=16)] = []
    lanes: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16

    def __post_init__(self) -> None:
        if ":" in self.id:
            raise InputError(
                f"id: {self.id!r} names a module, and that is code; "
                "name it in `imports` and give the id alone"
            )
        if self.id.startswith("Gym"):
            raise InputError(f"id: {self.id!r} would load any environment of another package")
        given = [w if isinstance(w, Wrapper) else Wrapper(w) for w in self.wrappers]
        for wrapper in given:
            if wrapper.name not in WRAPPERS:
                hint = nearest(wrapper.name, WRAPPERS)
                raise InputError(f"wrappers: {wrapper.name!r} is not one of them; {hint}")
        for options in (self.options, *(w.options for w in given)):
            _check_options(options)
        msgspec.structs.force_setattr(self, "wrappers", given)

    def space(self) -> Space:
        """The spaces of the environment."""
        environment = _stage(self).lane(0)
        about = f"task gym: {self.id}"
        return of_gymnasium(about, environment.observation_space, environment.action_space)

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play each player's episodes side by side."""
        outcomes: dict[int, Outcome] = {}
        mine: dict[int, list[int]] = {}
        for number, episode in enumerate(episodes):
            mine.setdefault(episode.player, []).append(number)
        try:
            for player, numbers in mine.items():
                policy = players.policy(player)
                own = [episodes[i] for i in numbers]
                found = _play(_stage(self), policy, own, players.counting)
                outcomes.update(zip(numbers, found, strict=True))
        except Exception:
            self.close()  # an environment that failed is not played again
            raise
        return [outcomes[i] for i in range(len(episodes))]

    def film(self, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
        """Play one episode and show every step."""
        stage = _Stage(self, drawn=drawn)
        try:
            return _play(stage, players.policy(episode.player), [episode], False, watch)[0]
        finally:
            stage.close()

    def close(self) -> None:
        """Close the environments."""
        _stage(self).close()


class _Stage:
    """Environments of one kind, opened when a lane is first used and kept for the next episode."""

    def __init__(self, task: Gym, *, drawn: bool = False) -> None:
        self.task = task
        self.drawn = drawn
        self.opened: list[gymnasium.Env[Any, Any]] = []
        self.space: Space | None = None

    def lane(self, number: int) -> gymnasium.Env[Any, Any]:
        while len(self.opened) <= number:
            self.opened.append(_make(self.task, drawn=self.drawn))
        return self.opened[number]

    def close(self) -> None:
        while self.opened:
            environment = self.opened.pop()
            with contextlib.suppress(Exception):  # it may be broken already
                environment.close()


def _stage(task: Gym) -> _Stage:
    return _stages(msgspec.json.encode(task))


@lru_cache(maxsize=8)
def _stages(settings: bytes) -> _Stage:
    return _Stage(msgspec.json.decode(settings, type=Gym))


def _make(task: Gym, *, drawn: bool = False) -> gymnasium.Env[Any, Any]:
    if task.id not in gymnasium.registry:
        hint = nearest(task.id, gymnasium.registry)
        hint = (
            hint
            if hint.startswith("did")
            else "is the module that registers it in `imports`, or given by --import?"
        )
        raise InputError(f"task gym: id: {task.id!r} is not registered with Gymnasium; {hint}")
    options = _tuples(task.options)
    if drawn:
        plain = _make(task)
        modes = plain.metadata.get("render_modes") or []
        plain.close()
        if "rgb_array" not in modes:
            raise undrawable(f"{task.id} draws none")
        options["render_mode"] = "rgb_array"
    try:
        environment = gymnasium.make(task.id, disable_env_checker=True, **options)
        for wrapper in task.wrappers:
            assert isinstance(wrapper, Wrapper)
            kind = getattr(gymnasium.wrappers, wrapper.name)
            environment = kind(environment, **_tuples(wrapper.options))
    except InputError:
        raise
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}")
        raise InputError(f"task gym: {task.id} cannot be made: {reason}") from None
    return environment


def _check_options(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if name == "render_mode":
            raise InputError("options: render_mode is not for training; see germline play")
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and _PATH.search(text) for text in texts):
            raise InputError(f"options: {name}: {value!r} looks like a path or a module; refused")


def _tuples(options: Options) -> dict[str, Any]:
    """Lists as tuples, which is what Gymnasium's shapes are."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}


def _width(lanes: int, episodes: int) -> int:
    """A power of two, so that few sizes are compiled."""
    return min(lanes, 1 << (episodes - 1).bit_length())


class _Lane:
    """An episode under way."""

    def __init__(self, environment: gymnasium.Env[Any, Any], space: Space, counting: bool) -> None:
        self.environment = environment
        self.space = space
        self.number: int | None = None
        self.totals = np.zeros((2, *space.observation)) if counting else None

    def start(self, number: int, episode: Episode) -> Array:
        self.number, self.cap = number, episode.cap
        self.score, self.steps = 0.0, 0
        if self.totals is not None:
            self.totals = np.zeros_like(self.totals)
        obs, info = self.environment.reset(seed=episode.seed)
        self.frame = info.get("episode_frame_number")
        return self._seen(obs)

    def step(self, action: Array) -> tuple[Array, Outcome | None]:
        """The next observation, and the outcome if that was the end."""
        obs, reward, terminated, truncated, info = self.environment.step(action)
        self.score += float(reward)
        self.steps += 1
        capped = self.cap is not None and self.steps >= self.cap
        end = TERMINATED if terminated else LIMIT if truncated else CAPPED if capped else ""
        return self._seen(obs), self._outcome(end, info) if end else None

    def count(self, obs: Array) -> None:
        """Add an observation that the policy sees to the sums."""
        if self.totals is not None:
            self.totals[0] += obs
            self.totals[1] += np.square(obs, dtype=np.float64)

    def shot(self, action: Array | None, end: str, *, drawn: bool) -> Shot:
        """What can be seen now."""
        picture = None
        if drawn:
            try:
                picture = np.asarray(self.environment.render(), np.uint8)
            except gymnasium.error.DependencyNotInstalled:
                raise no_pygame() from None
            except Exception as error:
                raise undrawable(shorten(f"{type(error).__name__}: {error}")) from None
        pace = int(self.environment.metadata.get("render_fps") or 30)
        return Shot(self.steps, action, self.score, end, picture, pace)

    def _seen(self, obs: Any) -> Array:  # noqa: ANN401 - as the environment gives it
        kind = self.environment.observation_space
        if not isinstance(kind, spaces.Box):
            obs = spaces.flatten(kind, obs)
        return np.asarray(obs, self.space.dtype)

    def _outcome(self, end: str, info: Mapping[str, Any]) -> Outcome:
        # An emulator counts its own frames: the last step of an episode is often cut short.
        frames = self.steps
        if self.frame is not None:
            frames = int(info["episode_frame_number"]) - int(self.frame)
        sums = None
        if self.totals is not None:
            total, squares = (tuple(part.ravel().tolist()) for part in self.totals)
            sums = Sums(self.steps, total, squares)
        return Outcome(self.score, self.steps, frames, end, (), sums)


def _play(
    stage: _Stage,
    policy: Policy,
    episodes: Sequence[Episode],
    counting: bool,
    watch: Watch | None = None,
) -> list[Outcome]:
    """Play one player's episodes in lanes; a lane that is done takes the next episode."""
    space = stage.space = stage.space or stage.task.space()
    width = _width(stage.task.lanes, len(episodes))
    lanes = [_Lane(stage.lane(i), space, counting) for i in range(width)]
    act = _act if all_arrays(policy) else _act_any
    single = space.head is None and not space.sizes and not space.binary
    queue = deque(enumerate(episodes))
    outcomes: dict[int, Outcome] = {}
    seen = np.zeros((width, *space.observation), space.dtype)
    fresh = np.ones(width, bool)
    carry = _initial(policy, width)
    for i, lane in enumerate(lanes):
        if queue:
            seen[i] = lane.start(*queue.popleft())
            if watch is not None:
                watch(lane.shot(None, "", drawn=stage.drawn))
    while len(outcomes) < len(episodes):
        actions, carry = act(space, policy, seen, carry, fresh)
        chosen = np.asarray(actions)
        fresh[:] = False
        for i, lane in enumerate(lanes):
            if lane.number is None:
                continue
            lane.count(seen[i])
            action = int(chosen[i]) if single else np.asarray(chosen[i])
            seen[i], outcome = lane.step(action)
            if watch is not None:
                watch(lane.shot(action, outcome.end if outcome else "", drawn=stage.drawn))
            if outcome is None:
                continue
            outcomes[lane.number] = outcome
            lane.number = None
            if queue:
                seen[i] = lane.start(*queue.popleft())
                fresh[i] = True
    return [outcomes[i] for i in range(len(episodes))]


def _initial(policy: Policy, width: int) -> Carry:
    return jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * width), policy.initial_carry())


def _acted(
    space: Space, policy: Policy, obs: Array, carry: Carry, fresh: Array
) -> tuple[Array, Carry]:
    """Actions and carries for observations [lanes, ...]; a fresh lane has forgotten its carry."""
    start = policy.initial_carry()

    def one(obs: Array, carry: Carry, fresh: Array) -> tuple[Array, Carry]:
        carry = jax.tree.map(lambda old, new: jnp.where(fresh, new, old), carry, start)
        output, carry = policy(obs, carry)
        return space.action(output), carry

    return jax.vmap(one)(obs, carry, fresh)


_act = partial(jax.jit, static_argnames="space")(_acted)
_act_any = eqx.filter_jit(_acted)
