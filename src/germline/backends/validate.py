"""Which answers cannot be one to their request, whoever gives them."""

import math

from germline.messages import Evaluation, Request

LONGEST = 1e7  # seconds, some months
MOST = 2**32  # steps or frames of an episode
ENDS = frozenset("tlc")


def fault(answer: Evaluation, request: Request, inputs: int | None = None) -> str | None:
    """What makes an answer impossible, in words.

    `inputs` is how many numbers an observation has where they are added up, 0 where they are not;
    None is not to look.
    """
    episodes = len(request.episode_seeds)
    for name in ("returns", "steps", "frames"):
        count = len(getattr(answer, name))
        if count != episodes:
            return f"gave {count} {name} for {episodes} episodes"
    if len(answer.ends) not in (0, episodes) or not ENDS.issuperset(answer.ends):
        return "gave ends that no episode has"
    if not all(map(math.isfinite, (*answer.returns, *answer.behaviour, answer.seconds))):
        return "gave numbers that are not finite"
    if min(answer.seconds, *answer.steps, *answer.frames) < 0:
        return "gave counts below zero"
    if max(*answer.steps, *answer.frames) >= MOST or answer.seconds > LONGEST:
        return "gave counts that no episode reaches"
    return None if inputs is None else _fault_of_sums(answer, inputs)


def _fault_of_sums(answer: Evaluation, inputs: int) -> str | None:
    sums = answer.observation_sums
    if sums is None:
        return "did not add up its observations" if inputs else None
    if (len(sums.total), len(sums.squares)) != (inputs, inputs):
        return f"added up observations of {len(sums.total)} numbers, not of {inputs}"
    if not 0 <= sums.count <= sum(answer.steps) + len(answer.steps):
        return "added up more observations than it made"
    if not all(map(math.isfinite, (*sums.total, *sums.squares))):
        return "added up observations that are not finite"
    return None
