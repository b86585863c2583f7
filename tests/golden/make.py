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
sys.path.insert(0, str(HERE.parent / "support"))

import networks  # noqa: E402
import runs  # noqa: E402
import samples  # noqa: E402
from germline import bfloat16, blobs, files, policies  # noqa: E402
from germline import decode_reference as reference  # noqa: E402
from germline.blobs import weights_hash  # noqa: E402
from germline.genome import Birth, Foreign, Gene, Genome, Slices, Snapshot  # noqa: E402
from germline.noise import Stream, reference_noise, reference_words  # noqa: E402
from germline.policies.arithmetic import integers_reference  # noqa: E402
from germline.run import spec as specs  # noqa: E402

SEEDS = (0, 1, 4070460811, 4294967295)
SIGMAS = (0.002, -0.02, 1.9921875)
FIRST = 26  # networks that the first vectors have
# The first vectors have these one after another. A later operator has genomes of its own.
TOGETHER = (
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
        "genomes": [*genome_vectors(), *odd_vectors()],
        "refused": list(refused_vectors()),
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
    """Every network of the tests' table, and those with exact arithmetic as such too.

    Vectors have numbers by this order, so it is added to at its end alone: the first networks are
    all in floats and then exact, and each that came later is both at once.
    """
    names = list(networks.NETWORKS)
    for group in (names[:FIRST], *([name] for name in names[FIRST:])):
        yield from (networks.spec_of(name) for name in group)
        yield from (networks.spec_of(name, exact=True) for name in group if name in networks.EXACT)


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
    """Every operator that each network takes, one after another in one lineage."""
    for number, spec in enumerate(example_specs(), 1):
        policy, layout = policies.reference(policies.registry.name_of(spec), spec), spec.layout()
        known = samples.operators_for(layout)
        together = [operator for operator in TOGETHER if operator in known]
        later = [[operator] for operator in known if operator not in TOGETHER]
        for operators in ([*together, "sparse:1e-05"], *later):
            genes = [
                Gene(seed, sigma, operator)
                for operator in operators
                for seed, sigma in ((number, 0.002), (2**32 - number, -0.3))
            ]
            genome = Genome(policy, Birth(number), tuple(genes))
            yield genome_vector(files.GenomeFile(genome), layout)


def odd_vectors():
    """What the others have not: Snapshots, heads that fill up, names alone, odd spellings."""
    spec = networks.spec_of("mlp")
    policy, layout = policies.reference("mlp", spec), spec.layout()
    blob = blobs.pack(reference.decode(Genome(policy, Birth(3)), layout))
    snapshot = Genome(policy, Snapshot(blobs.sha256(blob)))
    for operator in ("gaussian", "lowrank:2", "sparse:0.25"):
        genome = snapshot.child(Gene(11, 0.05, operator)).child(Gene(12, 2.0**-64, operator))
        yield genome_vector(files.GenomeFile(genome, weights=blob), layout)
    for name in ("memory empty", "ensemble empty"):
        spec = networks.spec_of(name)
        empty = Genome(policies.reference(name.split()[0], spec), Birth(4))
        for count in (1, 3, 14):  # there are 12 heads, or 6 members
            genes = tuple(Gene(seed, 0.25, "grow") for seed in range(count))
            genome = Genome(empty.policy, empty.root, genes)
            yield genome_vector(files.GenomeFile(genome), spec.layout())
    for payload in ((5, 2**32 - 1), Slices(7, ((8, 0.002), (0, -1e-05), (9, 2.0), (1, -0.0)))):
        kind = "uber" if isinstance(payload, Slices) else "seed-list"
        genome = Genome(policy, Foreign(kind, payload, "0" * 64), (Gene(1, 0.5), Gene(2, 0.5)))
        document = json.loads(files.to_json(files.GenomeFile(genome)))
        yield {"file": document, "id": genome.id, "digest": genome.digest}
    document = {
        "germline": 1,
        "id": None,
        "policy": {"name": "gru", "layout": policies.make("gru", {}).layout().digest},
        "root": {"kind": "birth", "seed": 6},
        "task": {"name": "gym"},
        "arithmetic": "bfloat16",
        "siblings": 4,
        "normaliser": {"mean": [0, 0.5, 1, 2], "std": [1, 2, 3, 4e-3]},
        "genes": [
            {"sigma": 0.1, "operator": "sparse:.5", "seeds": [1, 2, 3]},
            {"sigma": 1, "operator": "sparse:2.5e-2", "seeds": [4]},
        ],
    }
    file = files.from_json(json.dumps(document).encode())
    vector = genome_vector(file, policies.layout_of(file.genome.policy))
    yield {**vector, "file": document}


def refused_vectors():
    """Changes to one file, each of which a reader must refuse."""
    good = json.loads((HERE / "genome.json").read_text())
    policy, run = good["policy"], good["genes"][0]
    changes = {
        "another version": {"germline": 2},
        "a field that is not known": {"species": 1},
        "a wrong id": {"id": "0000000000000000"},
        "a policy that is not known": {"policy": {**policy, "name": "perceptron"}},
        "a setting that is not known": {
            "policy": {**policy, "settings": {**policy["settings"], "width": 3}}
        },
        "a setting that is null": {
            "policy": {**policy, "settings": {**policy["settings"], "head": None}}
        },
        "another layout": {"policy": {**policy, "layout": "0" * 64}},
        "a seed beyond 32 bits": {"root": {"kind": "birth", "seed": 2**32}},
        "a root that is not known": {"root": {"kind": "egg", "seed": 5}},
        "no seeds in a run": {"genes": [{**run, "seeds": []}]},
        "a sigma of 0": {"genes": [{**run, "sigma": 0.0}]},
        "a sigma that is too large": {"genes": [{**run, "sigma": 1e6}]},
        "an operator that is not known": {"genes": [{**run, "operator": "shuffle"}]},
        "a share above 1": {"genes": [{**run, "operator": "sparse:1.5"}]},
        "a rank above 64": {"genes": [{**run, "operator": "lowrank:65"}]},
        "heads where there are none": {"genes": [{**run, "operator": "block:head"}]},
        "an arithmetic that is not known": {"arithmetic": "float64"},
        "shared products in exact arithmetic": {"arithmetic": "exact", "siblings": 4},
        "a deviation of 0": {"normaliser": {"mean": [0.0], "std": [0.0]}},
    }
    for why, change in changes.items():
        document = {**good, **change}
        if "id" not in change:
            del document["id"]
        yield {"file": document, "why": why}


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
