"""Evolution by hand: ask for evaluations, tell what came of them.

python examples/ask_tell.py
"""

from germline import algorithms, policies
from germline.blobs import BlobCache
from germline.evaluate import Evaluator
from germline.files import TaskRef
from germline.messages import Problem

policy = policies.reference("mlp", policies.make("mlp", {"inputs": 4, "hidden": [16]}))
evaluator = Evaluator(Problem(TaskRef("functional", {"id": "CartPole-v1"}), policy), BlobCache())
ga = algorithms.GA(population=100, parents=10, sigma=0.2, candidates=4, candidate_episodes=20)
state = ga.start(seed=1, policy=policy)
while state.generation < 8:
    state, report, _ = ga.tell(state, evaluator.evaluate(ga.ask(state)))
    if report:
        print(f"generation {report.generation}: mean {report.mean:.1f}, elite {report.elite:.1f}")
raise SystemExit(report.elite < 100)
