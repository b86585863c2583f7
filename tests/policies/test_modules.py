"""Equinox modules of a user, registered as they are."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from germline import Birth, Decoder, Gene, Genome, policies


class Tiny(eqx.Module):
    """A module that knows nothing of Germline."""

    scale: jax.Array
    norm: eqx.nn.LayerNorm
    layers: list[eqx.nn.Linear]
    last: eqx.nn.Linear
    shift: jax.Array
    name: str

    def __init__(self, inputs: int = 3, widths: tuple[int, ...] = (4, 5), *, key):
        keys = jax.random.split(key, len(widths) + 1)
        self.scale = jnp.asarray(2.0)
        self.norm = eqx.nn.LayerNorm(inputs)
        sizes = (inputs, *widths)
        self.layers = [
            eqx.nn.Linear(a, b, key=k) for a, b, k in zip(sizes, widths, keys, strict=False)
        ]
        self.last = eqx.nn.Linear(sizes[-1], 1, key=keys[-1])
        self.shift = jnp.zeros(1)
        self.name = "tiny"

    def __call__(self, obs, carry):
        x = self.norm(obs)
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return self.scale * self.last(x) + self.shift, carry + 1

    def initial_carry(self):
        return jnp.zeros((), jnp.int32)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(policies.registry, "_registry", {})
    policies.register("tiny")(Tiny)


def test_it_conforms():
    policies.check("tiny", jnp.ones(3))


def test_its_layout_comes_from_its_arrays():
    layout = policies.make("tiny", {"widths": [4]}).layout()
    found = {t.name: (t.shape, t.fan_in, t.gain) for t in layout.tensors}
    assert found == {
        "scale": ((1,), 1, 0.0),
        "norm/weight": ((3,), 1, 0.0),
        "norm/bias": ((3,), 1, 0.0),
        "layers/0/weight": ((4, 3), 3, 1.0),
        "layers/0/bias": ((4,), 1, 0.0),
        "last/weight": ((1, 4), 4, 1.0),
        "last/bias": ((1,), 1, 0.0),
        "shift": ((1,), 1, 0.0),
    }


def test_zeros_leave_constants_as_they_were_made_and_forget_what_was_drawn():
    spec = policies.make("tiny", {})
    module = policies.build(spec, jnp.zeros(spec.layout().size))
    assert isinstance(module, Tiny)
    assert module.scale == 2
    assert (module.norm.weight == 1).all()
    assert (module.last.bias == 0).all()  # one number, but drawn at random
    assert (module.layers[0].weight == 0).all()
    assert module.name == "tiny"


def test_weights_reach_their_places():
    spec = policies.make("tiny", {})
    layout = spec.layout()
    theta = np.arange(layout.size, dtype=np.float32)
    module = policies.build(spec, theta)
    tensors = layout.unflatten(theta)
    assert np.array_equal(module.layers[1].weight, tensors["layers/1/weight"])
    assert np.array_equal(module.norm.weight, tensors["norm/weight"] + 1)


def test_it_evolves_like_any_other():
    spec = policies.make("tiny", {"widths": [8]})
    genome = Genome(policies.reference("tiny", spec), Birth(1)).child(Gene(2, 0.1, "lowrank:2"))
    assert genome.policy.settings == {"inputs": 3, "widths": (8,)}
    layout = policies.layout_of(genome.policy)
    module = policies.build(spec, Decoder(layout).decode(genome))
    output, carry = eqx.filter_jit(lambda m, o, c: m(o, c))(
        module, jnp.ones(3), module.initial_carry()
    )
    assert output.shape == (1,)
    assert carry == 1


def test_arrays_after_a_submodule_keep_their_layer_together():
    class Inner(eqx.Module):
        before: jax.Array
        middle: eqx.nn.Linear
        after: jax.Array

        def __init__(self, key):
            self.before, self.after = jnp.zeros(2), jnp.zeros(3)
            self.middle = eqx.nn.Linear(2, 2, key=key)

    class Outer(Tiny):
        inner: Inner

        def __init__(self, *, key):
            super().__init__(key=key)
            self.inner = Inner(key)

    policies.register("outer")(Outer)
    names = [t.name for t in policies.make("outer", {}).layout().tensors]
    assert names[-4:] == ["inner/before", "inner/after", "inner/middle/weight", "inner/middle/bias"]


def test_only_float32_is_played():
    spec = policies.make("tiny", {})
    with pytest.raises(policies.registry.InputError, match="Tiny plays in float32, not exact"):
        policies.build(spec, jnp.zeros(spec.layout().size), "exact")


def of(initialise):
    return type("Odd", (Tiny,), {"__init__": initialise})


@pytest.mark.parametrize(
    ("initialise", "words"),
    [
        (lambda self, rate: None, "policy odd: rate: a genome keeps .* an argument without a type"),
        (lambda self, *sizes: None, r"policy odd: \*sizes cannot be kept"),
        (lambda self, layout: None, "an argument cannot be called layout"),
    ],
)
def test_arguments_that_a_genome_cannot_keep_are_refused(initialise, words):
    with pytest.raises(TypeError, match=words):
        policies.register("odd")(of(initialise))


def test_float_arguments_are_refused():
    def initialise(self, rate: float = 0.1):
        pass

    with pytest.raises(
        TypeError, match=r"policy odd: rate: a genome keeps int.* not <class 'float'"
    ):
        policies.register("odd")(of(initialise))


def test_what_is_neither_settings_nor_a_module_is_refused():
    with pytest.raises(TypeError, match=r"neither a msgspec.Struct nor an equinox.Module"):
        policies.register("odd")(object)
    with pytest.raises(ValueError, match="'tiny' is registered already"):
        policies.register("tiny")(type("Other", (Tiny,), {}))
    policies.register("tiny")(Tiny)
