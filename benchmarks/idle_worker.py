"""A worker process that evaluates nothing: what `backends.py` measures engines with."""

from germline import evaluate
from germline.backends import worker
from germline.messages import Evaluation, Problem, Request

CLAIMED = 1e-3  # seconds that an evaluation is said to take, for batches of a usual size


class Idle:
    """An evaluator that evaluates nothing."""

    def __init__(self, problem: Problem, blobs: object, *, worker: str, trust: bool) -> None:
        self.worker = worker
        self.proof: dict[str, str] = {}

    def evaluate(self, requests: list[Request]) -> list[Evaluation]:
        """Answer at once."""
        return [
            Evaluation(r.key, (1.0,), (9,), (36,), "t", (), None, CLAIMED, self.worker)
            for r in requests
        ]


def main(descriptor: int, parent: int) -> None:
    """Work as a process of an engine does, with an evaluator that does nothing."""
    evaluate.Evaluator = Idle  # type: ignore[assignment,misc]
    worker._one_thread = lambda: None
    worker.main(descriptor, parent)
