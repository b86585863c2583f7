"""Tasks on the device: whole populations at once, and never a step for the dead.

One compiled program, see `rollout`, plays the queue of (player, episode). Here is how wide it is,
what is put into one call of it, and how the queue is dealt out to several devices.
"""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from germline.decode import Recipe
from germline.errors import InputError, told
from germline.messages import Sums
from germline.policies.protocols import Array
from germline.tasks import behaviours, protocols
from germline.tasks.film import Shot, Watch
from germline.tasks.on_device import sizes
from germline.tasks.on_device.dynamics import Dynamics
from germline.tasks.on_device.rollout import (
    MAX_STEPS,
    Game,
    Program,
    Results,
    begun,
    environment,
    moved,
    run,
)
from germline.tasks.on_device.sizes import padded
from germline.tasks.players import Players
from germline.tasks.protocols import Episode, Outcome
from germline.tasks.spaces import Space

MOST_EPISODES = 2**20  # in one call

_ENDS = ("", protocols.TERMINATED, protocols.LIMIT, protocols.CAPPED)
_log = logging.getLogger("germline")


class DeviceTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a task that is played on the device.

    `slots` episodes are under way at a time, looked after every `segment` steps; if not said, as
    suits the device. `limit` replaces the environment's own time limit.
    """

    together: ClassVar[bool] = True

    slots: Annotated[int, msgspec.Meta(ge=1, le=2**20)] | None = None
    segment: Annotated[int, msgspec.Meta(ge=1, le=2**10)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)] | None = None

    @abstractmethod
    def dynamics(self) -> Dynamics:
        """Make the environment; `rollout.environment` keeps it."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return type(self).__name__.lower()

    def space(self) -> Space:
        """The space of the environment."""
        return environment(self).space

    def describes(self) -> bool:
        """Whether it says what an episode is told from others by; traced, and never played."""
        played = environment(self)

        def first() -> object:
            found = played.behaviour(*played.reset(jax.random.key(0)))
            return None if found is None else behaviours.traced(found)

        try:
            return jax.eval_shape(first) is not None
        except Exception as error:
            reason = told(error)
            raise InputError(f"task {self.title}: behaviour: {reason}") from None

    def play(self, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
        """Play all episodes, in one call of a compiled program if memory allows."""
        program = self.program(players, counting=players.counting, wide=sizes.accelerated())
        return played(program, players, episodes)

    def film(self, players: Players, episode: Episode, watch: Watch, *, drawn: bool) -> Outcome:
        """Play one episode and show every step; all slots play it, so that steps have one shape."""
        program = self.program(players, counting=False, wide=sizes.accelerated())
        program = _fitting(program, _halvings.get(_case(program, players), 0))
        played_in = program.environment
        recipe, (queue,), _ = _dealt(players, [episode], 1)
        seats = begun(program, players.build, recipe, queue)
        action = None
        while True:
            slots = seats[1]
            score, step, end, state = jax.tree.map(
                lambda leaf: np.asarray(leaf)[0], (slots.score, slots.steps, slots.end, slots.state)
            )
            picture = played_in.picture(state) if drawn else None
            found = _ENDS[int(end)]
            watch(Shot(int(step), action, float(score), found, picture, played_in.pace))
            if found:
                numbers = [n for part in slots.behaviour for n in np.asarray(part)[0].tolist()]
                return Outcome(float(score), int(step), int(step), found, tuple(numbers))
            actions, slots = moved(program, players.build, recipe, queue, seats)
            seats, action = (seats[0], slots), np.asarray(actions)[0]

    def close(self) -> None:
        """Nothing was opened."""

    def program(self, players: Players, *, counting: bool, wide: bool) -> Program:
        """The program for players of one network; `wide` is the way of accelerators."""
        one = Program(self, 1, self.segment or 8, counting)
        if not wide:
            return one._replace(slots=self.slots or sizes.core_slots(players.decoder.layout.size))
        slots = self.slots or sizes.accelerator_slots(_bytes_of_a_slot(one, players))
        # To start a kernel takes longer than to decode a small network in vain.
        block = min(slots, max(16, slots // 4))
        return one._replace(slots=slots, segment=self.segment or 16, block=block)


def played(program: Program, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
    """Play episodes on all local devices, in as many calls as memory makes necessary.

    What a device has no memory for is played again with half as much at a time.
    """
    outcomes: list[Outcome] = []
    case = _case(program, players)
    while len(outcomes) < len(episodes):
        halvings = _halvings.get(case, 0)
        fitting = _fitting(program, halvings)
        most = max(1, _most_episodes(program, players) >> halvings)
        part = episodes[len(outcomes) : len(outcomes) + most]
        try:
            outcomes += _outcomes(fitting, players, part)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) or fitting.slots == 1:
                raise
            _halvings[case] = halvings + 1
            fewer = _fitting(program, halvings + 1).slots
            _log.warning(
                "task %s: the device has no memory for %s episodes at a time; "
                "from now on %s, which may round differently",
                *(program.task.title, f"{fitting.slots:,}", f"{fewer:,}"),
            )
    return outcomes


_Case = tuple[Program, str, str]
_halvings: dict[_Case, int] = {}
_bytes: dict[_Case, int] = {}


def _case(program: Program, players: Players) -> _Case:
    """What decides how much memory a slot takes; whether sums are taken shall not."""
    kind = program._replace(counting=True)
    return kind, players.decoder.layout.digest, players.arithmetic


def _fitting(program: Program, halvings: int) -> Program:
    """A program so many times narrower."""
    slots = max(1, program.slots >> halvings)
    return program._replace(slots=slots, block=program.block and min(program.block, slots))


def _most_episodes(program: Program, players: Players) -> int:
    """How many episodes a call can have; few if the weights of so many players could not be held.

    Players of several kinds are decoded before they play.
    """
    share = sizes.share_of_memory()
    held = sizes.power_within(share // (4 * players.decoder.layout.size))
    observation = int(np.prod(program.environment.space.observation, dtype=np.int64))
    waiting = sizes.power_within(share // (24 + 12 * observation))
    return min(MOST_EPISODES, waiting if len(players) <= held else held)


def _bytes_of_a_slot(program: Program, players: Players) -> int:
    """The bytes of a player's arrays and of an episode under way."""
    case = _case(program, players)
    if case not in _bytes:

        def start() -> object:
            weights, queue = jnp.zeros(players.decoder.layout.size), jnp.zeros((3, 1), jnp.int32)
            return Game(case[0], players.build, lambda _: weights, queue).start(jnp.int32(0))

        leaves = jax.tree.leaves(jax.eval_shape(start))
        _bytes[case] = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    return _bytes[case]


def _dealt(
    players: Players, episodes: Sequence[Episode], devices: int
) -> tuple[Recipe, Array, Array]:
    """The players who play, queues [devices, 3, episodes] that take turns, and their lengths."""
    present, numbers = np.unique([e.player for e in episodes], return_inverse=True)
    caps = [MAX_STEPS if e.cap is None else e.cap for e in episodes]
    every = np.empty((3, len(episodes)), np.int32)
    every[:] = numbers, [e.seed for e in episodes], caps
    parts = [every[:, device::devices] for device in range(devices)]
    queues = np.zeros((devices, 3, padded(parts[0].shape[1])), np.int32)
    for queue, part in zip(queues, parts, strict=True):
        queue[:, : part.shape[1]] = part
    genomes = [players.genomes[number] for number in present.tolist()]
    recipe = players.decoder.recipe(genomes, padded(len(genomes)))
    return recipe, queues, np.array([part.shape[1] for part in parts], np.int32)


def _outcomes(program: Program, players: Players, episodes: Sequence[Episode]) -> list[Outcome]:
    """The outcomes of one call."""
    recipe, queues, lengths = _dealt(players, episodes, len(jax.local_devices()))
    results = run(program, players.build, recipe, queues, lengths)
    scores, steps, ends, *rest = _gathered(results, len(episodes))
    rows = zip(scores.astype(np.float64).tolist(), steps.tolist(), ends.tolist(), strict=True)
    outcomes = [Outcome(score, n, n, _ENDS[end]) for score, n, end in rows]
    totals = rest[-3:] if program.counting else ()
    for described in rest[: len(rest) - len(totals)]:
        numbers = described.astype(np.float64).tolist()
        outcomes = [o._replace(behaviour=tuple(n)) for o, n in zip(outcomes, numbers, strict=True)]
    if not totals:
        return outcomes
    gone, squared, first = (p.reshape(len(episodes), -1).astype(np.float64) for p in totals)
    counts = steps[:, None].astype(np.float64)
    total = (counts * first + gone).tolist()
    squares = (squared + 2 * first * gone + counts * first**2).tolist()
    return [
        o._replace(sums=Sums(o.steps, tuple(t), tuple(s)))
        for o, t, s in zip(outcomes, total, squares, strict=True)
    ]


def _gathered(results: Results, count: int) -> list[np.ndarray]:
    """Results [devices, episodes, ...] in the order in which the episodes were dealt out."""
    parts = [np.asarray(part) for part in results]
    return [np.swapaxes(p, 0, 1).reshape(-1, *p.shape[2:])[:count] for p in parts]
