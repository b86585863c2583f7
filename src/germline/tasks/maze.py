"""The hard maze: whoever heads for the goal ends in a dead end beside it.

The walls, the robot and its senses are those of the novelty-search literature, "Abandoning
Objectives: Evolution through the Search for Novelty Alone" (Lehman and Stanley, 2011), and the
picture is that of "Deep Neuroevolution" (Such et al., 2017). x grows to the right, y downwards,
and angles clockwise, in degrees. Nothing is random: all episodes of a player are the same.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.policies.protocols import Array
from germline.tasks.on_device.task import DeviceTask
from germline.tasks.spaces import Space, continuous

SIDE = 206.0  # of the square that all walls lie in, its corner at (0, 0)
START, GOAL = np.array([[36, 184], [31, 20]], np.float32)
WALLS = np.array(  # from (x, y) to (x, y)
    [
        [41, 5, 3, 8],
        [3, 8, 4, 49],
        [4, 49, 57, 53],
        [4, 49, 7, 202],
        [7, 202, 195, 198],
        [195, 198, 186, 8],
        [186, 8, 39, 5],
        [56, 54, 56, 157],
        [57, 106, 158, 162],
        [77, 201, 108, 164],
        [6, 80, 33, 121],
        [192, 146, 87, 91],
        [56, 55, 133, 30],
    ],
    np.float32,
)
RADIUS = 8.0  # of the robot
REACH = 5.0  # nearer to the goal than this, the robot is there
FASTEST = 3.0  # units, and degrees of a turn, in a step
PUSH = 0.5  # the most that a step adds to either
RANGE = 100.0  # of the range finders
FINDERS = (-90, -45, 0, 45, 90, 180)  # left, half left, ahead, half right, right, behind
STEPS = 400

_FINE = 1024  # scores are multiples of 1/1024, so that no order of adding rounds
_FROM, _ALONG = WALLS[:, :2], WALLS[:, 2:] - WALLS[:, :2]
_FAR = float(np.hypot(*(GOAL - START)))


class State(NamedTuple):
    """Where the robot is and how it moves; `score` is the sum of rewards so far."""

    place: Array  # [2]
    heading: Array
    turn: Array  # per step
    speed: Array
    score: Array
    seen: Array  # [stack, 3], x, y and heading of the pictures in view, the newest last


@dataclass(frozen=True)
class Corridors:
    """The maze as an environment; with a `size` it is seen from above."""

    limit: int = STEPS
    size: int | None = None
    stack: int = 1
    pace: int = 40

    @property
    def space(self) -> Space:
        """Range finders and pie slices, or pictures; to turn and to speed up, both -1 to 1."""
        ones = np.ones(2)
        if self.size is None:
            return continuous((len(FINDERS) + 4,), "float32", -ones, ones, (2,))
        return continuous((self.size, self.size, self.stack), "uint8", -ones, ones, (2,))

    def reset(self, key: Array) -> tuple[State, Array]:
        """The robot at its start, at rest and looking to the right."""
        none = jnp.float32(0)
        seen = jnp.tile(jnp.array([*START, 0], jnp.float32), (self.stack, 1))
        state = State(jnp.asarray(START), none, none, none, none, seen)
        return state, self.observed(state)

    def step(self, state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        """Turn and move; a robot that would touch a wall stays where it is, its speed too."""
        turn, speed = jnp.clip(
            jnp.stack([state.turn, state.speed]) + PUSH * action, -FASTEST, FASTEST
        )
        heading = (state.heading + turn) % 360
        ahead = state.place + speed * jnp.stack(_direction(heading))
        place = jnp.where(distances(ahead).min() >= RADIUS, ahead, state.place)
        left = _length(jnp.asarray(GOAL) - place)
        over = left < REACH
        score = jnp.where(over, 100, jnp.rint((1 - left / _FAR) * 100 * _FINE) / _FINE)
        seen = jnp.stack([*state.seen[1:], jnp.stack([*place, heading])])
        after = State(place, heading, turn, speed, score, seen)
        return after, self.observed(after), score - state.score, over

    def observed(self, state: State) -> Array:
        """What the robot senses, or what is seen from above."""
        if self.size is None:
            return jnp.concatenate([ranges(state), slices(state)])
        return jax.vmap(self.stamped, out_axes=-1)(state.seen)

    def stamped(self, pose: Array) -> Array:
        """A picture with the robot on it at (x, y, heading), its front half brighter."""
        assert self.size is not None
        spots = ((np.arange(self.size) + 0.5) * SIDE / self.size).astype(np.float32)
        across, down = spots - pose[0], (spots - pose[1])[:, None]
        ahead, aside = _direction(pose[2])
        inside = across**2 + down**2 < RADIUS**2
        body = jnp.where(across * ahead + down * aside > 0, jnp.uint8(255), jnp.uint8(160))
        return jnp.where(inside, body, self.empty)

    @cached_property
    def empty(self) -> np.ndarray:
        """The picture without a robot [size, size]: walls and the goal."""
        assert self.size is not None
        walls, goal = _drawn(self.size, 0.75 * SIDE / self.size, REACH)
        return np.select([goal, walls], [np.uint8(208), np.uint8(96)], np.uint8(0))

    def behaviour(self, state: State, obs: Array) -> Array:
        """Where the robot is."""
        return state.place

    def picture(self, state: State) -> Array:
        """The maze in colour, with the robot, what its finders feel, and the goal."""
        size = 412
        walls, goal = _drawn(size, 1.0, REACH)
        image = np.full((size, size, 3), 255, np.uint8)
        image[goal] = 46, 160, 67
        image[walls] = 40, 40, 40
        spots = _spots(size)
        place, heading = np.asarray(state.place), float(state.heading)
        for angle, far in zip(FINDERS, np.asarray(_felt(state)), strict=True):
            ahead = np.array(_direction(heading + angle))
            ray = np.linspace(place, place + float(far) * RANGE * ahead, 200)
            columns, rows = np.clip(ray * size / SIDE, 0, size - 1).astype(int).T
            image[rows, columns] = 190, 190, 230
        nose = place + 0.5 * RADIUS * np.array(_direction(heading))
        image[np.linalg.norm(spots - place, axis=-1) < RADIUS] = 60, 90, 200
        image[np.linalg.norm(spots - nose, axis=-1) < RADIUS / 3] = 255, 210, 60
        return image


def distances(place: Array) -> jax.Array:
    """How far a place is from each wall [walls]."""
    offset = place - jnp.asarray(_FROM)
    along = jnp.asarray(_ALONG)
    share = (offset * along).sum(1) / jnp.asarray((_ALONG**2).sum(1))
    return _length(offset - jnp.clip(share, 0, 1)[:, None] * along)


def ranges(state: State) -> jax.Array:
    """How far it is to the next wall in six directions, as shares of the finders' range."""
    ahead, aside = _direction(state.heading)
    turned = np.radians(FINDERS)
    cos, sin = np.cos(turned).astype(np.float32), np.sin(turned).astype(np.float32)
    dx, dy = (ahead * cos - aside * sin)[:, None], (aside * cos + ahead * sin)[:, None]
    ex, ey = jnp.asarray(_ALONG.T)
    wx, wy = (jnp.asarray(_FROM) - state.place).T
    # Both lines are solved for where they meet: a ray `far` away, a wall at a share of its length.
    slope = dx * ey - dy * ex
    slope = jnp.where(slope == 0, 1e-9, slope)
    far, share = (wx * ey - wy * ex) / slope, (wx * dy - wy * dx) / slope
    met = (far >= 0) & (share >= 0) & (share <= 1)
    return jnp.minimum(jnp.where(met, far, RANGE).min(1), RANGE) / RANGE


