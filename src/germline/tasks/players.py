"""The individuals of a batch, decoded when a task asks for them."""

from collections.abc import Sequence
from typing import cast

import equinox as eqx
import jax

from germline.decode import Decoder, Recipe
from germline.files import Arithmetic
from germline.genome import Genome
from germline.operators import is_lowrank
from germline.policies.building import alone, build
from germline.policies.normalisation import Context
from germline.policies.protocols import Network, Policy, PolicySpec
from germline.policies.shared_products import Siblings, siblings


class Players:
    """Genomes of one policy and the means to decode them.

    `build` turns weights [params] into a policy; `jit` and `vmap` of Equinox take it as it is.
    `counting` asks tasks to add up observations, for the statistics of a normaliser. `siblings` is
    the width of shared products, 0 if there are none.
    """

    def __init__(
        self,
        spec: PolicySpec,
        decoder: Decoder,
        genomes: Sequence[Genome],
        arithmetic: Arithmetic = "float32",
        context: Context | None = None,
        siblings: int = 0,
    ) -> None:
        self.spec = spec
        self.decoder = decoder
        self.genomes = genomes
        self.arithmetic = arithmetic
        self.context = context
        self.siblings = siblings
        self.counting = getattr(spec, "normalise", None) == "observations"
        self.build = eqx.Partial(build, spec, arithmetic=arithmetic, context=context)

    def __len__(self) -> int:
        return len(self.genomes)

    @property
    def exact(self) -> bool:
        """Whether the size of a batch changes nothing."""
        return self.arithmetic == "exact"

    def policy(self, number: int) -> Policy:
        """One individual's policy."""
        theta = self.decoder.decode(self.genomes[number])
        return alone(self.spec, theta, self.arithmetic, self.context)

    def shares(self, number: int) -> bool:
        """Whether an individual shares products: with siblings, if it was born by a low rank."""
        genes = self.genomes[number].genes
        return self.siblings > 0 and bool(genes) and is_lowrank(genes[-1].operator)

    def group(self, number: int) -> object:
        """What those who can be played by one `together` have in common."""
        return self.genomes[number].parent_digest if self.shares(number) else number

    def together(self, numbers: Sequence[int], before: Policy | None = None) -> Policy:
        """One policy for lanes with these players, all of one group, as that of `before` was."""
        if not self.shares(numbers[0]):
            return self.policy(numbers[0])
        members = [self.genomes[number] for number in numbers]
        return siblings(
            cast(Network, self.spec),
            self.decoder.parent(members[0]),
            [genome.genes[-1] for genome in members],
            width=self.siblings,
            arithmetic=self.arithmetic,
            context=self.context,
            before=before if isinstance(before, Siblings) else None,
        )

    def recipe(self, width: int) -> Recipe:
        """Weights by the number of a player, below `width`, inside a compiled program."""
        return self.decoder.recipe(self.genomes, width)


def all_arrays(policy: Policy) -> bool:
    """Whether plain `jax.jit` takes a policy as an argument."""
    return all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(policy))
