"""What a generation costs besides its evaluation, and the memory it takes: ask and tell.

    python benchmarks/breeding.py [--peers FOLDER] [--systems germline ribs ...]

Nobody plays: fitness is drawn at random. The GA of each system, or PSO (EvoX, which has no GA for
one objective) or MAP-Elites with 1,024 cells (QDax, pyribs). Peers hold matrices of weights, and
asking gives a new one. Germline's ask gives genomes; its second row, `weights`, decodes all of them
too, one after another, as workers do.

There are 1,000 individuals of 4,610 weights, or 200 of 495,602. Milliseconds are for a thousand
individuals, the median of three generations after the first two. Memory is by how much larger the
process became with the larger networks, in multiples of their matrix, which is 396 MB. Environments
for the peers are as in benchmarks/peers.py. Time is that of the processor, on one core.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers import NEEDS, inside, python

SIGMA, GENERATIONS, CELLS = 0.1, 5, (32, 32)
HIDDEN = {4_610: (64, 64), 495_602: (700, 700)}  # of a network with 4 inputs and 2 outputs
COUNTS = {4_610: 1000, 495_602: 200}  # individuals
Step = Callable[[np.ndarray, np.ndarray], object]  # a generation, given fitness and descriptors


def germline(size: int, *, decoded: bool = False) -> Step:
    """The genetic algorithm of Germline, with 20 parents."""
    from germline import Decoder, algorithms, policies
    from germline.messages import Evaluation

    count = COUNTS[size]
    spec = policies.make("mlp", {"inputs": 4, "hidden": list(HIDDEN[size])})
    assert spec.layout().size == size
    decoder = Decoder(spec.layout())
    ga = algorithms.GA(population=count, sigma=SIGMA, candidates=0)
    states = [ga.start(seed=1, policy=policies.reference("mlp", spec))]

    def step(fitness: np.ndarray, _: np.ndarray) -> None:
        requests = ga.ask(states[-1])
        for request in requests if decoded else ():
            decoder.decode(request.genome).block_until_ready()
        results = [
            Evaluation(request.key, (float(fitness[n % count]),), (1,), (1,), "t")
            for n, request in enumerate(requests)
        ]
        states[:] = [ga.tell(states[-1], results)[0]]

    return step


def weights(size: int) -> Step:
    """Germline, and everyone's weights."""
    return germline(size, decoded=True)


def evosax(size: int) -> Step:
    """Evosax's SimpleGA, compiled."""
    import jax
    import jax.numpy as jnp
    from evosax.algorithms import SimpleGA

    count = COUNTS[size]
    algorithm = SimpleGA(count, jnp.zeros(size))
    params, keys = algorithm.default_params, iter(jax.random.split(jax.random.key(1), 99))
    first = jnp.zeros((count, size))
    state = [algorithm.init(next(keys), first, jnp.zeros(count), params)]
    ask, tell = jax.jit(algorithm.ask), jax.jit(algorithm.tell)

    def step(fitness: np.ndarray, _: np.ndarray) -> object:
        population, asked = ask(next(keys), state[0], params)
        state[0] = tell(next(keys), population, jnp.asarray(fitness), asked, params)[0]
        return jax.block_until_ready(state[0])

    return step


def evotorch(size: int) -> Step:
    """EvoTorch's GeneticAlgorithm, its problem a vectorised function."""
    import torch
    from evotorch import Problem
    from evotorch.algorithms import GeneticAlgorithm
    from evotorch.operators import GaussianMutation

    count = COUNTS[size]
    given: list[Any] = [torch.zeros(count)]
    problem = Problem(
        "max",
        lambda population: given[0][: len(population)],
        solution_length=size,
        initial_bounds=(-1, 1),
        vectorized=True,
    )
    mutation = GaussianMutation(problem, stdev=SIGMA)
    search = GeneticAlgorithm(problem, popsize=count, operators=[mutation], re_evaluate=False)

    def step(fitness: np.ndarray, _: np.ndarray) -> None:
        given[0] = torch.as_tensor(fitness)
        search.step()

    return step


def evox(size: int) -> Step:
    """EvoX's PSO in its StdWorkflow, compiled."""
    import torch
    from evox.algorithms import PSO
    from evox.core import Problem
    from evox.workflows import StdWorkflow

    count = COUNTS[size]

    class Given(Problem):  # type: ignore[misc]
        fitness = torch.zeros(count)

        def evaluate(self, _: Any) -> Any:  # noqa: ANN401
            return self.fitness

    problem = Given()
    workflow = StdWorkflow(PSO(count, -torch.ones(size), torch.ones(size)), problem)
    workflow.init_step()
    compiled = torch.compile(workflow.step)

    def step(fitness: np.ndarray, _: np.ndarray) -> None:
        Given.fitness.copy_(torch.as_tensor(fitness))
        with torch.no_grad():
            compiled()

    return step


