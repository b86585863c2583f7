"""Forking: a run that begins with the first generations of another, and goes its own way then."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from germline.algorithms.protocols import State
from germline.errors import InputError
from germline.genome import Snapshot
from germline.run import loop
from germline.run import spec as specs
from germline.run.replay import replayed
from germline.run.spec import Resolved, Spec
from germline.run.store import Store


def fork(
    source: Path, generation: int, target: Path, changes: Mapping[str, Any], *, trust: bool
) -> Spec:
    """Begin a run with the first generations of another, and other settings from there on."""
    with Store.open(source) as old:
        given = [specs.of_run(source, changed) for changed in ({}, changes)]
        if given[0].algorithm["name"] != given[1].algorithm["name"]:
            raise InputError("algorithm.name: a fork keeps the algorithm of its origin")
        before, after = (specs.resolve(spec, trust=trust) for spec in given)
        if after.problem.policy != before.problem.policy:
            raise InputError("policy: a fork keeps the network of its origin")
        finished = old.totals().generations
        if not 0 <= generation <= finished:
            known = f"0 to {finished}, those finished" if finished else "0, none is finished"
            raise InputError(f"--generation: {generation} is not {known}")
        state = replayed(old, before, generation)
        loop.create(target, after)
        try:
            with Store.open(target, write=True) as new:
                arrived = state.arrived if before.algorithm.asynchronous else None
                new.copy_before(generation, old, arrived)
                if generation:
                    reseeded = msgspec.structs.replace(state, seed=after.spec.seed)
                    with new.transaction():
                        for kept in (*_shown(old, before, generation), reseeded):
                            new.keep(kept.generation, before.algorithm.encode(kept))
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    return after.spec


def _shown(store: Store, resolved: Resolved, generation: int) -> list[State]:
    """The state in which the champion before a generation was a centre, if it was one.

    A fork with other settings could not tell itself again how that centre was made.
    """
    champion = store.reports()[generation - 1].champion
    if not isinstance(store.genome(champion).root, Snapshot):
        return []
    try:
        return [replayed(store, resolved, store.generation_of(champion))]
    except InputError:  # pruned before, without it
        return []
