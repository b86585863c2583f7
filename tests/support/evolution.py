"""Algorithms driven by hand: a policy, a task, and a few generations without a store."""

import games  # noqa: F401 - registers its tasks
from germline import policies
from germline.blobs import BlobCache
from germline.evaluate import Evaluator
from germline.files import TaskRef
from germline.messages import Evaluation, Problem

SPEC = policies.make("mlp", {"inputs": 2, "hidden": [3], "outputs": 2})
POLICY = policies.reference("mlp", SPEC)


def problem(task="placed", policy=POLICY, **settings):
    return Problem(TaskRef(task, settings), policy)


def evolve(algorithm, generations, seed=1, task="placed", policy=POLICY, **settings):
    """Yield (state before, results, report, state after) of every phase."""
    blobs = BlobCache()
    evaluator = Evaluator(problem(task, policy, **settings), blobs)
    state = algorithm.start(seed, policy, "run")
    while state.generation < generations:
        results = evaluator.evaluate(algorithm.ask(state))
        after, report, made = algorithm.tell(state, results)
        for blob in made.values():
            blobs.put(blob)
        yield state, results, report, after
        state = after


def final(algorithm, generations, **options):
    """The report of the last generation."""
    return [report for _, _, report, _ in evolve(algorithm, generations, **options) if report][-1]


def own_number(request):
    return (float(request.key.number),)


def scored(requests, fitness, behaviour=own_number):
    """Results that give every request the fitness a function of it says, in one step each."""
    return [
        Evaluation(r.key, (float(fitness(r)),), (1,), (4,), "t", behaviour(r)) for r in requests
    ]


def told(algorithm, state, fitness, behaviour=own_number):
    """The state and the report after a phase."""
    return algorithm.tell(state, scored(algorithm.ask(state), fitness, behaviour))[:2]