def evojax(size: int) -> Step:
    """EvoJAX's SimpleGA."""
    import jax
    import jax.numpy as jnp
    from evojax.algo import SimpleGA

    count = COUNTS[size]
    solver = SimpleGA(size, count, sigma=SIGMA)

    def step(fitness: np.ndarray, _: np.ndarray) -> object:
        solver.ask()
        solver.tell(jnp.asarray(fitness))
        return jax.block_until_ready(solver.params)

    return step


def qdax(size: int) -> Step:
    """QDax's MAP-Elites, compiled."""
    import functools

    import jax
    import jax.numpy as jnp
    from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter
    from qdax.core.map_elites import MAPElites

    count = COUNTS[size]
    vary = functools.partial(isoline_variation, iso_sigma=SIGMA, line_sigma=0.0)
    elites = MAPElites(None, MixingEmitter(None, vary, 1.0, count), lambda _: {})
    keys = iter(jax.random.split(jax.random.key(1), 99))
    nothing = jnp.zeros((count, 1)), jnp.zeros((count, 2))
    centroids = compute_euclidean_centroids(CELLS, 0.0, 1.0)
    first = jnp.zeros((count, size))
    state = list(elites.init_ask_tell(first, *nothing, centroids, next(keys))[:2])
    ask, tell = jax.jit(elites.ask), jax.jit(elites.tell)

    def step(fitness: np.ndarray, descriptors: np.ndarray) -> object:
        population, _ = ask(*state, next(keys))
        state[:] = tell(population, fitness[:, None], descriptors, *state)[:2]
        return jax.block_until_ready(state)

    return step


def ribs(size: int) -> Step:
    """The scheduler of pyribs with a grid and one Gaussian emitter, in float32."""
    from ribs.archives import GridArchive
    from ribs.emitters import GaussianEmitter
    from ribs.schedulers import Scheduler

    count = COUNTS[size]
    ranges = [(0, 1), (0, 1)]
    archive = GridArchive(solution_dim=size, dims=CELLS, ranges=ranges, dtype=np.float32)
    emitter = GaussianEmitter(archive, sigma=SIGMA, x0=np.zeros(size), batch_size=count)
    scheduler = Scheduler(archive, [emitter])

    def step(fitness: np.ndarray, descriptors: np.ndarray) -> None:
        scheduler.ask()
        scheduler.tell(fitness, descriptors)

    return step


SYSTEMS: dict[str, Callable[[int], Step]] = {
    "germline": germline,
    "weights": weights,
    "evosax": evosax,
    "evotorch": evotorch,
    "evox": evox,
    "evojax": evojax,
    "qdax": qdax,
    "ribs": ribs,
}


def measured(build: Callable[[int], Step], size: int) -> dict[str, float]:
    """Milliseconds for a thousand individuals, and the most megabytes the process had."""
    step, rng, times = build(size), np.random.default_rng(1), []
    count = COUNTS[size]
    for _ in range(GENERATIONS):
        fitness = rng.random(count, np.float32)
        descriptors = rng.random((count, 2), np.float32)
        begun = time.process_time()
        step(fitness, descriptors)
        times.append(1e6 * (time.process_time() - begun) / count)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes
    return {"ms": float(np.median(times[2:])), "MB": largest / 1e3}


def rows(names: list[str], folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every system that is there, in a process of its own for each size."""
    for name in names:
        path = python(name if name in NEEDS else "germline", folder)
        if path:
            arguments = ["--inside", name, "--size"]
            yield name, [inside(path, __file__, [*arguments, str(size)]) for size in HIDDEN]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, default=Path(".peers"), metavar="FOLDER")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--inside", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps(measured(SYSTEMS[options.inside], options.size)))
        return
    print(
        f"{'ms with so many weights':25}" + "".join(f"{n:>12,}" for n in HIDDEN) + f"{'memory':>10}"
    )
    size, count = list(COUNTS.items())[-1]
    matrix = 4 * size * count / 1e6
    for name, found in rows(options.systems, options.peers):
        grown = found[1]["MB"] - found[0]["MB"]
        cells = "".join(f"{cell['ms']:>12,.1f}" for cell in found)
        print(f"{name:25}{cells}{grown / matrix:>10.1f}", flush=True)


if __name__ == "__main__":
    main()
