"""How a population moves: ask for evaluations, tell what came of them.

    state = algorithm.start(seed, policy)
    requests = algorithm.ask(state)                          every request not yet told
    state, report, blobs = algorithm.tell(state, results)    any subset, in any order

Algorithms are frozen structs of settings with pure methods; states are values. Nothing here knows
who evaluates. Higher fitness is better. To an asynchronous algorithm the order of results matters.

The modules in reading order:

    protocols      what an algorithm is, and what it reports
    progress       the settings, the state and the steps that all algorithms share
    schedule       numbers that change with the generations

    generational   a population, its candidates, its elite
    random_search  everyone is newly born
    ga             the best have children
    async_state    a population that never waits, and that as bytes
    async_ga       the GA without a barrier

    optimizer      optax, which takes a step
    strategy       a centre, its perturbations, and its steps
    es             one centre

    archive        behaviours, and how novel others are beside them
    novelty        the GA by novelty
    novelty_es     several centres, by novelty and return
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from germline import settings as written
from germline.algorithms.protocols import Algorithm, Report, State
from germline.algorithms.schedule import Schedule
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.algorithms.async_ga import AsyncGA as AsyncGA
    from germline.algorithms.es import ES as ES
    from germline.algorithms.ga import GA as GA
    from germline.algorithms.novelty import NoveltyGA as NoveltyGA
    from germline.algorithms.novelty_es import NSES as NSES
    from germline.algorithms.novelty_es import NSRAES as NSRAES
    from germline.algorithms.novelty_es import NSRES as NSRES
    from germline.algorithms.random_search import RandomSearch as RandomSearch

# Every algorithm by name: its module and its class. They are imported on first use, because they
# need JAX, and looking at a run does not.
_ALGORITHMS = {
    "async-ga": ("async_ga", "AsyncGA"),
    "es": ("es", "ES"),
    "ga": ("ga", "GA"),
    "ns-es": ("novelty_es", "NSES"),
    "ns-ga": ("novelty", "NoveltyGA"),
    "nsr-es": ("novelty_es", "NSRES"),
    "nsra-es": ("novelty_es", "NSRAES"),
    "random-search": ("random_search", "RandomSearch"),
}
_ASYNCHRONOUS = {"ga": "async-ga", "async-ga": "async-ga"}
_CLASSES = {kind: module for module, kind in _ALGORITHMS.values()}

__all__ = [
    "Algorithm",
    "Report",
    "Schedule",
    "State",
    "asynchronous",
    "make",
    "names",
    *_CLASSES,
]


def names() -> list[str]:
    """Give the names of all algorithms."""
    return sorted(_ALGORITHMS)


def make(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """Build and check an algorithm's settings; an error names the field."""
    _, kind = written.lookup("algorithm", name, _ALGORITHMS)
    made: Algorithm = written.convert(settings, __getattr__(kind), f"algorithm {name}: ")
    return made


def asynchronous(name: str) -> str:
    """Give the name of an algorithm's form without a barrier."""
    if name not in _ASYNCHRONOUS:
        raise InputError(f"--async: {name} needs everyone of a generation; only ga does without")
    return _ASYNCHRONOUS[name]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class
    if name in _CLASSES:
        return getattr(import_module(f"germline.algorithms.{_CLASSES[name]}"), name)
    raise AttributeError(f"module 'germline.algorithms' has no attribute {name!r}")
