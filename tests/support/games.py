"""Small tasks with known answers, for runs in tests: `imports = ["games"]`."""

import hashlib
import os
import signal
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from germline import tasks

TARGET = 0.25


def weights(policy):
    """All weights of a policy, in one order."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(policy)])


@tasks.register("positive")
def positive(policy, seed):
    """How many weights are above zero: whole numbers, the same on every machine."""
    return float((weights(policy) > 0).sum())


@tasks.register("placed")
def placed(policy, seed):
    """Like `positive`, and as behaviour how many of the first weights and of the last."""
    above = weights(policy) > 0
    half = len(above) // 2
    return float(above.sum()), (float(above[:half].sum()), float(above[half:].sum()))


@tasks.register("near", jax=True)
def near(policy, seed):
    """How near all weights are to a target, biases too: the best possible is 0."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(policy)]
    return -jnp.mean((jnp.concatenate(leaves) - TARGET) ** 2)


def note(theta, seed):
    """Who was scored on which episode; the order of the weights does not matter."""
    return f"{hashlib.sha256(np.sort(theta).tobytes()).hexdigest()[:16]} {seed}"


@tasks.register("noted")
def noted(policy, seed):
    """Like `positive`, slowly, noting every call in the file that NOTES names."""
    time.sleep(0.005)
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{note(weights(policy), seed)}\n")
    return positive(policy, seed)


@tasks.register("unhurried")
def unhurried(policy, seed):
    """Like `positive`, slowly enough for something to happen meanwhile."""
    time.sleep(0.01)
    return positive(policy, seed)


@tasks.register("brittle")
def brittle(policy, seed):
    """Divides by zero for every second individual or so."""
    return 1.0 / float(weights(policy)[-1] > 0)


@tasks.register("deadly")
def deadly(policy, seed):
    """Ends the process for the one individual that has not moved: the centre of ES."""
    values = weights(policy)
    if (values == 0).sum() >= 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(values.sum())
