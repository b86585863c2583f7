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
        "layers/0/weight": ((3, 4), 3, 1.0),
        "layers/0/bias": ((4,), 1, 0.0),
        "last/weight": ((4, 1), 4, 1.0),
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
    assert np.array_equal(module.layers[1].weight, tensors["layers/1/weight"].T)
    assert np.array_equal(module.norm.weight, tensors["norm/weight"] + 1)


def test_it_evolves_like_any_other():
    spec = policies.make("tiny", {"widths": [8]})
    genome = Genome(policies.reference("tiny", spec), Birth(1)).child(Gene(2, 0.1, "lowrank:2"))
    assert genome.policy.settings == {"inputs": 3, "widths": [8]}
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


class Eye(eqx.Module):
    """Convolutions, a callable, an array that was not drawn, a normalisation over many axes."""

    convolution: eqx.nn.Conv2d
    norm: eqx.nn.LayerNorm
    head: eqx.nn.MLP
    rhythm: jax.Array

    def __init__(self, filters: int = 4, side: int = 6, *, key):
        one, two = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(1, filters, 3, key=one)
        self.norm = eqx.nn.LayerNorm((filters, side - 2, side - 2))
        self.head = eqx.nn.MLP(filters * (side - 2) ** 2, 2, 8, 1, key=two)
        self.rhythm = jnp.arange(1.0, 3.0)

    def __call__(self, obs, carry):
        return self.head(self.norm(self.convolution(obs)).reshape(-1)) * self.rhythm, carry

    def initial_carry(self):
        return ()


class TestEye:
    @pytest.fixture(autouse=True)
    def registered(self, registered):
        policies.register("eye")(Eye)

    def test_it_conforms(self):
        policies.check("eye", jnp.zeros((1, 6, 6)))

    def test_matrices_have_their_outputs_last(self):
        tensors = {t.name: t for t in policies.make("eye", {}).layout().tensors}
        assert tensors["convolution/weight"].matrices == (1, 9, 4)
        assert tensors["convolution/weight"].fan_in == 9
        assert tensors["head/layers/0/weight"].shape == (64, 8)
        zeros = {name for name, t in tensors.items() if t.birth_scale == 0}
        assert zeros == {name for name in tensors if name[-6:] != "weight"} | {"norm/weight"}

    def test_it_is_born_as_it_was_made_where_nothing_was_drawn(self):
        spec = policies.make("eye", {})
        module = policies.build(
            spec, Decoder(spec.layout()).decode(Genome(policies.reference("eye", spec), Birth(3)))
        )
        assert (module.convolution.bias == 0).all()
        assert (module.norm.weight == 1).all()
        assert module.rhythm.tolist() == [1, 2]
        assert jnp.abs(module.convolution.weight).mean() > 0.1

    def test_its_convolution_is_filled_in_order(self):
        spec = policies.make("eye", {})
        theta = np.arange(spec.layout().size, dtype=np.float32)
        module = policies.build(spec, theta)
        kernel = spec.layout().unflatten(theta)["convolution/weight"]  # in, height, width, out
        assert np.array_equal(module.convolution.weight, np.moveaxis(kernel, -1, 0))

    def test_a_population_is_built_at_once(self):
        spec = policies.make("eye", {})
        thetas = jnp.zeros((3, spec.layout().size))
        population = eqx.filter_vmap(lambda theta: policies.build(spec, theta))(thetas)
        assert population.convolution.weight.shape == (3, 4, 1, 3, 3)

    def test_endless_sizes_are_refused_before_anything_is_allocated(self):
        with pytest.raises(policies.registry.InputError, match="weights are more than"):
            policies.make("eye", {"filters": 10**11}).layout()


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
        (lambda self, *sizes: None, "policy odd: sizes: any number of arguments cannot be kept"),
        (lambda self, layout: None, "policy odd: layout: is a name that policies use"),
        (lambda self, steps: None, "policy odd: steps: is a name that policies use"),
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


def test_arguments_are_typed_as_they_are_called():
    def initialise(self, width: "int" = 3, *, key: "Unknown"):  # noqa: F821 - as under TYPE_CHECKING
        Tiny.__init__(self, width, key=key)

    policies.register("quoted")(of(initialise))
    assert policies.make("quoted", {"width": 5}).layout().size > 0
    policies.register("heir")(type("Heir", (of(initialise),), {}))
    assert policies.make("heir", {"width": 5}).layout().size > 0

    def wrong(self, width: int = 2.5):
        pass

    with pytest.raises(TypeError, match="policy odd: width: its default does not fit"):
        policies.register("odd")(of(wrong))
    with pytest.raises(policies.registry.InputError, match="policy name"):
        policies.register("Odd_Name")(Tiny)


def test_complex_numbers_are_refused():
    class Wave(Tiny):
        wave: jax.Array

        def __init__(self, *, key):
            super().__init__(key=key)
            self.wave = jnp.zeros(2, jnp.complex64)

    policies.register("wave")(Wave)
    with pytest.raises(policies.registry.InputError, match="'wave' is complex64, not real"):
        policies.make("wave", {}).layout()


def test_what_is_neither_settings_nor_a_module_is_refused():
    with pytest.raises(TypeError, match=r"neither a msgspec.Struct nor an equinox.Module"):
        policies.register("odd")(object)
    with pytest.raises(ValueError, match="'tiny' is registered already"):
        policies.register("tiny")(type("Other", (Tiny,), {}))
    policies.register("tiny")(Tiny)
