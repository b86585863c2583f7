"""How a population moves: ask for evaluations, tell what came of them.

    state = algorithm.start(seed, policy)
    requests = algorithm.ask(state)                          every request not yet told
    state, report, blobs = algorithm.tell(state, results)    any subset, in any order

Algorithms are frozen structs of settings with pure methods; states are values. Nothing here knows
who evaluates. Higher fitness is better. To an asynchronous algorithm the order of results matters.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from germline import settings as written
from germline.algorithms.protocols import Algorithm, Report, State
from germline.algorithms.schedule import Schedule
from germline.errors import InputError

if TYPE_CHECKING:
    from germline.algorithms.es import ES as ES
    from germline.algorithms.ga import GA as GA
    from germline.algorithms.novelty import NoveltyGA as NoveltyGA
    from germline.algorithms.novelty_es import NSES as NSES
    from germline.algorithms.novelty_es import NSRAES as NSRAES
    from germline.algorithms.novelty_es import NSRES as NSRES
    from germline.algorithms.random_search import RandomSearch as RandomSearch
    from germline.algorithms.rolling import AsyncGA as AsyncGA

_registry = {
    "async-ga": "AsyncGA",
    "es": "ES",
    "ga": "GA",
    "ns-es": "NSES",
    "ns-ga": "NoveltyGA",
    "nsr-es": "NSRES",
    "nsra-es": "NSRAES",
    "random-search": "RandomSearch",
}
_ASYNCHRONOUS = {"ga": "async-ga", "async-ga": "async-ga"}

# Imported on first use: they need JAX, and looking at a run does not.
_HOMES = {
    "AsyncGA": "rolling",
    "ES": "es",
    "GA": "ga",
    "NSES": "novelty_es",
    "NSRAES": "novelty_es",
    "NSRES": "novelty_es",
    "NoveltyGA": "novelty",
    "RandomSearch": "random_search",
}

__all__ = [
    "ES",
    "GA",
    "NSES",
    "NSRAES",
    "NSRES",
    "Algorithm",
    "AsyncGA",
    "NoveltyGA",
    "RandomSearch",
    "Report",
    "Schedule",
    "State",
    "asynchronous",
    "make",
    "names",
]


def names() -> list[str]:
    """Give the names of all algorithms."""
    return sorted(_registry)


def make(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """Build and check an algorithm's settings; an error names the field."""
    kind = __getattr__(written.lookup("algorithm", name, _registry))
    made: Algorithm = written.convert(settings, kind, f"algorithm {name}: ")
    return made


def asynchronous(name: str) -> str:
    """Give the name of an algorithm's form without a barrier."""
    if name not in _ASYNCHRONOUS:
        raise InputError(f"--async: {name} needs everyone of a generation; only ga does without")
    return _ASYNCHRONOUS[name]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class
    if name in _HOMES:
        return getattr(import_module(f"germline.algorithms.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'germline.algorithms' has no attribute {name!r}")
