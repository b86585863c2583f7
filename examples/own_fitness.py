"""A fitness function of your own: no environment, just a number for a network.

python examples/own_fitness.py
"""

import jax.numpy as jnp

import germline
from germline import tasks

QUESTIONS = jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]], jnp.float32)
ANSWERS = jnp.array([0, 1, 1, 0], jnp.float32)


@tasks.register("xor", jax=True)  # traced by JAX: many networks at once; without, plain Python
def xor(policy, seed):
    """How near a network comes to "one or the other, but not both"; 0 is perfect."""
    outputs = jnp.stack([policy(question, policy.initial_carry())[0][0] for question in QUESTIONS])
    return -jnp.sum((outputs - ANSWERS) ** 2)


# Workers import this script to know the function, so training is kept from them.
if __name__ == "__main__":
    run = germline.train(
        {
            "name": "xor",
            "task": {"name": "xor"},
            "policy": {"name": "mlp", "inputs": 2, "hidden": [8], "outputs": 1},
            "algorithm": {"name": "ga", "population": 200, "sigma": 0.2, "candidates": 0},
            "stop": {"generations": 200, "score": -0.01},
        },
        listener=lambda report, totals: print(f"{report.generation}: {report.elite:.4f}"),
    )
    raise SystemExit(run.reports[-1].elite < -0.01)
