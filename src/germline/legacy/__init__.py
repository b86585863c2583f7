"""Genomes that other systems published: Foreign roots, decoded by those systems' own rules.

Their rules end in logarithms and sines, which C libraries may round differently, so the weights are
known by their hash: whoever decodes them has the same bits, or is told.

The modules in reading order:

    uber              slices of one table of noise, of "Deep Neuroevolution"
    truncated_normal  how TensorFlow 1 drew first weights
    seed_list         these, and a seed for each mutation
"""

import numpy as np
from numpy.typing import NDArray

from germline import blobs
from germline.errors import InputError
from germline.genome import Foreign, Slices
from germline.layout import Layout
from germline.legacy import seed_list, uber

Weights = NDArray[np.float32]


def weights(root: Foreign, layout: Layout) -> Weights:
    """Decode a root [params]; refused if it does not come out as it did where it was imported."""
    theta = decode(root.payload, layout)
    found = blobs.weights_hash(theta)
    if found != root.sha256:
        raise InputError(
            f"root: {root.format}: the weights hash to {found[:16]}, not {root.sha256[:16]}: the "
            "file was changed, or this machine computes them differently; import the original here"
            f"{uber.advice() if root.format == 'uber' else ''}"
        )
    return theta


def root(payload: tuple[int, ...] | Slices, layout: Layout) -> Foreign:
    """Make a root of what another system published: decode it once, and note the hash."""
    known = Foreign("uber" if isinstance(payload, Slices) else "seed-list", payload, "0" * 64)
    digest = blobs.weights_hash(decode(known.payload, layout))
    return Foreign(known.format, known.payload, digest)


def decode(payload: tuple[int, ...] | Slices, layout: Layout) -> Weights:
    """The weights [params], clean as those of a Snapshot: finite, no subnormals, no -0."""
    theta = (
        uber.weights(payload, layout)
        if isinstance(payload, Slices)
        else seed_list.weights(payload, layout)
    )
    return np.frombuffer(blobs.pack(theta), "<f4")
