"""What an accelerator makes of whole populations: forward passes, decoding, Atari end to end.

    python benchmarks/accelerator.py [forward] [decode] [atari] [--networks 1024] [--generations 2]
                                     [--run FOLDER]

Forward passes of many different networks (the paper's with VALID padding, one observation each) are
told as a fraction of reading their weights once, and against `vmap` over ordinary convolutions;
shared products as a fraction of plain inference with one network. Atari is the `frostbite` preset
with its store, whole generations, against emulators alone on all cores: ale-py's own vector, and
ours, which do not resize; with --run it goes on with that run. On a CPU it takes fewer of
everything by default.
"""

import argparse
import datetime
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

PARTS = ("forward", "decode", "atari")
SIZE, RANK, PARENTS = "valid", 1, 16
SECONDS = 4.0  # for which emulators run alone
WORDS = {
    "vector": "ale-py's vector, 16 environments a core",
    "seen": "our emulators with their pictures",
    "bare": "our emulators without them",
}
CONVOLUTIONS = (("conv1", 4), ("conv2", 2), ("conv3", 1))


def milliseconds(call: Callable[..., Any], *arguments: Any) -> float:  # noqa: ANN401
    """The shortest of three means of 20 calls, the last of which is waited for."""
    import jax

    jitted = jax.jit(call)
    for _ in range(2):
        jax.block_until_ready(jitted(*arguments))
    means = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(20):
            found = jitted(*arguments)
        jax.block_until_ready(found)
        means.append((time.perf_counter() - start) / 20)
    return 1e3 * min(means)


def naive(weights: dict[str, Any], obs: Any) -> Any:  # noqa: ANN401
    """The network with XLA's own convolutions, in the dtype of its weights."""
    import jax
    import jax.numpy as jnp

    x = obs.astype(jnp.bfloat16)[None] / 255
    for name, stride in CONVOLUTIONS:
        axes = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x, weights[f"{name}/weight"], (stride, stride), "VALID", dimension_numbers=axes
        )
        x = jax.nn.relu(y + weights[f"{name}/bias"])
    x = jax.nn.relu(x.reshape(-1) @ weights["dense/weight"] + weights["dense/bias"])
    return x @ weights["out/weight"] + weights["out/bias"]


