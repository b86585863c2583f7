"""The definition of decoding in plain numpy, to be read beside the format's documentation.

Slow and simple: whole arrays, one gene after another, no cache. `mutation.py` and `decode.py` must
give the same bits; `germline genome hash --engine numpy` lets anyone compare.
"""

import numpy as np
from numpy.typing import NDArray

from germline import blobs, legacy, operators
from germline.blobs import Blobs
from germline.genome import Birth, Foreign, Gene, Genome
from germline.layout import Layout
from germline.noise import Stream, reference_noise, reference_words
from germline.operators import Block, Gaussian, Grow, Lowrank, Renew, Sparse

Weights = NDArray[np.float32]


def decode(genome: Genome, layout: Layout, snapshots: Blobs | None = None) -> Weights:
    """Rebuild all weights of a genome [params]."""
    match genome.root:
        case Birth(seed=seed):
            theta = birth(seed, layout)
        case Foreign() as root:
            theta = legacy.weights(root, layout)
        case root:
            theta = blobs.find(snapshots or {}, root.sha256, layout.size)
    for gene in genome.genes:
        theta = mutate(theta, gene, layout)
    return theta


def birth(seed: int, layout: Layout) -> Weights:
    """θ₀ = scale ⊙ z(seed, 0, ·), and +0.0 where the scale is 0."""
    theta = np.zeros(layout.size, np.float32)
    z = reference_noise(seed, Stream.WEIGHTS, 0, layout.size)
    for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
        if tensor.birth_scale:
            part = slice(start, start + tensor.size)
            theta[part] = np.float32(tensor.birth_scale) * z[part]
    return theta


def mutate(theta: Weights, gene: Gene, layout: Layout) -> Weights:
    """Apply one gene."""
    operator = operators.parse(gene.operator)
    operators.check(operator, layout)
    sigma, s = map(np.float32, operators.scales(operator, gene.sigma))
    z = reference_noise(gene.seed, Stream.WEIGHTS, 0, layout.size)
    child = theta.copy()
    match operator:
        case Gaussian():
            child += sigma * z
        case Block() | Renew() | Grow():
            blocks = layout.blocks("head" if isinstance(operator, Grow) else operator.kind)
            word = int(reference_words(gene.seed, Stream.BLOCK, 0, 1)[0][0])
            chosen_block = (word * len(blocks)) >> 32
            if isinstance(operator, Grow) and (empty := layout.empty_heads(theta)).any():
                chosen_block = int(empty.argmax())
            for start, stop in blocks[chosen_block]:
                if not isinstance(operator, Block):
                    child[start:stop] = 0
                child[start:stop] += sigma * z[start:stop]
        case Sparse():
            word0, _ = reference_words(gene.seed, Stream.MASK, 0, layout.size)
            chosen = word0 < np.uint64(operator.threshold)
            child[chosen] += sigma * z[chosen]
        case Lowrank():
            left = right = 0
            for tensor, start in zip(layout.tensors, layout.offsets, strict=True):
                if tensor.matrices is None:
                    part = slice(start, start + tensor.size)
                    child[part] += sigma * z[part]
                    continue
                count, rows, columns = tensor.matrices
                for matrix in range(count):
                    total = np.zeros((rows, columns), np.float32)
                    for _ in range(operator.rank):
                        a = reference_noise(gene.seed, Stream.LEFT, left, rows)
                        b = reference_noise(gene.seed, Stream.RIGHT, right, columns)
                        total += np.outer(a, b)
                        left, right = left + rows, right + columns
                    at = start + matrix * rows * columns
                    child[at : at + rows * columns] += s * total.ravel()
    return child
