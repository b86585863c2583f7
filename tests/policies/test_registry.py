import msgspec
import pytest

from germline import policies
from germline.errors import InputError
from germline.genome import PolicyRef
from germline.layout import Layout, Tensor


@pytest.mark.parametrize(
    ("name", "settings", "weights"),
    [
        ("dqn", {}, 4_052_658),
        ("dqn", {"padding": "valid"}, 1_693_362),
        ("dqn", {"actions": 6}, 4_046_502),
        ("mlp", {}, 4_610),
        ("mlp", {"inputs": 3, "hidden": [], "outputs": 2}, 8),
    ],
)
def test_weight_counts(name, settings, weights):
    spec = policies.make(name, settings)
    assert spec.layout().size == weights
    reference = policies.reference(name, spec)
    assert policies.layout_of(reference) == spec.layout()
    assert policies.make(name, reference.settings) == spec


def test_birth_scales_of_the_paper():
    scales = {t.name: t.birth_scale for t in policies.make("dqn", {}).layout().tensors}
    assert scales["conv1/weight"] == 1 / 16
    assert scales["out/weight"] == 0.00442504882812500  # bf16 of 0.1/√512
    assert all(scale == 0 for name, scale in scales.items() if name.endswith("/bias"))


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("dqm", {}, "policy: 'dqm' is not registered; did you mean dqn?"),
        ("zzz", {}, "there are conv, conv-lstm, dqn, ensemble"),
        ("module:os", {}, "is not registered"),
        ("mlp", {"inputs": 0}, "policy mlp: settings: inputs: expected int >= 1"),
        (
            "mlp",
            {"depth": 3},
            "policy mlp: settings: 'depth' is not one of its settings; there are inputs, hidden",
        ),
        ("mlp", {"hidden": ["a"]}, r"hidden\[0\]: expected int, got str"),
        (
            "dqn",
            {"padding": "full"},
            "padding: invalid enum value 'full'; there are same, valid",
        ),
    ],
)
def test_wrong_names_and_settings_are_refused(name, settings, words):
    with pytest.raises(InputError, match=words):
        policies.make(name, settings)


def test_a_genome_of_another_layout_is_refused():
    with pytest.raises(InputError, match="policy mlp: layout: the genome says 0000"):
        policies.layout_of(PolicyRef("mlp", "0" * 64))


def test_registering(monkeypatch):
    monkeypatch.setattr(policies.registry, "_registry", {})

    class Two(msgspec.Struct, frozen=True):
        def layout(self):
            return Layout((Tensor("numbers", (2,)),))

    policies.register("two")(Two)
    policies.register("two")(Two)
    assert policies.names() == ["two"]
    assert policies.make("two", {}).layout().size == 2
    with pytest.raises(ValueError, match="registered already"):
        policies.register("two")(type("Other", (Two,), {}))
