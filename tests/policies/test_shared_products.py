"""Shared products of `lowrank` siblings."""

import jax
import numpy as np
import pytest

from germline import Birth, Decoder, Gene, Genome, policies
from germline.errors import InputError
from networks import context_of, observations, patient, play, random_weights, spec_of

pytestmark = pytest.mark.numerics

NAMES = ["mlp", "dqn valid", "gru", "conv-lstm normalised", "memory", "ensemble", "mlp normalised"]

play_all = jax.jit(lambda group, obs, carry: group(obs, carry))


def family(spec, rank=2, count=5):
    """A parent's weights, the genes of its children, and the children's own weights."""
    name = policies.registry.name_of(spec)
    parent = Genome(policies.reference(name, spec), Birth(1)).child(Gene(9, 0.05))
    genes = [Gene(i, (-1) ** i * 0.05, f"lowrank:{rank}") for i in range(count)]
    decoder = Decoder(spec.layout())
    return decoder.decode(parent), genes, [decoder.decode(parent.child(gene)) for gene in genes]


@pytest.mark.parametrize("name", patient(NAMES))
def test_siblings_play_as_they_would_with_their_own_weights(name):
    spec = spec_of(name)
    context = context_of(spec)
    parent, genes, thetas = family(spec)
    seen = observations(spec, 8)
    group = policies.siblings(spec, parent, [*genes, None], width=8, context=context)
    outputs, _ = play_all(group, seen, group.initial_carry())
    for output, theta, obs in zip(outputs, [*thetas, parent], seen, strict=False):
        own = play(policies.build(spec, theta, context=context), obs)
        np.testing.assert_allclose(output, own, rtol=2e-3, atol=2e-3)
    assert len({tuple(np.asarray(o)) for o in outputs[:5]}) == 5


@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize("name", patient(["mlp", "dqn valid"], {"dqn valid"}))
def test_an_individual_is_the_same_alone_and_in_any_company(name, rank):
    spec = spec_of(name)
    parent, genes, _ = family(spec, rank, 8)
    seen = observations(spec, 1)
    together = policies.siblings(spec, parent, genes, width=8)
    repeated = np.repeat(seen, 8, axis=0)
    outputs, _ = play_all(together, repeated, together.initial_carry())
    for place, gene in enumerate(genes):
        alone = policies.siblings(spec, parent, [gene], width=8)
        found, _ = play_all(alone, repeated, alone.initial_carry())
        for other in range(8):
            assert np.array_equal(found[other], outputs[place])


def test_the_parents_matrix_is_multiplied_once_for_all():
    spec = policies.make("mlp", {"inputs": 300, "hidden": [200], "outputs": 3})
    parent, genes, _ = family(spec, 2, 5)
    group = policies.siblings(spec, parent, genes, width=16)
    text = play_all.lower(group, observations(spec, 16), group.initial_carry()).as_text()
    assert "tensor<16x300xf32>, tensor<300x200xf32>" in text  # all observations, one matrix
    assert "16x300x200" not in text


def test_bfloat16_siblings():
    spec = spec_of("mlp")
    parent, genes, thetas = family(spec)
    seen = observations(spec, 5)
    group = policies.siblings(spec, parent, genes, width=5, arithmetic="bfloat16")
    outputs, _ = play_all(group, seen, group.initial_carry())
    for output, theta, obs in zip(outputs, thetas, seen, strict=True):
        own = play(policies.build(spec, theta), obs)
        np.testing.assert_allclose(output, own, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("genes", "extra", "words"),
    [
        ([], {}, "expected 1 to 4 genes, got 0"),
        ([None] * 5, {}, "expected 1 to 4 genes, got 5"),
        ([Gene(1, 0.1)], {}, "shared products need lowrank genes, all of one rank"),
        ([Gene(1, 0.1, "lowrank:1"), Gene(1, 0.1, "lowrank:2")], {}, "all of one rank"),
        ([None], {"arithmetic": "exact"}, "shared products are float arithmetic"),
    ],
)
def test_what_cannot_share_is_refused(genes, extra, words):
    spec = spec_of("mlp")
    with pytest.raises(InputError, match=words):
        policies.siblings(spec, random_weights(spec.layout()), genes, width=4, **extra)


def test_parents_of_another_network_are_refused():
    with pytest.raises(InputError, match=r"weights: expected \[111\], got \[3\]"):
        policies.siblings(spec_of("mlp"), np.zeros(3), [None], width=4)


def test_the_width_is_kept():
    spec = spec_of("mlp")
    group = policies.siblings(spec, random_weights(spec.layout()), [None], width=4)
    with pytest.raises(InputError, match="expected 4 observations, got 3"):
        group(observations(spec, 3), group.initial_carry())
