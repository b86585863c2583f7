"""What a store tells an algorithm again: its states, from the results that led to them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from germline.algorithms.protocols import Algorithm, Report, RollingAlgorithm, State
from germline.errors import InputError
from germline.genome import Genome
from germline.run.records import Arrival
from germline.run.spec import Resolved
from germline.run.store import Store


def restored(store: Store, algorithm: Algorithm, seed: int, upto: int | None = None) -> State:
    """The last state that was kept, at or before a generation, or the very first."""
    kept = store.checkpoint(upto)
    try:
        if kept is not None:
            state = algorithm.decode(kept[1], store.policy)
            return msgspec.structs.replace(state, run=store.run)
    except msgspec.DecodeError:
        pass  # written by another version: the evaluations tell it all again, from the start
    return algorithm.start(seed, store.policy, store.run)


def replayed(store: Store, resolved: Resolved, generation: int) -> State:
    """The state before a generation that is in the store, told again from the last one kept."""
    algorithm = resolved.algorithm
    state = restored(store, algorithm, resolved.spec.seed, generation)
    if algorithm.asynchronous:
        rolls = rolled(store, algorithm, state)
        while state.generation < generation:
            state = next(rolls)[0]
    while state.generation < generation:
        state = algorithm.tell(state, store.results(state.generation, state.phase))[0]
    return state


def rolled(
    store: Store, algorithm: RollingAlgorithm, state: State
) -> Iterator[tuple[State, Report | None]]:
    """Tell a state what arrived after it: the state after each roll, and that after everything."""
    begun, seen = state, list[Arrival]()
    for arrival in store.arrivals(state.arrived):
        try:
            state, report, _ = algorithm.tell(state, [arrival.result])
        except InputError:
            raise
        except ValueError as error:
            raise _astray(store.folder, str(error)) from None
        seen.append(arrival)
        if report is not None:
            check_arrivals(store.folder, algorithm, begun, seen)
            yield state, report
            begun, seen = state, []
    check_arrivals(store.folder, algorithm, begun, seen)
    yield state, None


def check_arrivals(
    folder: Path, algorithm: RollingAlgorithm, state: State, arrivals: Sequence[Arrival]
) -> None:
    """Refuse to go on when others arrived after a state than it gives."""
    keys = [arrival.result.key for arrival in arrivals]
    known = zip(arrivals, algorithm.individuals(state, keys), strict=True)
    check(folder, [(a.result.key.generation, a.id, genome) for a, genome in known if genome])


def check(folder: Path, known: Sequence[tuple[int, str, Genome]]) -> None:
    """Refuse to go on when the store has other individuals than the spec gives.

    `known` are generations, the ids that the store has, and the genomes that there should be.
    """
    for generation, there, genome in known:
        if there != genome.id:
            fault = f"generation {generation} has individual {there} where the spec gives "
            raise _astray(folder, fault + genome.id)


def _astray(folder: Path, fault: str) -> InputError:
    return InputError(f"{folder}: {fault}; the spec or a kept state was changed since")
