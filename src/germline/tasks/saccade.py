"""Saccades: a small window moves over a picture to find a figure and to say which one it is.

Every episode has another picture: one of a few figures somewhere in noise, and a glow that grows
towards it. Only what is in the window is seen. At each step a policy moves the window and says
which figure it believes to be there; what it says last counts.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.errors import InputError
from germline.policies.protocols import Array
from germline.tasks.on_device.dynamics import Dynamics
from germline.tasks.on_device.rollout import MAX_STEPS
from germline.tasks.on_device.task import DeviceTask
from germline.tasks.spaces import Space

SIDE = 8  # of a figure, and of the window
STEP = 4  # that the window moves by; figures lie on multiples of it
MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))  # stay, up, down, left, right

# About half of each is lit, so that none is told by its brightness alone.
FIGURES = {
    "ring": "..####.. .######. ##....## ##....## ##....## ##....## .######. ..####..",
    "cross": "##....## ###..### .######. ..####.. ..####.. .######. ###..### ##....##",
    "plus": "...##... ...##... ...##... ######## ######## ...##... ...##... ...##...",
    "stripes": "######## ######## ........ ........ ######## ######## ........ ........",
    "bars": "##..##.. ##..##.. ##..##.. ##..##.. ##..##.. ##..##.. ##..##.. ##..##..",
    "tee": "######## ######## ...##... ...##... ...##... ...##... ...##... ...##...",
    "wedge": "#....... ##...... ###..... ####.... #####... ######.. #######. ########",
    "checks": "##..##.. ##..##.. ..##..## ..##..## ##..##.. ##..##.. ..##..## ..##..##",
}
SHAPES = np.array([[[c == "#" for c in row] for row in f.split()] for f in FIGURES.values()])

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Saccade(DeviceTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A picture of `size` by `size` pixels with one of so many `figures`, and `limit` looks.

    `glow` is the share of its brightness that the ground loses with the distance from the figure;
    with 0 nothing shows the way. `noise` is the share of every pixel that is chance.
    """

    figures: Annotated[int, msgspec.Meta(ge=2, le=len(FIGURES))] = 4
    size: Annotated[int, msgspec.Meta(ge=SIDE, le=256)] = 32
    glow: Share = 1.0
    noise: Share = 0.2
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] = 10

    def __post_init__(self) -> None:
        if self.size % STEP:
            raise InputError(f"size: {self.size} is not a multiple of {STEP}")

    def dynamics(self) -> Dynamics:
        """The picture and the window."""
        return Looking(self.figures, self.size, self.glow, self.noise, self.limit)


class State(NamedTuple):
    """A picture and where it is looked at."""

    image: Array  # uint8 [size, size]
    figure: Array  # which one it is
    place: Array  # [2], row and column of its corner
    window: Array  # [2], row and column of the window's
    answer: Array  # what was said last; -1 before the first


