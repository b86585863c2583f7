"""Makes the golden values that noise.json does not have, with the numpy reference alone.

The digests of whole runs are those of the serial engine.

They are what Germline has promised: a change that alters one of them breaks every published
genome. So this is for adding values; it stops if one that is in a file would change or vanish.

    python tests/golden/make.py
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "support"))

import networks  # noqa: E402
import runs  # noqa: E402
import samples  # noqa: E402
from germline import policies, reference  # noqa: E402
from germline.blobs import weights_hash  # noqa: E402
from germline.genome import Birth, Gene, Genome  # noqa: E402
from germline.noise import Stream, reference_noise, reference_words  # noqa: E402
from germline.policies import integers_reference  # noqa: E402
from germline.run import spec as specs  # noqa: E402

SEEDS = (0, 1, 4070460811, 4294967295)
SIGMAS = (0.002, -0.02, 1.9921875)


def noise_values():
    """Noise on every stream, near index 0 and at the end of the counter's range."""
    for stream in Stream:
        for seed in SEEDS:
            for start in (0, 4052642, 2**32 - 4096):
                z = reference_noise(seed, stream, start, 4096)
                x0, x1 = reference_words(seed, stream, start, 4)
                yield {
                    "seed": seed,
                    "stream": int(stream),
                    "start": start,
                    "words": [x0.tolist(), x1.tolist()],
                    "first16": z[:16].tolist(),
                    "sha256_4096_float32_le": hashlib.sha256(z.astype("<f4").tobytes()).hexdigest(),
                }


def lineage(operator):
    """Three genes with different seeds and σ."""
    return tuple(Gene(seed, sigma, operator) for seed, sigma in zip(SEEDS, SIGMAS, strict=False))


def operator_values():
    """Every operator on every small layout, and on the paper's network."""
    for name, operator in samples.PAIRS:
        layout = samples.LAYOUTS[name]
        yield entry(name, layout, Genome(samples.policy_for(layout), Birth(7), lineage(operator)))
    spec = policies.make("dqn", {})
    layout, policy = spec.layout(), policies.reference("dqn", spec)
    for operator in samples.operators_for(layout):
        yield entry("dqn", layout, Genome(policy, Birth(7), lineage(operator)))


def entry(name, layout, genome):
    theta = reference.decode(genome, layout)
    return {
        "layout": name,
        "layout_digest": layout.digest,
        "birth_seed": genome.root.seed,
        "genes": [[g.seed, g.sigma, g.operator] for g in genome.genes],
        "digest": genome.digest,
        "last8": theta[-8:].tolist(),
        "sha256": weights_hash(theta),
    }


def exact_outputs():
    """What the int64 reference says for every network with exact arithmetic."""
    for name in networks.EXACT:
        spec = networks.spec_of(name, exact=True)
        policy = policies.reference(policies.registry.name_of(spec), spec)
        for birth in (7, 8):
            genome = Genome(policy, Birth(birth), lineage("gaussian")[: birth - 6])
            theta = reference.decode(genome, spec.layout())
            seen = networks.observations(spec, 4, seed=birth)
            yield {
                "policy": policy.name,
                "settings": policy.settings,
                "birth_seed": birth,
                "genes": [[g.seed, g.sigma, g.operator] for g in genome.genes],
                "observation_seed": birth,
                "digest": genome.digest,
                "outputs": integers_reference.outputs(spec, theta, seen).tolist(),
            }


def run_digests():
    """Whole runs in exact arithmetic."""
    for path in sorted(HERE.glob("*.toml")):
        with tempfile.TemporaryDirectory() as folder:
            yield {"spec": path.name, "digest": runs.run(Path(folder) / "run", specs.read(path))}


def add(path, values):
    """Write new values, and refuse to change old ones."""
    fresh = json.loads(json.dumps(list(values)))  # as a file will have them
    if path.exists():
        for old in json.loads(path.read_text()):
            assert old in fresh, f"{path.name}: a promised value would change: {old}"
    path.write_text(json.dumps(fresh, indent=1) + "\n")
    print(f"{path.name}: {len(fresh)} values")


if __name__ == "__main__":
    add(HERE / "streams.json", noise_values())
    add(HERE / "operators.json", operator_values())
    add(HERE / "logits.json", exact_outputs())
    add(HERE / "runs.json", run_digests())
