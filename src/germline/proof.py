"""What exact arithmetic gives on every machine: one digest, computed here and compared.

A run in exact arithmetic is the same on any mix of machines, as long as each of them decodes,
multiplies and emulates as the others do. A worker shows that it does before it joins.
"""

import hashlib
import math
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from germline import mutation, policies
from germline.decode import Decoder
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome
from germline.noise import Stream, reference_words
from germline.policies.arithmetic import integers_reference
from germline.policies.building import alone, build
from germline.policies.conv import Conv
from germline.policies.protocols import ExactNetwork
from germline.tasks.atari import Atari, Console
from germline.tasks.protocols import Episode

OBSERVATIONS = 200
OPERATORS = ("gaussian", "block:layer", "block:row", "sparse:0.1", "lowrank:2")
NETWORK = "e264ffea211f932788ed8f0d332cc6bb6b346f792020a23376614e5c148e9bd7"
GAME = "6e0136b3b39e19dede5a7407d8a035d2f8da74781caf682288f454100b728dc9"


def wanted(task: str) -> dict[str, str]:
    """The digests that a worker must have computed to join an exact run on a task."""
    return {"network": NETWORK, "game": GAME} if task == "atari" else {"network": NETWORK}


@lru_cache
def check(task: str) -> dict[str, str]:
    """Refuse to evaluate for an exact run on a machine that gives something else."""
    compute = {"network": network, "game": game}
    for name, golden in wanted(task).items():
        if (found := compute[name]()) != golden:
            raise InputError(
                f"arithmetic: exact: the {name} digest is {found[:16]} here and {golden[:16]} "
                "elsewhere, so this machine would give other results; play in float32, or find "
                "what differs, such as the versions of jax and ale-py"
            )
    return wanted(task)


def network() -> str:
    """Weights of a lineage with five operators, and what they answer to random pixels.

    Once as populations compute on this machine, and once as individuals do.
    """
    spec, theta = _individual()
    digest = hashlib.sha256(np.asarray(theta, "<f4").tobytes())
    words, _ = reference_words(1, Stream.WEIGHTS, 0, 4 * math.prod(spec.observation))
    seen = (words & np.uint32(255)).astype(np.uint8).reshape(4, *spec.observation)
    for policy in (build(spec, theta, "exact"), alone(spec, theta, "exact")):
        digest.update(np.asarray(_answers(policy, seen), "<i4").tobytes())
    return digest.hexdigest()


def game() -> str:
    """All that a small network sees and answers in the first observations of an episode."""
    spec, theta = _individual()
    policy = alone(spec, theta, "exact")
    console = Console(Atari("frostbite"))
    look = jax.jit(console.eyes.see)
    shape, dtype = console.eyes.shown()
    shown, sight = np.zeros(shape, dtype), console.eyes.sight()
    console.start(Episode(0, 1, None), shown)
    digest = hashlib.sha256()
    for _ in range(OBSERVATIONS):
        obs, sight = look(shown, sight)
        logits = np.asarray(_answers(policy, obs[None]), "<i4")
        digest.update(np.asarray(obs).tobytes() + logits.tobytes())
        console.step(int(logits[0].argmax()), shown)
    return digest.hexdigest()


def plays(spec: ExactNetwork) -> None:
    """Refuse a device that computes this very network, in a population, not as it is defined."""
    layout = spec.layout()
    birth = jax.jit(partial(mutation.birth, layout=layout))
    thetas = jnp.stack([birth(jnp.uint32(seed)) for seed in (1, 2)])
    words, _ = reference_words(2, Stream.WEIGHTS, 0, 2 * math.prod(spec.observation))
    seen = (words & np.uint32(255)).astype(np.uint8).reshape(2, *spec.observation)

    def play(theta: jax.Array, obs: jax.Array) -> jax.Array:
        policy = build(spec, theta, "exact")
        return policy(obs, policy.initial_carry())[0]

    found = np.asarray(jax.jit(jax.vmap(play))(thetas, jnp.asarray(seen)))
    for number, theta in enumerate(np.asarray(thetas)):
        wanted = integers_reference.outputs(spec, theta, seen[number : number + 1])[0]
        if not np.array_equal(found[number], wanted):
            raise InputError(
                f"arithmetic: exact: this {jax.devices()[0].device_kind} computes this network "
                "otherwise than defined; play on the CPU with --device cpu, and please report it"
            )


_answers = jax.jit(lambda policy, seen: jax.vmap(lambda obs: policy(obs, ())[0])(seen))


@lru_cache
def _individual() -> tuple[Conv, jax.Array]:
    spec = policies.exact(Conv(filters=(4, 8), hidden=(32,)), sigma=0.05, genes=len(OPERATORS))
    genes = tuple(Gene(number, 0.05, operator) for number, operator in enumerate(OPERATORS))
    genome = Genome(policies.reference("conv", spec), Birth(1), genes)
    return spec, Decoder(spec.layout()).decode(genome)
