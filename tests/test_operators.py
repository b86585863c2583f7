import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline.errors import InputError
from germline.layout import Layout, Tensor
from germline.operators import Lowrank, Sparse, check, draws_anew, is_lowrank, parse, scales
from samples import HEADS, OPERATORS, PLAIN


@pytest.mark.parametrize("text", OPERATORS)
def test_canonical_spellings_are_kept(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("sparse:.1", "sparse:0.1"), ("sparse:1", "sparse:1.0"), ("sparse:1e-5", "sparse:1e-05")],
)
def test_other_spellings_become_canonical(text, canonical):
    assert str(parse(text)) == canonical


@given(st.floats(2.0**-33, 1, exclude_min=True))
def test_every_share_round_trips(share):
    assert parse(str(Sparse(share))) == Sparse(share)
    assert 1 <= Sparse(share).threshold <= 2**32


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Gaussian",
        "gaussian:1",
        "block",
        "block:net",
        "renew",
        "renew:net",
        "grow:head",
        "sparse",
        "sparse:0",
        "sparse:1.1",
        "sparse:-0.1",
        "sparse:nan",
        "sparse:1e-11",
        "sparse:1e999",
        "lowrank:0",
        "lowrank:65",
        "lowrank:1.5",
        "lowrank:٣",
        "module:os.system",
        "sparse:" + "1" * 10**6 + "x",
    ],
)
def test_unknown_spellings_are_refused(text):
    with pytest.raises(InputError, match=r"operator: .* is not one of gaussian, block"):
        parse(text)


def test_lowrank_scale_is_rounded_once_from_sigma():
    assert scales(Lowrank(1), 0.5) == (0.5, 0.5)
    assert scales(Lowrank(64), 0.5) == (0.5, 0.0625)
    assert scales(Lowrank(2), 1.0) == (1.0, 0.70703125)


def test_an_operator_must_suit_the_network():
    for text in ("block:head", "renew:head", "grow"):
        check(parse(text), HEADS)
        with pytest.raises(InputError, match=f"operator: {text} needs a network with heads"):
            check(parse(text), PLAIN)
    tall = Layout((Tensor("w", (2**22 + 1, 2), fan_in=2),))
    check(parse("lowrank:63"), tall)
    for layout in (tall, Layout((Tensor("w", (2, 2**22 + 1), fan_in=2),))):
        with pytest.raises(InputError, match="lowrank:64 would draw 268,435,520 numbers"):
            check(parse("lowrank:64"), layout)


def test_what_is_asked_of_an_operator_has_an_answer_for_none():
    assert [text for text in ("", *OPERATORS) if is_lowrank(text)] == [
        text for text in OPERATORS if text.startswith("lowrank")
    ]
    assert [text for text in ("", *OPERATORS) if draws_anew(text)] == [
        text for text in OPERATORS if text.startswith(("renew", "grow"))
    ]
