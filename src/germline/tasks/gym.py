"""Any registered Gymnasium environment, played on the host."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar

import gymnasium
import msgspec
import numpy as np
from gymnasium import spaces

from germline.errors import InputError, told
from germline.messages import Sums
from germline.policies.protocols import Array
from germline.settings import nearest
from germline.tasks import behaviours
from germline.tasks.film import Shot, Watch, no_pygame, undrawable
from germline.tasks.on_host import lockstep
from germline.tasks.on_host.lanes import PlainEyes, Stage
from germline.tasks.players import Players
from germline.tasks.protocols import CAPPED, LIMIT, TERMINATED, Episode, Outcome
from germline.tasks.spaces import Space, of_gymnasium

Plain = bool | int | float | str | None
Options = dict[str, Plain | list[Plain]]

_PATH = re.compile(r"^[.~]|[/\\:]|\.(xml|json|toml|py|mjb|urdf)$", re.IGNORECASE)

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
    """An environment by its Gymnasium id, with its arguments and wrappers, innermost first.

    `behaviour` is what novelty is measured by: "observation" for the last one, "position" for where
    a MuJoCo body ends, or the name of a function of yours; see `behaviours`.
    """

    together: ClassVar[bool] = False

    id: Annotated[str, msgspec.Meta(max_length=200)]
    options: Options = {}
    wrappers: Annotated[list[Wrapper | str], msgspec.Meta(max_length=16)] = []
    lanes: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    behaviour: behaviours.Title | None = None

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
        return _stage(self).lane(0).space

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play each player's episodes side by side."""
        stage, space = _stage(self), self.space()
        for lane in range(max(players.siblings, min(self.lanes, len(episodes)))):
            stage.lane(lane).counting = players.counting
        try:
            return lockstep.play(stage, space, self.eyes(), players, episodes, self.lanes)
        except Exception:
            self.close()  # an environment that failed is not played again
            raise

    def eyes(self) -> PlainEyes:
        """Observations are seen as they are."""
        return PlainEyes(self.space())

    def lane(self, *, counting: bool = False) -> "_Lane":
        """Open an environment."""
        lane = _Lane(self)
        lane.counting = counting
        return lane

    def film(self, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
        """Play one episode and show every step."""
        stage = Stage(partial(_Lane, self, drawn=drawn))
        try:
            space = stage.lane(0).space
            eyes = PlainEyes(space)
            return lockstep.play(stage, space, eyes, players, [episode], 1, watch)[0]
        finally:
            stage.close()

    def close(self) -> None:
        """Close the environments."""
        _stage(self).close()


def _stage(task: Gym) -> "Stage[_Lane]":
    return _stages(msgspec.json.encode(task))


@lru_cache(maxsize=8)
def _stages(settings: bytes) -> "Stage[_Lane]":
    return Stage(partial(_Lane, msgspec.json.decode(settings, type=Gym)))


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
        reason = told(error)
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


class _Lane:
    """An environment, and the episode under way in it."""

    def __init__(self, task: Gym, *, drawn: bool = False) -> None:
        self.described = None
        if task.behaviour is not None:
            self.described = behaviours.find("gym", task.behaviour, _DESCRIBED)
        self.environment = _make(task, drawn=drawn)
        self.drawn = drawn
        self.counting = False
        about = f"task gym: {task.id}"
        kinds = self.environment.observation_space, self.environment.action_space
        self.space = of_gymnasium(about, *kinds)
        if task.behaviour == "position" and not hasattr(_body(self.environment), "qpos"):
            raise InputError(f"{about}: behaviour: position is for MuJoCo's environments")

    def start(self, episode: Episode, into: Array) -> None:
        """Begin an episode."""
        self.cap, self.score, self.steps = episode.cap, 0.0, 0
        self.totals = np.zeros((2, *self.space.observation)) if self.counting else None
        obs, info = self.environment.reset(seed=episode.seed)
        self.frame = info.get("episode_frame_number")
        into[...] = self._seen(obs)

    def step(self, action: Any, into: Array) -> Outcome | None:  # noqa: ANN401 - int or array
        """Do an action; what the policy saw before it is counted."""
        if self.totals is not None:
            self.totals[0] += into
            self.totals[1] += np.square(into, dtype=np.float64)
        obs, reward, terminated, truncated, info = self.environment.step(action)
        self.score += float(reward)
        self.steps += 1
        into[...] = self._seen(obs)
        capped = self.cap is not None and self.steps >= self.cap
        end = TERMINATED if terminated else LIMIT if truncated else CAPPED if capped else ""
        return self._outcome(end, into, info) if end else None

    def shot(self, action: Array | None, end: str) -> Shot:
        """What can be seen now."""
        picture = None
        if self.drawn:
            try:
                picture = np.asarray(self.environment.render(), np.uint8)
            except gymnasium.error.DependencyNotInstalled:
                raise no_pygame() from None
            except Exception as error:
                raise undrawable(told(error)) from None
        pace = int(self.environment.metadata.get("render_fps") or 30)
        return Shot(self.steps, action, self.score, end, picture, pace)

    def close(self) -> None:
        """Close the environment, which may be broken already."""
        with contextlib.suppress(Exception):
            self.environment.close()

    def _seen(self, obs: Any) -> Array:  # noqa: ANN401 - as the environment gives it
        kind = self.environment.observation_space
        if not isinstance(kind, spaces.Box):
            obs = spaces.flatten(kind, obs)
        return np.asarray(obs, self.space.dtype)

    def _outcome(self, end: str, obs: Array, info: Mapping[str, Any]) -> Outcome:
        # An emulator counts its own frames: the last step of an episode is often cut short.
        frames = self.steps
        if self.frame is not None:
            frames = int(info["episode_frame_number"]) - int(self.frame)
        sums = None
        if self.totals is not None:
            total, squares = (tuple(part.ravel().tolist()) for part in self.totals)
            sums = Sums(self.steps, total, squares)
        found: tuple[float, ...] = ()
        if self.described is not None:
            found = behaviours.numbers(self.described(self.environment, obs, info))
        return Outcome(self.score, self.steps, frames, end, found, sums)


def _position(environment: gymnasium.Env[Any, Any], obs: Array, info: Mapping[str, Any]) -> Array:
    where: Array = np.array(_body(environment).qpos[:2])
    return where


def _body(environment: gymnasium.Env[Any, Any]) -> Any:  # noqa: ANN401 - MuJoCo's data
    return getattr(environment.unwrapped, "data", None)


_DESCRIBED: dict[str, behaviours.Behaviour] = {
    "observation": lambda environment, obs, info: obs,
    "position": _position,
}
