"""How a population moves: ask for evaluations, tell what came of them.

    state = algorithm.start(seed, policy)
    requests = algorithm.ask(state)                          every request not yet told
    state, report, blobs = algorithm.tell(state, results)    any subset, in any order

Algorithms are frozen structs of settings with pure methods; states are values. Nothing here knows
who evaluates. Higher fitness is better.
"""

from collections.abc import Mapping
from typing import Any

from germline import settings as written
from germline.algorithms.es import ES
from germline.algorithms.ga import GA
from germline.algorithms.protocols import Algorithm, Report, State
from germline.algorithms.random_search import RandomSearch
from germline.algorithms.schedule import Schedule

_registry: dict[str, type[Any]] = {"es": ES, "ga": GA, "random-search": RandomSearch}

__all__ = ["ES", "GA", "Algorithm", "RandomSearch", "Report", "Schedule", "State", "make", "names"]


def names() -> list[str]:
    """Give the names of all algorithms."""
    return sorted(_registry)


def make(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """Build and check an algorithm's settings; an error names the field."""
    kind = written.lookup("algorithm", name, _registry)
    made: Algorithm = written.convert(settings, kind, f"algorithm {name}: ")
    return made
