"""What `policies.check` refuses, and what it says of the others."""

import equinox as eqx
import jax.numpy as jnp
import msgspec
import pytest

from germline import policies
from germline.errors import InputError
from germline.layout import Layout, Tensor

OBS = jnp.zeros(3)


class Sound(eqx.Module):
    inner: eqx.nn.Linear

    def __init__(self, width: int = 2, *, key):
        self.inner = eqx.nn.Linear(3, width, key=key)

    def __call__(self, obs, carry):
        return self.inner(obs), carry

    def initial_carry(self):
        return jnp.zeros(1)


class Deaf(Sound):
    def __call__(self, obs, carry):
        return jnp.ones(2), carry


class Forgetful(Sound):
    def __call__(self, obs, carry):
        return self.inner(obs), ()


class Growing(Sound):
    def __call__(self, obs, carry):
        return self.inner(obs), jnp.concatenate([carry, carry])


class Broken(Sound):
    def __call__(self, obs, carry):
        return self.inner(obs) / 0, carry


class Scalar(Sound):
    def __call__(self, obs, carry):
        return self.inner(obs)[0], carry


class Restless(Sound):
    def __call__(self, obs, carry):
        Restless.calls = getattr(Restless, "calls", 0) + 1
        return self.inner(obs) * Restless.calls, carry


class Poisoned(Sound):
    def __call__(self, obs, carry):
        return self.inner(obs) + carry, carry + jnp.nan


class Numbered(Sound):
    def initial_carry(self):
        return 0


class Lonely(Sound):
    def __call__(self, obs, carry):
        return self.inner(obs)


class Carryless(eqx.Module):
    inner: eqx.nn.Linear

    def __init__(self, *, key):
        self.inner = eqx.nn.Linear(3, 2, key=key)

    def __call__(self, obs, carry):
        return self.inner(obs), carry


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(policies.registry, "_registry", {})

    def register(kind):
        policies.register(kind.__name__.lower())(kind)
        return kind.__name__.lower()

    return register


def test_a_sound_module_passes(registered):
    said = policies.check(registered(Sound), OBS)
    assert said.startswith("sound: a module's population is computed by vmap over what it does ")
    assert "networks of our layers gain more" in said
    assert policies.check(policies.make("sound", {"width": 5}), OBS) == said


@pytest.mark.parametrize(
    ("arithmetic", "how"),
    [
        ("float32", "batched products, in float32"),
        ("bfloat16", "batched products, in bfloat16"),
        ("exact", "batched products of integers, on int8 units if it can"),
    ],
)
def test_a_network_says_how_a_population_is_computed(arithmetic, how):
    spec = policies.exact(policies.make("mlp", {"hidden": [8]}))
    said = policies.check(spec, arithmetic=arithmetic)
    assert said == f"mlp: a population is computed in {how}"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Deaf, "policy deaf: three sets of weights give one and the same output"),
        (Forgetful, r"policy forgetful: its carry .*float32\[1\].* becomes \(\)"),
        (Growing, r"its carry .*\[1\].* becomes .*\[2\]"),
        (Broken, r"policy broken: expected finite outputs \[n\], got \[.*(nan|inf)"),
        (Scalar, r"expected finite outputs \[n\]"),
        (Restless, "policy restless: no jit gives"),
        (Poisoned, r"policy poisoned: expected finite outputs"),
        (Numbered, "policy numbered: its carry must be made of arrays, not 0"),
        (Lonely, r"policy lonely: a call must give \(output, carry\)"),
    ],
)
def test_what_would_not_evolve_is_refused(registered, kind, words):
    with pytest.raises(InputError, match=words):
        policies.check(registered(kind), OBS)


def test_a_module_without_a_carry_is_not_registered(registered):
    with pytest.raises(TypeError, match=r"Carryless needs initial_carry\(\)"):
        registered(Carryless)


def test_an_example_is_needed_unless_the_network_says_what_it_sees(registered):
    with pytest.raises(InputError, match="policy sound: give an example of an observation"):
        policies.check(registered(Sound))


def test_settings_must_be_registered():
    for odd in (object(), Sound):
        with pytest.raises(InputError, match=r"policy: .* is not the settings of a registered"):
            policies.check(odd)


def test_an_example_of_another_form_is_refused():
    with pytest.raises(InputError, match=r"policy mlp: sees \[4\], not \[9\]"):
        policies.check("mlp", jnp.zeros(9))


def test_settings_must_survive_a_genome(registered):
    class Fussy(msgspec.Struct, frozen=True):
        sizes: list[int] = []
        other: str | None = "default"

        def layout(self):
            return Layout((Tensor("numbers", (2,)),))

    name = registered(Fussy)
    with pytest.raises(InputError, match="its settings must be hashable"):
        policies.check(name)
    with pytest.raises(InputError, match="policy settings"):
        policies.reference(name, Fussy(other=None))


def test_large_steps_are_not_taken_for_deafness():
    spec = policies.make("mlp", {"inputs": 2000, "hidden": [64], "outputs": 4})
    policies.check(policies.exact(spec, genes=100, sigma=0.5), arithmetic="exact")