@dataclass(frozen=True)
class Looking:
    """The dynamics. Seen are the window's pixels and its row and column, all from -1 to 1."""

    figures: int
    size: int
    glow: float
    noise: float
    limit: int
    pace = 3

    @property
    def space(self) -> Space:
        """A move and an answer at every step."""
        sizes = (len(MOVES), self.figures)
        return Space((SIDE * SIDE + 2,), "float32", sum(sizes), sizes=sizes)

    def reset(self, key: Array) -> tuple[State, Array]:
        """Draw another picture; the window begins in the middle."""
        which, where, chance = jax.random.split(key, 3)
        places = (self.size - SIDE) // STEP + 1
        figure = jax.random.randint(which, (), 0, self.figures)
        place = jax.random.randint(where, (2,), 0, places) * STEP
        image = self._image(figure, place, chance)
        middle = jnp.full(2, places // 2 * STEP, jnp.int32)
        state = State(image, figure, place, middle, jnp.int32(-1))
        return state, self._seen(state)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Move the window and hear an answer; the score is at all times whether the last is right.

        Nothing here is random.
        """
        move, answer = jnp.asarray(action, jnp.int32)
        moved = state.window + jnp.asarray(MOVES, jnp.int32)[move] * STEP
        after = state._replace(window=jnp.clip(moved, 0, self.size - SIDE), answer=answer)
        right, before = (
            (said == state.figure).astype(jnp.float32) for said in (answer, state.answer)
        )
        return after, self._seen(after), right - before, jnp.bool_(False)

    def behaviour(self, state: State, obs: Array) -> Array:
        """Whether the window frames the figure, and whether the answer is right."""
        found, right = (state.window == state.place).all(), state.answer == state.figure
        return jnp.stack([found, right]).astype(jnp.float32)

    def picture(self, state: State) -> Array:
        """The whole picture and the window's frame; below are the figures, the answer marked."""
        image, figure, _, window, answer = map(np.asarray, state)
        return _picture(image, int(figure), window, int(answer), self.figures)

    def _image(self, figure: Array, place: Array, key: Array) -> Array:
        """Noise and glow [size, size], and the figure in it."""
        noise = jax.random.uniform(key, (self.size, self.size))
        grid = jnp.arange(self.size, dtype=jnp.float32)
        rows, columns = (grid - (corner + (SIDE - 1) / 2) for corner in place.astype(jnp.float32))
        distance = jnp.hypot(rows[:, None], columns[None])
        # As bright as a figure on average where it is, and darkest two thirds of a picture away.
        ground = (1 - self.glow * jnp.minimum(1, distance * (1.5 / self.size))) / 2
        shape = jnp.asarray(SHAPES, jnp.float32)[figure]
        whole = jax.lax.dynamic_update_slice(ground, shape, place)
        mixed = (1 - self.noise) * whole + self.noise * noise
        return jnp.clip(jnp.rint(255 * mixed), 0, 255).astype(jnp.uint8)

    def _seen(self, state: State) -> Array:
        crop = jax.lax.dynamic_slice(state.image, state.window, (SIDE, SIDE))
        pixels = crop.astype(jnp.float32).reshape(-1) / 127.5 - 1
        most = max(1, self.size - SIDE)
        at = state.window.astype(jnp.float32) * (2 / most) - 1
        return jnp.concatenate([pixels, at])


SCALE = 8  # of the picture in a film
ROOM = SIDE * SCALE // 2 + 16  # for a figure below it, half as large
GREEN, RED, GREY = (0, 200, 120), (230, 90, 0), (170, 180, 195)


def _picture(image: Array, figure: int, window: Array, answer: int, figures: int) -> Array:
    colour = GREY if answer < 0 else GREEN if answer == figure else RED
    side = len(image) * SCALE
    drawn = np.zeros((side + ROOM, max(side, figures * ROOM), 3), np.uint8)
    drawn[:side, :side] = _enlarged(image, SCALE)
    row, column = (window * SCALE).tolist()
    _frame(drawn, row, column, SIDE * SCALE, colour)
    for number in range(figures):
        left = number * ROOM
        shape = _enlarged(SHAPES[number] * np.uint8(220), SCALE // 2)
        drawn[side + 8 : side + ROOM - 8, left + 8 : left + ROOM - 8] = shape
        if number == answer:
            _frame(drawn, side + 3, left + 3, ROOM - 6, colour)
    return drawn


def _enlarged(pixels: Array, factor: int) -> Array:
    """Pixels [height, width] as squares of one grey [height, width, 1]."""
    return np.kron(pixels, np.ones((factor, factor), np.uint8))[..., None]


def _frame(drawn: Array, row: int, column: int, side: int, colour: tuple[int, int, int]) -> None:
    """Draw a square's outline, 3 wide."""
    inner = drawn[row + 3 : row + side - 3, column + 3 : column + side - 3].copy()
    drawn[row : row + side, column : column + side] = colour
    drawn[row + 3 : row + side - 3, column + 3 : column + side - 3] = inner
