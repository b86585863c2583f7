import numpy as np
import pytest

from germline.errors import InputError
from germline.layout import MAX_WEIGHTS, Layout, Tensor, layer
from samples import HEADS, LAYOUTS, PAIRS, PLAIN


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_flatten_and_unflatten_are_inverse(layout):
    theta = np.arange(layout.size, dtype=np.float32)
    tensors = layout.unflatten(theta)
    assert {name: t.shape for name, t in tensors.items()} == {
        t.name: t.shape for t in layout.tensors
    }
    assert (layout.flatten(tensors) == theta).all()
    batch = layout.unflatten(np.stack([theta, theta]))
    assert all(batch[t.name].shape == (2, *t.shape) for t in layout.tensors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"conv/bias": None}, "'conv/bias' is missing"),
        ({"extra": np.zeros(1, np.float32)}, "'extra' is not one of the network's"),
        ({"conv/bias": np.zeros(4, np.float32)}, r"'conv/bias': expected float32 \[5\]"),
        ({"conv/bias": np.zeros(5)}, "got float64"),
    ],
)
def test_flatten_names_the_wrong_tensor(change, words):
    tensors = PLAIN.unflatten(np.zeros(PLAIN.size, np.float32)) | change
    with pytest.raises(InputError, match=words):
        PLAIN.flatten({k: v for k, v in tensors.items() if v is not None})


@pytest.mark.parametrize(("name", "operator"), [pair for pair in PAIRS if "block" in pair[1]])
def test_blocks_are_disjoint_and_cover(name, operator):
    layout, kind = LAYOUTS[name], operator.removeprefix("block:")
    count = np.zeros(layout.size, int)
    for block in layout.blocks(kind):
        for start, stop in block:
            assert start < stop
            count[start:stop] += 1
    in_heads = np.concatenate([np.full(t.size, t.heads) for t in layout.tensors])
    assert (count == (in_heads if kind == "head" else 1)).all()


def test_blocks_of_each_kind():
    assert PLAIN.blocks("layer")[:, 0].tolist() == [[0, 95], [95, 249], [249, 273]]
    assert len(PLAIN.blocks("row")) == 18 + 1 + 21 + 1 + 7 + 1
    assert PLAIN.blocks("row")[18, 0].tolist() == [90, 95]
    assert HEADS.blocks("head")[1].tolist() == [[11, 22], [86, 106], [191, 196]]


def test_matrices():
    assert PLAIN.tensors[0].matrices == (1, 18, 5)
    assert PLAIN.tensors[1].matrices is None
    assert HEADS.tensors[0].matrices is None
    assert HEADS.tensors[1].matrices == (6, 4, 5)


def test_birth_scales_are_bfloat16_and_biases_have_none():
    weight, bias = layer("dense", (7744, 512))
    assert weight.birth_scale == 0.01135253906250  # bf16 of 1/88
    assert bias.birth_scale == 0


def test_digest_changes_with_every_fact():
    base = Tensor("a/b", (2, 3), 2, 0.5)
    others = [
        Tensor("a/c", (2, 3), 2, 0.5),
        Tensor("a/b", (3, 2), 2, 0.5),
        Tensor("a/b", (2, 3), 3, 0.5),
        Tensor("a/b", (2, 3), 2, 0.6),
        Tensor("a/b", (2, 3), 2, 0.5, heads=True),
        Tensor("a/b", (2, 3), 2, 0.5, step=-4),
    ]
    digests = {Layout((t,)).digest for t in (base, *others)}
    assert len(digests) == 1 + len(others)
    assert Layout((base,)) == Layout((Tensor("a/b", (2, 3), 2, 0.5),))
    assert len({Layout((base,)), Layout((base,))}) == 1


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (lambda: (), "1 to 4096 tensors, not 0"),
        (lambda: (Tensor("a", (1,)),) * 2, "same name"),
        (lambda: (Tensor("a", (10**6, 10**6)),), "1,000,000,000,000 weights"),
        (lambda: (Tensor("a", (MAX_WEIGHTS,)), Tensor("b", (1,))), "allowed"),
        (lambda: (Tensor("a b", (1,)),), "name 'a b'"),
        (lambda: (Tensor("a", ()),), "needs 1 to 8 axes"),
        (lambda: (Tensor("a", (3, 0)),), "each >= 1"),
        (lambda: (Tensor("a", (3,), heads=True),), "needs 1 to 8 axes"),
        (lambda: (Tensor("a", (3,), fan_in=0),), "fan_in"),
        (lambda: (Tensor("a", (3,), gain=-1),), "gain"),
        (lambda: (Tensor("a", (2.0,)),), "shape"),
        (lambda: (Tensor("a", (3,), gain=1e-30),), "birth scale of a: 1e-30 is too small"),
        (lambda: (Tensor("a", (3,), step=99),), "step"),
        (
            lambda: (Tensor("a", (3, 1), heads=True), Tensor("b", (2, 1), heads=True)),
            "number of heads",
        ),
        (
            lambda: (Tensor("x/a", (1,)), Tensor("y/a", (1,)), Tensor("x/b", (1,))),
            "side by side",
        ),
    ],
)
def test_bad_layouts_are_refused(tensors, words):
    with pytest.raises(InputError, match=words):
        Layout(tensors())
