"""How long it takes to build a policy, by its age: measures three ways, prints tables, draws.

python docs/experiments/building/make.py
"""

import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from germline import blobs, policies
from germline.batches import Lineage
from germline.decode import Decoder
from germline.files import GenomeFile, to_json
from germline.genome import Birth, Gene, Genome
from germline.messages import encode
from germline.sweep.figure import COLOURS, DASHES

HERE = Path(__file__).parent
AGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SIGMA = 0.002
LINEAGES, REPEATS = 7, 5
NOTES = 500, 120.0  # generation and seconds
NETWORKS = {
    "conv": {
        "observation": [64, 64, 3],
        "filters": [32, 64, 64],
        "kernels": [8, 4, 3],
        "strides": [4, 2, 1],
        "hidden": [512],
        "actions": 10,
    },
    "dqn": {"padding": "valid", "actions": 18},
}
TITLES = {"conv": "the notes' network", "dqn": "dqn, VALID padding"}
WAYS = {
    "uncached": "uncached: the whole lineage from its seeds",
    "by blob": "by blob: a parent that arrives, its hash checked, and one gene",
    "cached": "cached: the parent and one gene",
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP = 430, 250, 60, 18, 68  # of a panel, its margins, its place
POWERS = -3, 3  # of ten, seconds at the bottom and at the top


class Measured(NamedTuple):
    """Seconds of one way at one age, one number per lineage: the first call, the quickest later."""

    first: list[float]
    later: list[float]

    @property
    def median(self) -> float:
        """Over the lineages."""
        return statistics.median(self.later)


Found = dict[tuple[str, int], Measured]


def lineage(name: str, seed: int) -> Genome:
    """An individual as old as the oldest."""
    spec = policies.make(name, NETWORKS[name])
    seeds = np.random.default_rng(seed).integers(0, 2**32, max(AGES))
    genes = tuple(Gene(int(one), SIGMA) for one in seeds)
    return Genome(policies.reference(name, spec), Birth(seed), genes)


def ways(genome: Genome) -> dict[str, Callable[[], jax.Array]]:
    """Three ways to an individual's weights. Who has not met it before hashes its genes anew."""
    layout = policies.layout_of(genome.policy)
    parent, gene = genome.prefix(len(genome.genes) - 1), genome.genes[-1]
    known = Decoder(layout)
    blob = blobs.pack(known.parent(genome))
    digest = blobs.sha256(blob)

    def uncached() -> jax.Array:
        return Decoder(layout).decode(genome.prefix(len(genome.genes)))

    def by_blob() -> jax.Array:
        joined, met = Decoder(layout), parent.prefix(len(parent.genes))
        joined.adopt(met, blob, digest)
        return joined.decode(met.child(gene))

    def cached() -> jax.Array:
        return known.decode(parent.child(gene))

    if len({blobs.weights_hash(way()) for way in (uncached, by_blob, cached)}) > 1:
        raise AssertionError(f"individual {genome.id} is not the same by all ways")
    return {"uncached": uncached, "by blob": by_blob, "cached": cached}


def seconds(name: str, way: Callable[[], jax.Array]) -> float:
    """From a genome to a policy that is ready to answer, in processor time.

    On a core of one's own that is what a clock shows; here others are at work too.
    """
    spec = policies.make(name, NETWORKS[name])
    start = time.process_time()
    jax.block_until_ready(policies.build(spec, way()))
    return time.process_time() - start


def measure(name: str) -> Found:
    """All ways and ages, one lineage after another, each a few times in turn."""
    found: Found = {(way, age): Measured([], []) for way in WAYS for age in AGES}
    for seed in range(LINEAGES):
        oldest = lineage(name, seed)
        ready = {age: ways(oldest.prefix(age)) for age in AGES}
        for (way, age), measured in found.items():
            jax.clear_caches()
            measured.first.append(seconds(name, ready[age][way]))
        times: dict[tuple[str, int], list[float]] = {key: [] for key in found}
        for _ in range(1 + REPEATS):  # one more, in which everything is compiled again
            for way, age in found:
                times[way, age].append(seconds(name, ready[age][way]))
        for key, measured in found.items():
            measured.later.append(min(times[key][1:]))
        print(f"{name}, lineage {seed}: done", flush=True)
    return found


def table(name: str, found: Found) -> str:
    """One row per age: sizes in bytes, and the median over lineages of every way."""
    oldest = lineage(name, 0)
    size = policies.layout_of(oldest.policy).size
    head = ["generation", "genome, in a message", "in a file", *WAYS, "uncached, first call"]
    rows = [
        f"{TITLES[name]}: {size:,} weights, a blob of {4 * size:,} bytes",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
    ]
    for age in AGES:
        genome = oldest.prefix(age)
        sent, written = encode(Lineage.of(genome)), to_json(GenomeFile(genome)).encode()
        sizes = [f"{len(text):,} B" for text in (sent, written)]
        medians = [span(found[way, age].median) for way in WAYS]
        first = span(statistics.median(found["uncached", age].first))
        rows.append("| " + " | ".join([f"{age:,}", *sizes, *medians, first]) + " |")
    for way in WAYS:
        firsts = [statistics.median(found[way, age].first) for age in AGES]
        rows.append(f"first call, {way}: {span(min(firsts))} to {span(max(firsts))}")
    return "\n".join(rows)


def span(time: float) -> str:
    """A time in two digits or three."""
    return f"{1e3 * time:.3g} ms" if time < 0.9995 else f"{time:.3g} s"


def draw(results: dict[str, Found]) -> str:
    """A panel per network, and one legend."""
    width, height = 2 * WIDTH, TOP + HEIGHT + 64 + 17 * len(WAYS)
    about = "processor time on one core, everything compiled before: "
    about += f"median over {LINEAGES} lineages, and from the quickest of them to the slowest"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'font-family="sans-serif" font-size="11" fill="#1f2933">',
        "<title>The time to build a policy, by its age</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">'
        "The time to build a policy, by its age</text>",
        f'<text x="{LEFT}" y="36" fill="#52606d">{about}</text>',
    ]
    for number, (name, found) in enumerate(results.items()):
        parts += [f'<g transform="translate({number * WIDTH} {TOP})">', *panel(name, found), "</g>"]
    for number, (label, style) in enumerate(zip(WAYS.values(), styles(), strict=True)):
        y = TOP + HEIGHT + 58 + 17 * number
        parts.append(f'<path d="M{LEFT} {y - 4}h24" {style[1]}/>')
        parts.append(f'<text x="{LEFT + 30}" y="{y}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])


def panel(name: str, found: Found) -> list[str]:
    """Lines of one network, on logarithmic axes."""
    edge = WIDTH - RIGHT
    size = policies.make(name, NETWORKS[name]).layout().size
    title = f"{TITLES[name]}: {size:,} weights"
    parts = [f'<text x="{LEFT}" y="-8" font-weight="bold">{title}</text>']
    for power in range(POWERS[0], POWERS[1] + 1):
        _, y = place(1, 10.0**power)
        label = f"{10**power:,} s" if power >= 0 else f"{10 ** (power + 3)} ms"
        parts.append(f'<path d="M{LEFT} {y:.1f}H{edge}" stroke="#e4e7eb"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<path d="M{LEFT} 0V{HEIGHT}H{edge}" fill="none" stroke="#7b8794"/>')
    for age in AGES:
        x, _ = place(age, 1)
        parts.append(f'<path d="M{x:.1f} {HEIGHT}v4" stroke="#7b8794"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{age:,}</text>')
    middle = (LEFT + edge) / 2
    parts.append(f'<text x="{middle:g}" y="{HEIGHT + 32}" text-anchor="middle">generation</text>')
    for way, (colour, stroke) in zip(WAYS, styles(), strict=True):
        later = [found[way, age].later for age in AGES]
        lower, middles, upper = (
            [place(age, pick(times)) for age, times in zip(AGES, later, strict=True)]
            for pick in (min, statistics.median, max)
        )
        band, line = joined(upper + lower[::-1]), joined(middles)
        parts.append(f'<polygon points="{band}" fill="{colour}" fill-opacity="0.18"/>')
        parts.append(f'<polyline points="{line}" {stroke}/>')
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in middles
        ]
    if name == "conv":
        x, y = place(*NOTES)
        parts.append(f'<path d="M{x - 5:.1f} {y:.1f}l5 -5l5 5l-5 5z"/>')
        words = "the notes: 2 minutes at generation 500"
        parts.append(f'<text x="{x + 6:.1f}" y="{y - 10:.1f}" text-anchor="end">{words}</text>')
    return parts


def place(age: float, time: float) -> tuple[float, float]:
    """Where a point is in its panel."""
    across = math.log(age) / math.log(max(AGES))
    up = (math.log10(time) - POWERS[0]) / (POWERS[1] - POWERS[0])
    return LEFT + across * (WIDTH - RIGHT - LEFT), (1 - up) * HEIGHT


def joined(points: list[tuple[float, float]]) -> str:
    """Points as SVG writes them."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def styles() -> list[tuple[str, str]]:
    """The colour of every way, and how its line is drawn."""
    looks = list(zip(COLOURS, DASHES, strict=False))[: len(WAYS)]
    return [
        (c, f'fill="none" stroke="{c}" stroke-width="1.8" stroke-dasharray="{d or "none"}"')
        for c, d in looks
    ]


def main() -> None:
    """Measure on one core, which is what a worker has."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    jax.config.update("jax_enable_compilation_cache", False)  # a first call compiles
    results = {name: measure(name) for name in NETWORKS}
    for name, found in results.items():
        print(table(name, found))
    (HERE / "figure.svg").write_text(draw(results))


if __name__ == "__main__":
    main()
