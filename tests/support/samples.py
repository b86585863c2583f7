"""Small layouts, genomes and hypothesis strategies that many tests share."""

import math

import numpy as np
from hypothesis import strategies as st

from germline.genome import Birth, Foreign, Gene, Genome, PolicyRef, Slices, Snapshot
from germline.layout import Layout, Tensor, layer
from germline.operators import parse

PLAIN = Layout((*layer("conv", (3, 3, 2, 5)), *layer("dense", (21, 7)), *layer("out", (7, 3), 0.1)))
HEADS = Layout(
    (
        Tensor("memory/keys", (6, 11), fan_in=11, heads=True),
        Tensor("memory/classes", (6, 4, 5), fan_in=4, gain=0.5, heads=True),
        Tensor("memory/bias", (6, 5), gain=0, heads=True),
        *layer("out", (5, 3)),
    )
)
ODD = Layout((Tensor("vector", (17,), gain=0.25), Tensor("one", (1,), gain=0)))
EMPTY = Layout(
    (
        Tensor("memory/keys", (3, 5), gain=0, heads=True),
        *layer("out", (5, 3)),
        Tensor("answer/value", (3, 2), gain=0, heads=True),
    )
)
LAYOUTS = {"plain": PLAIN, "heads": HEADS, "odd": ODD, "empty": EMPTY}

OPERATORS = (
    "gaussian",
    "block:layer",
    "block:row",
    "block:head",
    "renew:layer",
    "renew:row",
    "renew:head",
    "grow",
    "sparse:0.01",
    "sparse:0.5",
    "sparse:1.0",
    "lowrank:1",
    "lowrank:3",
    "lowrank:64",
)


def operators_for(layout):
    """The operators that make sense for a layout."""
    headed = any(t.heads for t in layout.tensors)
    return [o for o in OPERATORS if headed or o not in ("block:head", "renew:head", "grow")]


# Unlike each other and quick to compile: for laws of lineages, whatever their operators.
FEW = ("gaussian", "block:row", "renew:head", "grow", "sparse:0.5")

PAIRS = [(name, o) for name, layout in LAYOUTS.items() for o in operators_for(layout)]


def policy_for(layout):
    return PolicyRef("sample", layout.digest)


def scales_of(operator, sigma):
    from germline.operators import scales

    return np.array(scales(parse(operator), sigma), np.float32)


def bits(theta):
    """The bits of float32 weights, which unlike their values tell -0 from +0."""
    return np.asarray(theta, np.float32).view(np.uint32)


seeds = st.integers(0, 2**32 - 1)

# Every significand and sign that a bfloat16 can have, over the whole range allowed.
sigmas = st.builds(
    lambda sign, significand, exponent: sign * math.ldexp(significand, exponent - 7),
    st.sampled_from([-1, 1]),
    st.integers(128, 255),
    st.integers(-64, 15),
) | st.sampled_from([2.0**-64, -(2.0**-64), 2.0**16, -(2.0**16)])


def genes(layout, operators=OPERATORS):
    known = [o for o in operators_for(layout) if o in operators]
    return st.builds(Gene, seeds, sigmas, st.sampled_from(known))


births = st.builds(Birth, seeds)
hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)
places = st.integers(0, 250_000_000 - 1)
slices = st.builds(
    Slices, places, st.lists(st.tuples(places, st.floats(-65536, 65536)), max_size=4).map(tuple)
)
foreigns = st.builds(
    Foreign, st.just("seed-list"), st.lists(seeds, max_size=4).map(tuple), hashes
) | st.builds(Foreign, st.just("uber"), slices, hashes)
roots = births | st.builds(Snapshot, hashes) | foreigns


@st.composite
def genomes(draw, layout, max_genes=6, roots=births, operators=OPERATORS):
    """A genome that starts with a birth, or with another root that need not decode."""
    lineage = draw(st.lists(genes(layout, operators), max_size=max_genes))
    return Genome(policy_for(layout), draw(roots), tuple(lineage))


def snapshot_genome(layout, blob):
    from germline.blobs import sha256

    return Genome(policy_for(layout), Snapshot(sha256(blob)))
