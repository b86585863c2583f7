"""Any individual that ever lived in a run, with all that is needed to play it."""

from pathlib import Path

import msgspec

from germline.algorithms import progress
from germline.files import GenomeFile, Normaliser
from germline.genome import Snapshot
from germline.messages import Frozen
from germline.run import spec as specs
from germline.run.replay import replayed
from germline.run.store import Store


def recall(folder: Path, name: str, *, trust: bool = False) -> GenomeFile:
    """Rebuild an individual by its id (16 hex digits)."""
    with Store.open(folder) as store:
        resolved = specs.resolve(specs.of_run(folder), trust=trust)
        genome, problem = store.genome(name), resolved.problem
        weights = normaliser = None
        if isinstance(genome.root, Snapshot) or progress.normalises(store.policy):
            # Weights that no seed gives, and statistics, are those of its birth's generation.
            state = replayed(store, resolved, store.generation_of(name))
            if isinstance(genome.root, Snapshot):
                weights = resolved.algorithm.blobs(state).get(genome.root.sha256)
            if (context := progress.context(state)) is not None:
                frozen = msgspec.msgpack.decode(context, type=Frozen)
                normaliser = Normaliser(frozen.mean, frozen.std)
        return GenomeFile(
            genome, problem.task, problem.arithmetic, normaliser, weights, problem.siblings
        )
