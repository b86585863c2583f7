"""Atari games from pixels, by the protocol of "Deep Neuroevolution" unless told otherwise.

An episode is addressed by its seed and cheap to begin: the emulator goes back to the state it had
after its first start, and all that is left to chance, such as the number of no-ops, is drawn from
the seed. What a policy sees is defined in whole numbers (`pixels.py`), so it is the same on every
machine.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from germline import draws
from germline.draws import Purpose
from germline.errors import InputError
from germline.policies.protocols import Array
from germline.settings import nearest
from germline.tasks import behaviours, spaces
from germline.tasks.film import Shot, Watch
from germline.tasks.on_host import lockstep
from germline.tasks.on_host.lanes import Stage
from germline.tasks.pixels import MAX_SIDE, Pixels, Resize
from germline.tasks.players import Players
from germline.tasks.protocols import CAPPED, LIMIT, TERMINATED, Episode, Outcome
from germline.tasks.spaces import Space

FRAMES_PER_SECOND = 60
_DRAWN = 1024  # how many numbers are drawn at once

Side = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIDE)]
Skip = Annotated[int, msgspec.Meta(ge=1, le=60)]
# Not tuple[Skip, Skip]: msgspec 0.22 crashes on a fixed tuple beside a bounded number.
Skips = Annotated[tuple[Skip, ...], msgspec.Meta(min_length=2, max_length=2)]


class Atari(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A game by the name of its ROM in ale-py, such as frostbite or ms_pacman.

    An action is held for `skip` frames, or for a random number of them from `skip[0]` to `skip[1]`.
    The last two frames are `pool`ed: of each pixel, the brighter one. They are made gray or left
    in rgb `color`, resized to `size` (rows, columns), and the last `stack` of them are seen, the
    newest last. An episode begins after 1 to `noops` frames without action and ends after `limit`
    actions; with `episodic_life`, when a life is lost. With probability `sticky`, a frame repeats
    the action of the frame before.

    `behaviour` is what novelty is measured by: "ram" for the console's memory at the end, or the
    name of a function of yours; see `behaviours`.
    """

    together: ClassVar[bool] = False

    game: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
    skip: Skip | Skips = 4
    pool: bool = True
    color: Literal["gray", "rgb"] = "gray"
    size: tuple[Side, Side] = (84, 84)
    resize: Resize = "area"
    stack: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4
    noops: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 30
    sticky: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    actions: Literal["minimal", "full"] = "minimal"
    episodic_life: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=2**24)] = 5000
    lanes: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    behaviour: behaviours.Title | None = None

    def __post_init__(self) -> None:
        if isinstance(self.skip, tuple) and self.skip[0] > self.skip[1]:
            raise InputError(f"skip: {list(self.skip)} is not from the fewest to the most frames")

    def space(self) -> Space:
        """Pixels, and the actions of the game."""
        lane = _stage(self).lane(0)
        return spaces.discrete(lane.eyes.observation, "uint8", len(lane.actions))

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play each player's episodes side by side."""
        eyes = self.eyes()
        return lockstep.play(_stage(self), self.space(), eyes, players, episodes, self.lanes)

    def eyes(self) -> Pixels:
        """How pictures of the screen become what a policy sees."""
        return _stage(self).lane(0).eyes

    def lane(self, *, counting: bool = False) -> "Console":
        """Open an emulator; there is nothing to count in pixels."""
        return Console(self)

    def film(self, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
        """Play one episode and show every step, at the screen's full size and in colour."""
        stage = Stage(partial(Console, self, drawn=drawn))
        try:
            eyes = stage.lane(0).eyes
            return lockstep.play(stage, self.space(), eyes, players, [episode], 1, watch)[0]
        finally:
            stage.close()

    def close(self) -> None:
        """Let go of the emulators."""
        _stage(self).close()


def _stage(task: Atari) -> "Stage[Console]":
    return _stages(msgspec.json.encode(task))


@lru_cache(maxsize=8)
def _stages(settings: bytes) -> "Stage[Console]":
    return Stage(partial(Console, msgspec.json.decode(settings, type=Atari)))


class Console:
    """An emulator, and the episode under way in it."""

    def __init__(self, task: Atari, *, drawn: bool = False) -> None:
        self.task = task
        self.drawn = drawn
        self.described = None
        if task.behaviour is not None:
            self.described = behaviours.find("atari", task.behaviour, {"ram": _ram})
        self.ale = _emulator(task.game)
        full = task.actions == "full"
        legal = self.ale.getLegalActionSet() if full else self.ale.getMinimalActionSet()
        self.actions = list(legal)
        self.begun = self.ale.cloneState(include_rng=True)
        rgb = task.color == "rgb"
        screen = (*self.ale.getScreenDims(), *((3,) if rgb else ()))
        self.take = self.ale.getScreenRGB if rgb else self.ale.getScreenGrayscale
        self.first = np.zeros(screen, np.uint8)
        self.take(self.first)
        self.opening = self.ale.getScreenRGB()
        self.picture = self.opening
        self.eyes = Pixels(
            screen=screen,
            frames=2 if task.pool else 1,
            size=task.size,
            resize=task.resize,
            stack=task.stack,
        )

    def start(self, episode: Episode, into: Array) -> None:
        """Go back to the beginning, and wait for as many frames as the seed says."""
        task, ale = self.task, self.ale
        self.seed, self.cap = episode.seed, episode.cap
        self.score, self.steps = 0.0, 0
        self.held, self.repeats = self.actions[0], _Chance(self.seed, Purpose.STICKY)
        self.skips = _Chance(self.seed, Purpose.SKIP)
        ale.restoreState(self.begun)
        waits = 0
        if task.noops:
            waits = 1 + int(
                draws.below(task.noops, draws.draw(self.seed, Purpose.NOOPS, 0, [0]))[0]
            )
        for _ in range(waits):
            ale.act(0)
        if ale.game_over():
            ale.restoreState(self.begun)
            waits = 0
        # The emulator does not restore its screen with its state.
        into[...] = self.first
        self.picture = self.opening
        if waits:
            for place in into:
                self.take(place)
            if self.drawn:
                self.picture = ale.getScreenRGB()
        self.lives = ale.lives()
        self.frame = ale.getEpisodeFrameNumber()

    def step(self, action: int, into: Array) -> Outcome | None:
        """Hold an action for some frames, and take the last of them."""
        task, ale = self.task, self.ale
        code = self.actions[action]
        skip = task.skip
        if isinstance(skip, tuple):
            skip = skip[0] + self.skips.below(skip[1] - skip[0] + 1)
        reward, over, before = 0, False, None
        for left in range(skip - 1, -1, -1):
            reward += ale.act(self._sticky(code) if task.sticky else code)
            over = ale.game_over() or (task.episodic_life and self._lost())
            if left == 1 and task.pool:
                self.take(into[0])
                before = ale.getScreenRGB() if self.drawn else None
            if over:
                break
        self.take(into[-1])
        if skip == 1 and task.pool:
            into[0] = into[1]
        if self.drawn:
            self.picture = ale.getScreenRGB()
            if before is not None:
                self.picture = np.maximum(self.picture, before)
        self.score += reward
        self.steps += 1
        if over:
            return self._outcome(TERMINATED)
        if self.steps >= task.limit:
            return self._outcome(LIMIT)
        return self._outcome(CAPPED) if self.steps == self.cap else None

    def shot(self, action: Array | None, end: str) -> Shot:
        """The screen as it is; of pooled frames, the brighter pixels."""
        skip = self.task.skip
        mean = sum(skip) / 2 if isinstance(skip, tuple) else skip
        pace = max(1, round(FRAMES_PER_SECOND / mean))
        return Shot(self.steps, action, self.score, end, self.picture if self.drawn else None, pace)

    def close(self) -> None:
        """Nothing is open; the emulator goes with its lane."""

    def _lost(self) -> bool:
        """Whether this frame cost a life."""
        before, self.lives = self.lives, self.ale.lives()
        return bool(self.lives < before)

    def _sticky(self, code: Any) -> Any:  # noqa: ANN401 - an action of ale-py
        """The action of this frame: the one before, if chance will have it."""
        if not self.repeats.happens(self.task.sticky):
            self.held = code
        return self.held

    def _outcome(self, end: str) -> Outcome:
        # The emulator's own counter: the last action is often cut short.
        frames = self.ale.getEpisodeFrameNumber() - self.frame
        found = () if self.described is None else behaviours.numbers(self.described(self.ale))
        return Outcome(self.score, self.steps, frames, end, found)


class _Chance:
    """Numbers drawn one after another from an episode's seed, for one purpose."""

    def __init__(self, seed: int, purpose: Purpose) -> None:
        self.seed, self.purpose = seed, purpose
        self.used = 0
        self.bits = np.zeros(0, np.uint32)

    def below(self, limit: int) -> int:
        """A whole number below `limit`."""
        return self._next() * limit >> 32

    def happens(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self._next() < round(probability * 2**32)

    def _next(self) -> int:
        place = self.used % _DRAWN
        if not place:
            which = np.arange(self.used, self.used + _DRAWN, dtype=np.uint32)
            self.bits = draws.draw(self.seed, self.purpose, 0, which)
        self.used += 1
        return int(self.bits[place])


def _ram(ale: Any) -> Array:  # noqa: ANN401 - ale-py's interface
    return ale.getRAM()


def _emulator(game: str) -> Any:  # noqa: ANN401 - ale-py's interface
    """An emulator that has just been started, always in the same state."""
    try:
        import ale_py
        from ale_py import roms
    except ImportError:
        raise InputError(
            "task atari: ale-py is not here, add it with: pip install 'germline[atari]'"
        ) from None
    known = roms.get_all_rom_ids()
    if game not in known:
        raise InputError(f"task atari: game: {game!r} is no game of ale-py; {nearest(game, known)}")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 1)
    ale.setFloat("repeat_action_probability", 0.0)  # chance is ours
    ale.setInt("max_num_frames_per_episode", 0)
    ale.loadROM(str(roms.get_rom_path(game)))
    ale.reset_game()
    return ale