_felt = jax.jit(ranges)


def slices(state: State) -> jax.Array:
    """In which quarter the goal lies [4]: ahead, right, behind, left."""
    ahead, aside = _direction(state.heading)
    x, y = jnp.asarray(GOAL) - state.place
    front, right = ahead * x + aside * y, ahead * y - aside * x
    one, other = right >= front, right >= -front
    found = jnp.stack([~one & other, one & other, one & ~other, ~one & ~other])
    return found.astype(jnp.float32)


def _length(vector: Array) -> jax.Array:
    """The length of vectors [..., 2]."""
    return jnp.sqrt((vector**2).sum(-1))


def _direction(heading: Array) -> tuple[Array, Array]:
    """A heading in degrees as (x, y)."""
    radians = jnp.radians(heading)
    return jnp.cos(radians), jnp.sin(radians)


def _spots(size: int) -> np.ndarray:
    """The middles of pixels [size, size, 2], as (x, y) in the maze."""
    along = ((np.arange(size) + 0.5) * SIDE / size).astype(np.float32)
    return np.stack(np.meshgrid(along, along), -1)


@lru_cache(maxsize=16)
def _drawn(size: int, width: float, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Which pixels [size, size] are walls, and which are the goal."""
    spots = _spots(size)
    with jax.ensure_compile_time_eval():  # also while a program is traced
        near = np.asarray(jax.vmap(jax.vmap(distances))(jnp.asarray(spots))).min(-1)
    return near < width, np.linalg.norm(spots - GOAL, axis=-1) < radius


class Maze(DeviceTask, frozen=True, forbid_unknown_fields=True):
    """The hard maze.

    `view` is what the robot goes by: "finders", six range finders and four pie slices that tell the
    quarter the goal lies in; or "image", pictures from above, `size` pixels wide and high, of which
    it sees the last `stack`.
    """

    view: Literal["finders", "image"] = "finders"
    size: Annotated[int, msgspec.Meta(ge=16, le=256)] = 84
    stack: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4

    def dynamics(self) -> Corridors:
        """The maze, seen as the settings say."""
        limit = self.limit or STEPS
        if self.view == "finders":
            return Corridors(limit)
        return Corridors(limit, self.size, self.stack)
