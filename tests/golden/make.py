"""Makes the golden values that noise.json does not have, with the numpy reference alone.

The digests of whole runs are those of the serial engine.

They are what Germline has promised: a change that alters one of them breaks every published
genome. So this is for adding values; it stops if one that is in a file would change or vanish.

    python tests/golden/make.py
"""

import base64
import hashlib
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
VECTORS = HERE.parent.parent / "docs" / "vectors.json"
sys.path.insert(0, str(HERE.parent))

import networks  # noqa: E402
import runs  # noqa: E402
import samples  # noqa: E402
from germline import bfloat16, blobs, files, policies, reference  # noqa: E402
from germline.blobs import weights_hash  # noqa: E402
from germline.genome import Birth, Gene, Genome, Snapshot  # noqa: E402
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


def specification():
    """The test vectors of the format's specification."""
    return {
        "noise": list(noise_vectors()),
        "scales": [
            {"number": number, "bits": f"{bfloat16.bits(bfloat16.scale(number, 'scale')):04x}"}
            for number in (0.002, -0.5, 1 + 2**-8 + 2**-30, 1 + 2**-8, 3.0, 2.0**-64, -(2.0**16))
        ],
        "layouts": list(layout_vectors()),
        "genomes": list(genome_vectors()),
    }


def noise_vectors():
    for stream in Stream:
        for seed, index in ((0, 0), (1, 0), (1, 1), (4070460811, 4052657), (2**32 - 1, 2**32 - 1)):
            x0, x1 = reference_words(seed, stream, index, 1)
            z = reference_noise(seed, stream, index, 1)
            words = [int(x0[0]), int(x1[0])]
            yield {
                "seed": seed,
                "stream": int(stream),
                "index": index,
                "words": words,
                "z": float(z[0]),
            }


def example_specs():
    """Every network of the tests' table, and those with exact arithmetic as such too."""
    for name in networks.NETWORKS:
        yield networks.spec_of(name)
    for name in networks.EXACT:
        yield networks.spec_of(name, exact=True)


def layout_vectors():
    for spec in example_specs():
        policy, layout = policies.reference(policies.registry.name_of(spec), spec), spec.layout()
        lines = "".join(tensor.canonical for tensor in layout.tensors)
        yield {
            "policy": {"name": policy.name, "settings": policy.settings},
            "text": f"germline layout 1\n{lines}",
            "digest": layout.digest,
            "weights": layout.size,
        }


def genome_vectors():
    """Every operator that each network takes, one after another in one lineage; and a Snapshot."""
    for number, spec in enumerate(example_specs(), 1):
        policy, layout = policies.reference(policies.registry.name_of(spec), spec), spec.layout()
        genes = [
            Gene(seed, sigma, operator)
            for operator in (*samples.operators_for(layout), "sparse:1e-05")
            for seed, sigma in ((number, 0.002), (2**32 - number, -0.3))
        ]
        yield genome_vector(files.GenomeFile(Genome(policy, Birth(number), tuple(genes))), layout)
    spec = networks.spec_of("mlp")
    policy, layout = policies.reference("mlp", spec), spec.layout()
    blob = blobs.pack(reference.decode(Genome(policy, Birth(3)), layout))
    genome = Genome(policy, Snapshot(blobs.sha256(blob)), (Gene(11, 0.05), Gene(12, 2.0**-64)))
    yield genome_vector(files.GenomeFile(genome, weights=blob), layout)


def genome_vector(file, layout):
    theta = reference.decode(file.genome, layout, file.snapshots())
    found = {
        "id": file.genome.id,
        "digest": file.genome.digest,
        "sha256": weights_hash(theta),
        "last": theta[-8:].tolist(),
    }
    if file.weights is None:
        return {"file": json.loads(files.to_json(file)), **found}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "genome.safetensors"
        files.write(path, file)
        return {"safetensors": base64.b64encode(path.read_bytes()).decode(), **found}


def add(path, values):
    """Write new values, and refuse to change old ones; of a dictionary, those of every list."""
    fresh = json.loads(json.dumps(values))  # as a file will have them
    for name, found in _lists(fresh).items():
        for old in _lists(json.loads(path.read_text())).get(name, []) if path.exists() else []:
            assert old in found, f"{path.name}: a promised value would change: {old}"
        print(f"{path.name} {name}: {len(found)} values")
    path.write_text(json.dumps(fresh, indent=1) + "\n")


def _lists(values):
    return values if isinstance(values, dict) else {"": values}


if __name__ == "__main__":
    add(HERE / "streams.json", list(noise_values()))
    add(HERE / "operators.json", list(operator_values()))
    add(HERE / "logits.json", list(exact_outputs()))
    add(HERE / "runs.json", list(run_digests()))
    add(VECTORS, specification())
