"""One individual at a time, its episodes side by side in lanes that are stepped together.

The network sees the lanes as a batch, and a lane whose episode is over takes the next. How many
lanes there are depends on the request alone, because the size of a batch changes how floats are
rounded. Integers are not rounded, so in exact arithmetic lanes that have nothing left to play are
left out.

Where a run shares products, the lanes are places of a family, in one fixed shape: siblings, each in
a lane of its own, or one of them alone in all. Who was not born by a low-rank mutation has no part
in that and is played as elsewhere.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from germline.policies.protocols import Array, Carry, Policy
from germline.policies.shared_products import Siblings
from germline.tasks.film import Watch
from germline.tasks.on_host.lanes import Eyes, Stage
from germline.tasks.players import Players, all_arrays
from germline.tasks.protocols import Episode, Outcome
from germline.tasks.spaces import Space


def play(
    stage: Stage[Any],
    space: Space,
    eyes: Eyes,
    players: Players,
    episodes: Sequence[Episode],
    lanes: int,
    watch: Watch | None = None,
) -> list[Outcome]:
    """Play every episode, those of one individual, or of one family, in up to `lanes` lanes."""
    groups: dict[object, list[int]] = {}
    for number, episode in enumerate(episodes):
        groups.setdefault(players.group(episode.player), []).append(number)
    outcomes: dict[int, Outcome] = {}
    for numbers in groups.values():
        width = min(lanes, 1 << (len(numbers) - 1).bit_length())
        if players.shares(episodes[numbers[0]].player):
            width = players.siblings
        table = _Table(stage, space, eyes, players, width)
        table.play([(n, episodes[n]) for n in numbers], outcomes, watch)
    return [outcomes[i] for i in range(len(episodes))]


class _Table:
    """Lanes that play together, and who plays in each."""

    def __init__(
        self, stage: Stage[Any], space: Space, eyes: Eyes, players: Players, width: int
    ) -> None:
        self.space, self.eyes, self.players = space, eyes, players
        self.lanes = [stage.lane(i) for i in range(width)]
        shape, dtype = eyes.shown()
        self.shown = np.zeros((width, *shape), dtype)
        self.fresh = np.ones(width, bool)
        self.seats: list[int] = [0] * width  # the player in each lane
        self.policy: Policy | None = None
        self.acts: Callable[..., Any] = _any
        self.changed = True

    def play(
        self,
        episodes: Sequence[tuple[int, Episode]],
        outcomes: dict[int, Outcome],
        watch: Watch | None,
    ) -> None:
        """Play numbered episodes and note their outcomes."""
        queue = deque(episodes)
        playing: dict[int, int] = {}  # lane → the number of its episode
        self.seats = [queue[0][1].player] * len(self.lanes)
        for i in range(len(self.lanes)):
            if queue:
                playing[i] = self._seat(i, *queue.popleft())
        if watch is not None:
            watch(self.lanes[0].shot(None, ""))
        memory = None
        while playing:
            actions, memory = self._act(memory)
            self.fresh[:] = False
            for i, number in list(playing.items()):
                lane, action = self.lanes[i], actions[i]
                outcome = lane.step(action, self.shown[i])
                if watch is not None:
                    watch(lane.shot(action, outcome.end if outcome else ""))
                if outcome is None:
                    continue
                outcomes[number] = outcome
                if queue:
                    playing[i] = self._seat(i, *queue.popleft())
                else:
                    del playing[i]
            if self.players.exact and 0 < len(playing) <= len(self.lanes) // 2:
                playing, memory = self._narrowed(playing, memory)

    def _seat(self, lane: int, number: int, episode: Episode) -> int:
        self.lanes[lane].start(episode, self.shown[lane])
        self.fresh[lane] = True
        if self.seats[lane] != episode.player:
            self.seats[lane], self.changed = episode.player, True
        return number

    def _act(self, memory: Any) -> tuple[Any, Any]:  # noqa: ANN401
        if self.policy is None or self.changed:
            self.policy = self.players.together(self.seats, self.policy)
            self.acts = _acting(self.space, self.eyes, self.policy)
            self.changed = False
        if memory is None:
            memory = _beginning(self.eyes, self.policy, len(self.lanes))
        actions, memory = self.acts(self.shown, memory, self.fresh)
        chosen = np.asarray(actions)
        return chosen.tolist() if self.space.single else [np.asarray(a) for a in chosen], memory

    def _narrowed(
        self,
        playing: dict[int, int],
        memory: Any,  # noqa: ANN401
    ) -> tuple[dict[int, int], Any]:
        """Leave out lanes that are done, to half as many or fewer; all are of one player."""
        width = 1 << (len(playing) - 1).bit_length()
        idle = [i for i in range(len(self.lanes)) if i not in playing]
        keep = [*playing, *idle][:width]
        self.lanes = [self.lanes[i] for i in keep]
        self.shown, self.fresh = self.shown[keep], self.fresh[keep]
        memory = jax.tree.map(lambda leaf: leaf[np.array(keep)], memory)
        return dict(enumerate(playing.values())), memory


def _beginning(eyes: Eyes, policy: Policy, width: int) -> Any:  # noqa: ANN401 - a tree of arrays
    """What lanes remember before they see anything."""

    def repeated(leaf: Array) -> jax.Array:
        return jnp.stack([jnp.asarray(leaf)] * width)

    carry = policy.initial_carry()
    if not isinstance(policy, Siblings):
        carry = jax.tree.map(repeated, carry)
    return jax.tree.map(repeated, eyes.sight()), carry


def acted_in_lane(
    space: Space,
    eyes: Eyes,
    policy: Policy,
    shown: Array,
    memory: tuple[Any, Carry],
    fresh: Array,
) -> tuple[Array, tuple[Any, Carry]]:
    """The action of one lane, and what it remembers; a fresh lane has forgotten all."""
    obs, sight = _looked(eyes, shown, memory[0], fresh)
    output, carry = policy(obs, _again(fresh, policy.initial_carry(), memory[1]))
    return space.action(output), (sight, carry)


def _looked(eyes: Eyes, shown: Array, sight: Any, fresh: Array) -> tuple[Array, Any]:  # noqa: ANN401
    return eyes.see(shown, _again(fresh, eyes.sight(), sight))


def _acted_in_lanes(
    space: Space,
    eyes: Eyes,
    policy: Policy,
    shown: Array,
    memory: tuple[Any, Carry],
    fresh: Array,
) -> tuple[Array, tuple[Any, Carry]]:
    """Actions of all lanes of one policy, and what they remember."""
    if isinstance(policy, Siblings):
        obs, sight = jax.vmap(partial(_looked, eyes))(shown, memory[0], fresh)
        start = policy.initial_carry()
        output, carry = policy(obs, jax.vmap(_again)(fresh, start, memory[1]))
        return jax.vmap(space.action)(output), (sight, carry)
    one = partial(acted_in_lane, space, eyes, policy)
    if fresh.shape[0] == 1:  # one observation is quicker than a batch of one
        action, memory = one(shown[0], jax.tree.map(lambda leaf: leaf[0], memory), fresh[0])
        return jax.tree.map(lambda leaf: leaf[None], (action, memory))
    return jax.vmap(one)(shown, memory, fresh)


def _again(fresh: Array, start: Any, now: Any) -> Any:  # noqa: ANN401 - trees of arrays
    return jax.tree.map(lambda new, old: jnp.where(fresh, new, old), start, now)


def _acting(space: Space, eyes: Eyes, policy: Policy) -> Callable[..., Any]:
    """The compiled step of a policy, of what is shown, remembered and fresh."""
    if not all_arrays(policy):
        return partial(_any, space, eyes, policy)
    # Its bare arrays: to take a module apart at every step costs 20 µs.
    leaves, tree = jax.tree.flatten(policy)
    return partial(_compiled(space, eyes, tree), leaves)


_any = eqx.filter_jit(_acted_in_lanes)


@lru_cache(maxsize=64)
def _compiled(space: Space, eyes: Eyes, tree: Any) -> Callable[..., Any]:  # noqa: ANN401
    def acted(
        leaves: list[Array], shown: Array, memory: tuple[Any, Carry], fresh: Array
    ) -> tuple[Array, tuple[Any, Carry]]:
        return _acted_in_lanes(space, eyes, jax.tree.unflatten(tree, leaves), shown, memory, fresh)

    return jax.jit(acted)
