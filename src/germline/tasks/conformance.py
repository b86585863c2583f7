"""The conformance check of a task: ours pass it, and users run it on theirs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from germline import policies
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome
from germline.policies.normalisation import Context
from germline.policies.protocols import PolicySpec
from germline.tasks import fitting, random_play, registry
from germline.tasks.players import Players
from germline.tasks.protocols import CAPPED, LIMIT, TERMINATED, Episode, Outcome, Task

_CAP = 40


def check(
    task: Task | str,
    settings: Mapping[str, Any] | None = None,
    *,
    policy: PolicySpec | None = None,
    cap: int = _CAP,
) -> list[Outcome]:
    """Refuse a task whose scores would not be the same on another day, and say why.

    `task` is a registered name with its settings, or the task itself; `policy` plays it, a small
    network if not given. Checked are: the settings survive a file; episodes have finite scores and
    at least one step; the cap is kept; an episode gives the same outcome played again, after other
    episodes, alone, and among other players in another order. The outcomes of different seeds are
    returned: look whether they differ, if yours is a task of chance.
    """
    if isinstance(task, str):
        task = registry.make(task, settings or {})
    kept = registry.reference(task)
    about = f"task {kept.name}"
    if registry.make(kept.name, kept.settings) != task:
        raise InputError(f"{about}: a file gives other settings back than {task}")
    try:
        return _check(about, task, policy or _player(about, task), cap)
    finally:
        task.close()


def _check(about: str, task: Task, spec: PolicySpec, cap: int) -> list[Outcome]:
    space = task.space()
    if space is not None:
        fitting.check(spec, space)
    birth = Genome(policies.reference(policies.registry.name_of(spec), spec), Birth(1))
    genomes = [birth.child(Gene(number, 1.0)) for number in range(3)]
    decoder = Decoder(spec.layout())
    context = random_play.context(task, spec)
    if getattr(spec, "normalise", None) == "observations":
        assert space is not None
        context = Context(np.zeros(space.observation), np.ones(space.observation))

    def play(members: list[int], episodes: list[Episode]) -> list[Outcome]:
        players = Players(spec, decoder, [genomes[i] for i in members], context=context)
        outcomes = task.play(players, episodes)
        if len(outcomes) != len(episodes):
            raise InputError(f"{about}: gave {len(outcomes)} outcomes for {len(episodes)} episodes")
        for outcome in outcomes:
            _sound(about, outcome, cap)
        return outcomes

    seeds = (1, 2, 3, 2**31 - 1)
    every = [Episode(player, seed, cap) for player in range(3) for seed in seeds]
    first = play([0, 1, 2], every)
    if play([0, 1, 2], every) != first:
        raise InputError(f"{about}: the same episodes played again went differently")
    backwards = play([2, 1, 0], [e._replace(player=2 - e.player) for e in every[::-1]])
    if backwards[::-1] != first:
        raise InputError(f"{about}: the order of players or episodes changes how they go")
    alone = [play([e.player], [e._replace(player=0)])[0] for e in every[::5]]
    if not task.together:
        # On the host, the number of episodes is the size of a batch, which may round differently.
        alone = [
            a._replace(score=b.score, sums=b.sums) for a, b in zip(alone, first[::5], strict=True)
        ]
    if alone != first[::5]:
        raise InputError(f"{about}: an episode goes differently when it is played alone")
    short = play([0], [Episode(0, 1, 1)])[0]
    if short.steps != 1:
        raise InputError(f"{about}: a cap of 1 step was not kept: {short.steps} steps")
    return first[: len(seeds)]


def _sound(about: str, outcome: Outcome, cap: int) -> None:
    """Refuse numbers that cannot be."""
    if not math.isfinite(outcome.score):
        raise InputError(f"{about}: a score is {outcome.score}, not a number")
    if not 1 <= outcome.steps <= cap:
        raise InputError(f"{about}: {outcome.steps} steps with a cap of {cap}")
    if outcome.frames < 0:
        raise InputError(f"{about}: {outcome.frames} frames")
    if outcome.end not in (TERMINATED, LIMIT, CAPPED):
        raise InputError(f"{about}: an end must be one of t, l and c, not {outcome.end!r}")


def _player(about: str, task: Task) -> PolicySpec:
    space = task.space()
    if space is None:
        raise InputError(f"{about}: give a policy to check it with")
    return fitting.fit("mlp", {"hidden": [8]}, space)
