"""Small tasks with known answers, for runs in tests: `imports = ["games"]`."""

import os
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


@tasks.register("near", jax=True)
def near(policy, seed):
    """How near all weights are to a target, biases too: the best possible is 0."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(policy)]
    return -jnp.mean((jnp.concatenate(leaves) - TARGET) ** 2)


@tasks.register("noted")
def noted(policy, seed):
    """Like `positive`, slowly, noting every call in the file that NOTES names."""
    time.sleep(0.005)
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{seed}\n")
    return positive(policy, seed)