def forward(count: int) -> None:
    """Print one row per way to compute a population."""
    import jax
    import jax.numpy as jnp

    from germline import Gene, mutation, policies

    spec = policies.exact(policies.make("dqn", {"padding": SIZE}))
    layout = spec.layout()
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (count, 84, 84, 4)), jnp.uint8)
    seeds = jnp.arange(count, dtype=jnp.uint32)
    thetas = jax.jit(jax.vmap(lambda seed: mutation.birth(seed, layout)))(seeds)
    print(f"\nforward: {count} networks of {layout.size:,} weights, one observation each")
    # How fast this device reads: the largest of every row, of as many bytes as the weights have.
    words = jnp.zeros((count, layout.size // 2), jnp.uint32)
    floor = milliseconds(lambda w: jnp.max(w, axis=1), words)
    del words
    print(f"  reading the weights once: bfloat16 {floor:.2f} ms, int8 {floor / 2:.2f} ms")

    def play(policy: Any, obs: Any) -> Any:  # noqa: ANN401
        return policy(obs, ())[0]

    def row(title: str, took: float, note: str = "") -> float:
        print(f"  {title:<44}{took:9.3f} ms{1e3 * count / took:14,.0f} obs/s  {note}", flush=True)
        return took

    weights = jax.jit(lambda t: {n: w.astype(jnp.bfloat16) for n, w in t.items()})(
        jax.jit(layout.unflatten)(thetas)
    )
    base = row("vmap over convolutions, bfloat16", milliseconds(jax.vmap(naive), weights, obs))
    del weights
    for arithmetic, bytes_read in (("bfloat16", 2), ("exact", 1), ("float32", 4)):
        population = jax.jit(jax.vmap(lambda t, a=arithmetic: policies.build(spec, t, a)))(thetas)
        took = milliseconds(jax.vmap(play), population, obs)
        share = floor * bytes_read / 2 / took
        row(arithmetic, took, f"{share:.2f} of reading, {base / took:.1f}x vmap")
        del population
    one = policies.build(spec, thetas[0], "bfloat16")
    plain = milliseconds(jax.vmap(play, (None, 0)), one, obs)
    width = count // PARENTS
    genes = [Gene(i, 0.002, f"lowrank:{RANK}") for i in range(width)]
    families = [
        policies.siblings(spec, thetas[p], genes, width=width, arithmetic="bfloat16")
        for p in range(PARENTS)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *families)
    split = obs.reshape(PARENTS, width, *obs.shape[1:])
    took = milliseconds(jax.vmap(lambda family, obs: family(obs, ())[0]), stacked, split)
    note = f"{plain / took:.2f} of plain, {base / took:.1f}x vmap"
    row(f"shared products, {PARENTS} parents, rank {RANK}, bfloat16", took, note)
    row("plain inference, one network, bfloat16", plain)
    weights = {n: w.astype(jnp.bfloat16) for n, w in layout.unflatten(thetas[0]).items()}
    usual = milliseconds(jax.vmap(naive, (None, 0)), weights, obs)
    row("the same with XLA's convolutions", usual, f"shared products are {usual / took:.2f} of it")


def decode(count: int) -> None:
    """Print how long children of 20 parents take, floats and built for exact play."""
    import jax

    from germline import Birth, Decoder, Gene, Genome, policies

    for padding in ("valid", "same"):
        spec = policies.exact(policies.make("dqn", {"padding": padding}))
        reference = policies.reference("dqn", spec)
        decoder = Decoder(spec.layout(), budget=2**33)
        parents = [Genome(reference, Birth(seed)).child(Gene(seed, 0.002)) for seed in range(20)]
        width = min(count, 256)
        children = [parents[i % 20].child(Gene(1000 + i, 0.002)) for i in range(count)]
        parts = [children[i : i + width] for i in range(0, count, width)]
        made = jax.jit(jax.vmap(lambda theta, s=spec: policies.build(s, theta, "exact")))

        def once(build: Callable[..., Any] | None) -> float:
            start = time.perf_counter()
            for part in parts:  # noqa: B023
                thetas = decoder.decode_many(part)  # noqa: B023
                jax.block_until_ready(thetas if build is None else build(thetas))
            return 1e3 * (time.perf_counter() - start)

        for build in (None, made):
            once(build)
        decoded, built = (min(once(build) for _ in range(3)) for build in (None, made))
        size = f"{spec.layout().size:,} weights"
        print(f"\ndecode: {count} children of 20 parents, {size}: {decoded:.1f} ms", flush=True)
        print(f"  and built for exact play: {built:.1f} ms")


def emulate(kind: str, lanes: int, barrier: Any, found: Any) -> None:  # noqa: ANN401
    """Emulators of one process with random actions: frames a second."""
    from germline.tasks.atari import Atari, Console
    from germline.tasks.protocols import Episode

    consoles = [Console(Atari("frostbite")) for _ in range(lanes)]
    shown = np.zeros((lanes, *consoles[0].eyes.shown()[0]), np.uint8)
    random = np.random.default_rng(0)
    for number, console in enumerate(consoles):
        console.start(Episode(0, number, None), shown[number])
    barrier.wait()
    start, frames = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < SECONDS:
        actions = random.integers(0, len(consoles[0].actions), lanes).tolist()
        for number, console in enumerate(consoles):
            if kind == "seen":
                outcome = console.step(actions[number], shown[number])
                over, frames = outcome is not None, frames + 4
            else:
                code = console.actions[actions[number]]
                for _ in range(4):
                    console.ale.act(code)
                over, frames = console.ale.game_over(), frames + 4
            if over:
                console.start(Episode(0, frames, None), shown[number])
    found.put(frames / passed)


def emulators() -> dict[str, float]:
    """Frames a second of emulators alone on all cores."""
    from germline.device import cores

    rates = {}
    context = multiprocessing.get_context("spawn")
    for kind in ("bare", "seen"):
        barrier, queue = context.Barrier(cores()), context.Queue()
        processes = [
            context.Process(target=emulate, args=(kind, 16, barrier, queue)) for _ in range(cores())
        ]
        for process in processes:
            process.start()
        rates[kind] = sum(queue.get() for _ in processes)
        for process in processes:
            process.join()
    from ale_py.vector_env import AtariVectorEnv

    count = 16 * cores()
    vector = AtariVectorEnv(
        "frostbite",
        count,
        num_threads=cores(),
        reward_clipping=False,
        use_fire_reset=False,
        repeat_action_probability=0.0,
    )
    vector.reset(seed=1)
    random, steps = np.random.default_rng(0), 0
    for _ in range(5):
        vector.step(random.integers(0, 18, count))
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS:
        vector.step(random.integers(0, 18, count))
        steps += count
    rates["vector"] = 4 * steps / (time.perf_counter() - start)
    vector.close()
    return rates


def atari(
    generations: int, population: int, slots: int | None, arithmetic: str, given: Path | None
) -> None:
    """Print frames a second of whole generations against emulators alone."""
    from germline import api, presets
    from germline.run import engines, loop
    from germline.run import spec as specs

    alone = emulators()
    changes: dict[str, Any] = {"stop.generations": generations + 1}
    if slots is not None:
        changes["backend.slots"] = slots
    if given is not None and (given / "run.db").exists():
        changes["stop.generations"] += api.Run(given).totals.generations
        run = api.go_on(given, changes, trust=False)
    else:
        changes |= {"arithmetic": arithmetic, "algorithm.population": population}
        run = specs.resolve(presets.read("frostbite", changes))
    print(
        f"\natari: {run.spec.name}, population {run.spec.algorithm['population']:,}, {arithmetic}"
    )
    for kind, words in WORDS.items():
        print(f"  {words:<44}{alone[kind]:>10,.0f} frames/s", flush=True)
    rows: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder, engines.backend_of(run.engine) as backend:
        path = given or Path(folder) / "run"
        if not (path / "run.db").exists():
            loop.create(path, run)
        last = [time.perf_counter()]

        def note(report: Any, _: object) -> None:  # noqa: ANN401
            now = time.perf_counter()
            rows.append((now - last[0], report.frames))
            last[0] = now
            what = (
                f"generation {report.generation}, {report.frames:,} frames in {rows[-1][0]:.0f} s"
            )
            print(f"  {what:<44}{_shares(rows[-1:], alone)}", flush=True)

        loop.evolve(path, run, backend, listener=note)
    # The first one compiles.
    print(f"  {'all but the first':<44}{_shares(rows[1:] or rows, alone)}", flush=True)


def _shares(rows: list[tuple[float, int]], alone: dict[str, float]) -> str:
    """Frames a second, and what part that is of each kind of emulators alone."""
    rate = sum(frames for _, frames in rows) / sum(seconds for seconds, _ in rows)
    shares = ", ".join(f"{rate / alone[kind]:.2f} of {kind}" for kind in WORDS)
    return f"{rate:>10,.0f} frames/s: {shares}"


def main() -> None:
    """Print what was asked for, with the machine and the date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="|".join(PARTS))
    parser.add_argument("--networks", type=int)
    parser.add_argument("--population", type=int)
    parser.add_argument("--generations", type=int, default=2)
    parser.add_argument("--slots", type=int)
    parser.add_argument("--arithmetic", default="exact")
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{sorted(unknown)} are not of {', '.join(PARTS)}")
    from germline import device

    here = device.choose()
    print(
        f"{datetime.date.today()}, {device.name(here)}, {device.cores()} cores of "
        f"{platform.machine()}, Python {platform.python_version()}, jax {metadata.version('jax')}",
        flush=True,
    )
    few = here == "cpu"
    if "atari" in options.parts:
        population = options.population or (16 if few else 1000)
        atari(options.generations, population, options.slots, options.arithmetic, options.run)
    networks = options.networks or (16 if few else 1024)
    if "forward" in options.parts:
        forward(networks)
    if "decode" in options.parts:
        decode(networks)


if __name__ == "__main__":
    sys.exit(main())
