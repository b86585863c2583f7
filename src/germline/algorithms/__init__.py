"""How a population moves: ask for evaluations, tell what came of them.

    state = algorithm.start(seed, policy)
    requests = algorithm.ask(state)                          every request not yet told
    state, report, blobs = algorithm.tell(state, results)    any subset, in any order

Algorithms are frozen structs of settings with pure methods; states are values. Nothing here knows
who evaluates. Higher fitness is better.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from germline import settings as written
from germline.algorithms.protocols import Algorithm, Report, State
from germline.algorithms.schedule import Schedule

if TYPE_CHECKING:
    from germline.algorithms.es import ES as ES
    from germline.algorithms.ga import GA as GA
    from germline.algorithms.random_search import RandomSearch as RandomSearch

_registry = {"es": "ES", "ga": "GA", "random-search": "RandomSearch"}

# Imported on first use: they need JAX, and looking at a run does not.
_HOMES = {"ES": "es", "GA": "ga", "RandomSearch": "random_search"}

__all__ = ["ES", "GA", "Algorithm", "RandomSearch", "Report", "Schedule", "State", "make", "names"]


def names() -> list[str]:
    """Give the names of all algorithms."""
    return sorted(_registry)


def make(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """Build and check an algorithm's settings; an error names the field."""
    kind = __getattr__(written.lookup("algorithm", name, _registry))
    made: Algorithm = written.convert(settings, kind, f"algorithm {name}: ")
    return made


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class
    if name in _HOMES:
        return getattr(import_module(f"germline.algorithms.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'germline.algorithms' has no attribute {name!r}")
