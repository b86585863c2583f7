"""The individuals of a batch, decoded when a task asks for them."""

from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax

from germline.decode import Decoder
from germline.files import Arithmetic
from germline.genome import Genome
from germline.policies.context import Context
from germline.policies.networks import build
from germline.policies.protocols import Policy, PolicySpec


class Players:
    """Genomes of one policy and the means to decode them.

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
        self._build = partial(build, spec, arithmetic=arithmetic, context=context)

    def __len__(self) -> int:
        return len(self.genomes)

    def policy(self, number: int) -> Policy:
        """One individual's policy."""
        return self._build(self.decoder.decode(self.genomes[number]))

    def policies(self, numbers: Sequence[int], width: int) -> Policy:
        """Policies stacked [width, ...]; the places left over repeat the last one."""
        chosen = [self.genomes[i] for i in numbers]
        chosen += chosen[-1:] * (width - len(chosen))
        thetas = self.decoder.decode_many(chosen)
        return eqx.filter_vmap(self._build)(thetas)


def all_arrays(policy: Policy) -> bool:
    """Whether plain `jax.jit` takes a policy as an argument."""
    return all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(policy))
