"""The individuals of a batch, decoded when a task asks for them."""

from collections.abc import Sequence

import equinox as eqx
import jax

from germline.decode import Decoder, Recipe
from germline.files import Arithmetic
from germline.genome import Genome
from germline.policies.context import Context
from germline.policies.networks import build
from germline.policies.protocols import Policy, PolicySpec


class Players:
    """Genomes of one policy and the means to decode them.

    `build` turns weights [params] into a policy; `jit` and `vmap` of Equinox take it as it is.
    `counting` asks tasks to add up observations, for the statistics of a normaliser.
    """

    def __init__(
        self,
        spec: PolicySpec,
        decoder: Decoder,
        genomes: Sequence[Genome],
        arithmetic: Arithmetic = "float32",
        context: Context | None = None,
    ) -> None:
        self.spec = spec
        self.decoder = decoder
        self.genomes = genomes
        self.counting = getattr(spec, "normalise", None) == "observations"
        self.build = eqx.Partial(build, spec, arithmetic=arithmetic, context=context)

    def __len__(self) -> int:
        return len(self.genomes)

    def policy(self, number: int) -> Policy:
        """One individual's policy."""
        return self.build(self.decoder.decode(self.genomes[number]))

    def recipe(self, width: int) -> Recipe:
        """Weights by the number of a player, below `width`, inside a compiled program."""
        return self.decoder.recipe(self.genomes, width)


def all_arrays(policy: Policy) -> bool:
    """Whether plain `jax.jit` takes a policy as an argument."""
    return all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(policy))
