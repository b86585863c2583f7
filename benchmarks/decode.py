"""What decoding costs on the paper's network of 4,052,658 weights.

    python benchmarks/decode.py [gene|age|cold|batch|memory|build ...]

Every part runs in processes of its own. Ratios are against baselines measured in the same run.
The last part builds policies of three networks for Pong, with and without virtual batch
normalisation; it needs ale-py: pip install 'germline[atari]'.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

SIGMA = 0.002
PARENTS, GENERATIONS = 20, 1000


def median_ms(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of each action, all of them in turn in every round, after two to warm up."""
    import jax

    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds + 2):
        for name, action in actions.items():
            start = time.perf_counter()
            jax.block_until_ready(action())
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values[2:]) for name, values in times.items()}


def paper_genome(birth: int, genes: int) -> tuple:
    """A genome of the paper's network and its layout."""
    import numpy as np

    from germline import policies
    from germline.genome import Birth, Gene, Genome

    spec = policies.make("dqn", {})
    seeds = np.random.default_rng(birth).integers(0, 2**32, genes)
    lineage = tuple(Gene(int(seed), SIGMA) for seed in seeds)
    return Genome(policies.reference("dqn", spec), Birth(birth), lineage), spec.layout()


def gene() -> None:
    """One gene, θ + σ·noise(seed), against the usual ways to draw a reproducible normal."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from germline.decode import Decoder
    from germline.genome import Gene

    root, layout = paper_genome(1, 0)
    decoder = Decoder(layout)
    theta = np.asarray(decoder.decode(root))
    size, sigma = layout.size, np.float32(SIGMA)
    counter = iter(range(1 << 30))
    on_device = jnp.asarray(theta)

    @jax.jit
    def normal(theta: jax.Array, seed: jax.Array) -> jax.Array:
        return theta + sigma * jax.random.normal(jax.random.key(seed), (size,), jnp.float32)

    def philox(seed: int) -> np.ndarray:
        generator = np.random.Generator(np.random.Philox(seed))
        return theta + sigma * generator.standard_normal(size, dtype=np.float32)

    def random_state(seed: int) -> np.ndarray:
        return theta + sigma * np.random.RandomState(seed).standard_normal(size).astype(np.float32)

    found = median_ms(
        {
            "germline": lambda: decoder.decode(root.child(Gene(next(counter), SIGMA))),
            "jax.random.normal": lambda: normal(on_device, next(counter)),
            "numpy Philox": lambda: philox(next(counter)),
            "numpy RandomState": lambda: random_state(next(counter)),
        },
        rounds=15,
    )
    for name, ms in found.items():
        print(f"  {name:<20}{ms:8.2f} ms   {ms / found['germline']:6.1f}x")
    others = ("block:layer", "sparse:0.01", "lowrank:1", "lowrank:8")
    found = median_ms(
        {o: lambda o=o: decoder.decode(root.child(Gene(next(counter), SIGMA, o))) for o in others},
        rounds=8,
    )
    for name, ms in found.items():
        print(f"  {name:<20}{ms:8.2f} ms")


def age() -> None:
    """A child whose parent is cached, at three ages: made here, and arrived as a file."""
    from germline.decode import Decoder
    from germline.files import GenomeFile, from_json, to_json
    from germline.genome import Gene, Genome

    counter = iter(range(1 << 30))

    def make(parent: Genome, decoder: Decoder) -> object:
        return decoder.decode(parent.child(Gene(next(counter), SIGMA)))

    def arrive(parent: Genome, decoder: Decoder) -> object:
        child = parent.child(Gene(next(counter), SIGMA))
        return decoder.decode(from_json(to_json(GenomeFile(child)).encode()).genome)

    made, arrived = {}, {}
    for length in (10, 100, 1000):
        parent, layout = paper_genome(length, length)
        decoder = Decoder(layout)

        made[f"{length:,}"] = partial(make, parent, decoder)
        arrived[f"{length:,}"] = partial(arrive, parent, decoder)
    for title, actions in (("cached child", made), ("written, read, decoded", arrived)):
        found = median_ms(actions, rounds=15)
        first = next(iter(found.values()))
        for length, ms in found.items():
            print(f"  {title:<24}{length:>6} genes{ms:8.2f} ms   {ms / first:5.2f}x of 10 genes")


def cold_worker(how: str, folder: Path) -> None:
    """A process that has just been started at generation 1,000: its first child, then one of each.

    Prints seconds since its start, as JSON.
    """
    started = float(os.environ["STARTED"])
    from germline import blobs
    from germline.decode import Decoder
    from germline.files import read
    from germline.genome import Gene
    from germline.policies import layout_of

    genomes = [read(folder / f"{i}.json").genome for i in range(PARENTS)]
    decoder = Decoder(layout_of(genomes[0].policy), budget=2**31)
    moments = {"ready": time.time() - started}
    for i, parent in enumerate(genomes):
        if how == "blobs":
            blob = (folder / f"{i}.blob").read_bytes()
            decoder.adopt(parent, blob, (folder / f"{i}.sha256").read_text())
        decoder.decode(parent.child(Gene(i, SIGMA))).block_until_ready()
        if i == 0:
            moments["first child"] = time.time() - started
    moments["20 parents"] = time.time() - started
    if how == "replay":
        for i, parent in enumerate(genomes):
            blob = blobs.pack(decoder._parent(parent.child(Gene(0, SIGMA))))
            (folder / f"{i}.blob").write_bytes(blob)
            (folder / f"{i}.sha256").write_text(blobs.sha256(blob))
    print(json.dumps(moments))


def cold() -> None:
    """Seconds until a fresh process has its first child at generation 1,000."""
    from germline import files
    from germline.files import GenomeFile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i in range(PARENTS):
            genome, _ = paper_genome(i, GENERATIONS)
            files.write(folder / f"{i}.json", GenomeFile(genome))
        found = {}
        for how in ("replay", "blobs"):
            environment = os.environ | {
                "STARTED": str(time.time()),
                "JAX_COMPILATION_CACHE_DIR": str(folder / how),
            }
            command = [sys.executable, __file__, "cold-worker", how, name]
            output = subprocess.run(command, env=environment, capture_output=True, check=True)
            found[how] = json.loads(output.stdout)
        for moment in ("ready", "first child", "20 parents"):
            replay, blob = found["replay"][moment], found["blobs"][moment]
            ratio = f"{replay / blob:6.1f}x"
            print(f"  {moment:<14}replay {replay:7.2f} s   blobs {blob:6.2f} s   {ratio}")


def batch() -> None:
    """Many children of few parents in one call, against one call each, and new memory alone."""
    import jax
    import jax.numpy as jnp

    from germline.decode import Decoder
    from germline.genome import Gene

    parents = [paper_genome(i, 3)[0] for i in range(4)]
    decoder = Decoder(paper_genome(0, 0)[1])
    counter = iter(range(1 << 30))

    def children() -> list:
        return [parents[i % 4].child(Gene(next(counter), SIGMA)) for i in range(16)]

    def dropped() -> None:
        for child in children():
            decoder.decode(child).block_until_ready()

    @jax.jit
    def fill(value: jax.Array) -> jax.Array:
        return jnp.full((16, decoder.layout.size), value)

    found = median_ms(
        {
            "one call each, dropped": dropped,
            "one call each, kept": lambda: [decoder.decode(child) for child in children()],
            "one call for 16": lambda: decoder.decode_many(children()),
            "16 filled, not decoded": lambda: fill(jnp.float32(next(counter))),
        },
        rounds=8,
    )
    for name, ms in found.items():
        print(f"  {name:<24}{ms / 16:8.2f} ms per child")


def memory() -> None:
    """The most memory in use while decoding, in multiples of the weights."""
    import numpy as np

    from germline.decode import Decoder
    from germline.genome import Gene

    genome, layout = paper_genome(1, 100)
    weights = 4 * layout.size
    kept: list[object] = []

    def resident(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])

    def report(title: str, action: Callable[[], object]) -> None:
        # What earlier steps freed is taken first, so that it cannot hide what this one takes.
        kept.extend(np.ones(layout.size, np.float32) for _ in range(6))
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        kept.append(action())
        used = (resident("VmHWM") - before) / weights
        print(f"  {title:<48}{used:5.2f}x the weights")

    lowrank = genome.parent.child(Gene(6, SIGMA, "lowrank:8"))
    decoders = [Decoder(layout) for _ in range(3)]
    for decoder, title in zip(
        decoders, ("first decoding, compilers included", "replaying 100 genes"), strict=False
    ):
        report(title, lambda d=decoder: d.decode(genome).block_until_ready())
    decoders[2].decode(lowrank).block_until_ready()
    for title, child in (("a cached child", genome), ("a cached child, lowrank:8", lowrank)):
        action = lambda c=child: decoders[2].decode(c).block_until_ready()  # noqa: E731
        report(f"{title}, beside its parent", action)


def build() -> None:
    """Policies from their weights, with and without virtual batch normalisation, and a step.

    Times are of the processor, which other work on the machine changes little.
    """
    import jax
    import numpy as np

    from germline import mutation, policies, tasks
    from germline.tasks import random_play

    def quickest_ms(action: Callable[[], object], rounds: int) -> float:
        times = []
        for _ in range(rounds + 2):
            start = time.process_time()
            jax.block_until_ready(action())
            times.append(1e3 * (time.process_time() - start))
        return min(times[2:])

    play = jax.jit(lambda policy, obs, carry: policy(obs, carry))
    small = {"filters": 16, "units": 64}
    for screen, networks in (
        ({"size": [42, 42], "stack": 1}, [("conv-lstm", small), ("conv-lstm", {})]),
        ({}, [("dqn", {})]),
    ):
        task = tasks.make("atari", {"game": "pong", **screen})
        start = time.process_time()
        reference = random_play.observations(task)
        took = time.process_time() - start
        print(f"  reference batch {list(reference.shape)}: {took:.1f} s, once for each process")
        for name, settings in networks:
            found = []
            for normalise in ({}, {"normalise": "virtual"}):
                spec = policies.make(name, {"actions": 6, **settings, **normalise})
                theta = mutation.birth(np.uint32(1), spec.layout())
                context = random_play.context(task, spec)
                built = partial(policies.build, spec, theta, context=context)
                found.append(quickest_ms(built, 25))
            policy = built()
            step = partial(play, policy, reference[0], policy.initial_carry())
            print(
                f"  {name:<10}{spec.layout().size:>10,} weights   built in {found[0]:.1f} ms, "
                f"normalised {found[1]:.1f} ms; a step {quickest_ms(step, 300):.2f} ms"
            )


PARTS = {
    "gene": gene,
    "age": age,
    "cold": cold,
    "batch": batch,
    "memory": memory,
    "build": build,
}


def main() -> None:
    """Run the parts asked for, on one core and on all where that differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.parts[:1] == ["cold-worker"]:
        cold_worker(arguments.parts[1], Path(arguments.parts[2]))
        return
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"{unknown.pop()!r} is not one of {', '.join(PARTS)}")
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
        PARTS[arguments.parts[0]]()
        return
    for part in arguments.parts or PARTS:
        for cores in (1, os.cpu_count()) if part in ("gene", "batch") else (1,):
            print(f"{part}, {cores} core(s): {PARTS[part].__doc__.splitlines()[0]}", flush=True)
            command = [sys.executable, __file__, "--cores", str(cores), part]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
