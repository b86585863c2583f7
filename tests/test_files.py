import contextlib
import io
import json
import os
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from germline import blobs, disk, files, policies
from germline.cli import main
from germline.errors import InputError
from germline.files import GenomeFile, Normaliser, TaskRef, from_json, to_json
from germline.genome import MAX_GENES, Birth, Foreign, Gene, Genome, Slices
from samples import HEADS, PLAIN, genomes, roots, snapshot_genome

numbers = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple)
details = st.fixed_dictionaries(
    {},
    optional={
        "task": st.builds(
            TaskRef,
            st.just("gym"),
            st.dictionaries(
                st.text(max_size=5),
                st.booleans()
                | st.integers(-(2**63), 2**63)
                | st.text(max_size=5)
                | st.lists(st.integers(-9, 9) | st.text(max_size=3), max_size=3),
                max_size=3,
            ),
        ),
        "arithmetic": st.sampled_from(["float32", "bfloat16", "exact"]),
        "normaliser": numbers.map(lambda n: Normaliser(n, tuple(abs(x) + 0.5 for x in n))),
    },
)


@given(genomes(HEADS, roots=roots), details)
def test_json_round_trip(genome, extra):
    file = GenomeFile(genome, **extra)
    text = to_json(file)
    assert from_json(text.encode()) == file
    assert json.loads(text)["id"] == genome.id


@given(genomes(HEADS), details)
def test_safetensors_round_trip(tmp_path_factory, genome, extra):
    path = tmp_path_factory.getbasetemp() / "round.safetensors"
    blob = blobs.pack(np.arange(HEADS.size, dtype=np.float32))
    root = snapshot_genome(HEADS, blob)
    file = GenomeFile(Genome(root.policy, root.root, genome.genes), **extra, weights=blob)
    files.write(path, file, replace=True)
    assert files.read(path) == file
    assert file.snapshots() == {blobs.sha256(blob): blob}


def test_a_lineage_of_500_genes_is_a_few_kilobytes():
    rng = np.random.default_rng(0)
    spec = policies.make("dqn", {})
    lineage = tuple(Gene(int(s), 0.002) for s in rng.integers(0, 2**32, 500))
    genome = Genome(policies.reference("dqn", spec), Birth(1), lineage)
    assert len(to_json(GenomeFile(genome))) < 6_500


def test_the_json_form_is_pinned():
    """A file as the first version wrote it: it must read, and be written, for ever."""
    path = Path(__file__).parent / "golden" / "genome.json"
    file = files.read(path)
    assert to_json(file) == path.read_text()
    assert file.genome.id == "e9d29abd56af4b78"
    assert file.genome.genes[-1] == Gene(9, -0.5, "lowrank:2")


def test_standard_input(monkeypatch):
    text = (Path(__file__).parent / "golden" / "genome.json").read_bytes()
    stdin = io.TextIOWrapper(io.BytesIO(text))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert files.read(Path("-")).genome.id == "e9d29abd56af4b78"


def test_unrounded_sigma_in_a_file_is_rounded_like_any_other():
    document = json.loads(good())
    document["genes"][0]["sigma"] = 0.002
    del document["id"]
    assert from_json(json.dumps(document).encode()).genome.genes[0].sigma == 0.0019989013671875


def good():
    return (Path(__file__).parent / "golden" / "genome.json").read_text()


def changed(**fields):
    document = json.loads(good())
    document.pop("id")
    document.update(fields)
    return json.dumps(document).encode()


def run(**fields):
    return changed(genes=[{"sigma": 0.5, "operator": "gaussian", "seeds": [1]} | fields])


def foreign(format="uber", payload=None, sha256="0" * 64, **fields):
    payload = {"first": 1, "genes": [[2, 0.5]]} if payload is None else payload
    root = {"kind": "foreign", "format": format, "payload": payload, "sha256": sha256}
    return changed(root=root | fields)


BAD = {
    "empty": (b"", "truncated"),
    "truncated in the genes": (good()[:-10].encode(), "seeds: truncated"),
    "truncated in the policy": (good()[:60].encode(), "policy: truncated"),
    "not JSON": (b"hello", "malformed"),
    "not text": (b"\xff\xfe\x00", "malformed"),
    "brackets": (b"[" * 1000, "expected object, got array"),
    "deep brackets": (b'{"germline": ' + b"[" * 10**6, "germline: expected int, got array"),
    "deep unknown": (b'{"x": ' + b"[" * 10**6, "nested too deeply"),
    "trailing": (good().encode() + b"x", "malformed JSON: trailing"),
    "no version": (b"{}", "missing required field germline"),
    "version 2": (changed(germline=2), "germline: format 2 is not known; this program reads 1"),
    "version text": (changed(germline="1"), "germline: expected int, got str"),
    "unknown field": (changed(colour=1), "unknown field colour"),
    "wrong id": (good().replace("e9d29abd", "00000000").encode(), "id: the file says '00000000"),
    "id number": (changed(id=5), "id: expected"),
    "no policy": (changed(policy=None), "policy: expected object, got null"),
    "code as policy": (
        changed(policy={"name": "module:os", "layout": "0" * 64}),
        "policy.name: expected str matching",
    ),
    "bad layout": (changed(policy={"name": "mlp", "layout": "xyz"}), "policy.layout: "),
    "nested settings": (
        changed(policy={"name": "mlp", "layout": "0" * 64, "settings": {"a": [[1]]}}),
        "policy.settings",
    ),
    "unknown root": (changed(root={"kind": "egg"}), "root.kind: invalid value 'egg'"),
    "bare foreign": (changed(root={"kind": "foreign"}), "root: object missing required field form"),
    "foreign format": (foreign("pickle"), "root.format: invalid enum value 'pickle'"),
    "foreign field": (foreign(code="x"), "root: object contains unknown field code"),
    "foreign hash": (foreign(sha256="00"), "root.sha256: expected str matching"),
    "seeds for slices": (foreign(payload=[1]), "root: payload: expected object, got array"),
    "slices for seeds": (foreign("seed-list"), "root: payload: expected array, got object"),
    "foreign seed": (foreign("seed-list", [1, -1]), r"root.payload\[1\]: expected int >= 0"),
    "foreign text": (foreign("seed-list", "[1]"), "root.payload: expected"),
    "many foreign seeds": (foreign("seed-list", [1] * (MAX_GENES + 1)), "length <= 131072"),
    "many slices": (
        foreign(payload={"first": 1, "genes": [[1, 1]] * (MAX_GENES + 1)}),
        "root.payload.genes: expected array of length <= 131072",
    ),
    "place": (foreign(payload={"first": 250_000_000}), "root.payload.first: expected int <="),
    "power": (
        foreign(payload={"first": 1, "genes": [[1, 1e6]]}),
        r"root.payload.genes\[0\]\[1\]: expected float <=",
    ),
    "triple": (
        foreign(payload={"first": 1, "genes": [[1, 2, 3]]}),
        r"root.payload.genes\[0\]: expected array of length 2",
    ),
    "rootless": (changed(root={}), "root: object missing required field kind"),
    "birth seed": (changed(root={"kind": "birth", "seed": -1}), "root.seed: expected int >= 0"),
    "snapshot hash": (changed(root={"kind": "snapshot", "sha256": "00"}), "root.sha256: "),
    "genes object": (changed(genes={}), "genes: expected array, got object"),
    "seed too large": (run(seeds=[1, 2**32]), r"genes\[0\].seeds\[1\]: expected int <= 4294967295"),
    "seed negative": (run(seeds=[-1]), r"genes\[0\].seeds\[0\]: expected int >= 0"),
    "seed enormous": (run(seeds=[10**40]), r"genes\[0\].seeds\[0\]: expected int"),
    "seed float": (run(seeds=[1.5]), r"seeds\[0\]: expected int, got float"),
    "seed text": (run(seeds=["1"]), r"seeds\[0\]: expected int, got str"),
    "seed boolean": (run(seeds=[True]), r"seeds\[0\]: expected int, got bool"),
    "no seeds": (run(seeds=[]), r"genes\[0\].seeds: expected array of length >= 1"),
    "sigma NaN": (run(sigma=float("nan")), "sigma: malformed JSON"),
    "sigma infinite": (run(sigma=1e308).replace(b"e+308", b"e+999"), "sigma: number out of range"),
    "sigma zero": (run(sigma=0), r"genes\[0\]: sigma: 0.0 is too small"),
    "sigma tiny": (run(sigma=1e-30), r"genes\[0\]: sigma: 1e-30 is too small"),
    "sigma huge": (run(sigma=1e6), r"genes\[0\]: sigma: 1000000.0 is too large"),
    "sigma text": (run(sigma="0.1"), r"genes\[0\].sigma: expected float, got str"),
    "unknown operator": (run(operator="crossover"), r"genes\[0\]: operator: 'crossover'"),
    "operator number": (run(operator=3), r"genes\[0\].operator: expected str, got int"),
    "arithmetic": (changed(arithmetic="float64"), "arithmetic: invalid enum value 'float64'"),
    "task code": (changed(task={"name": "a.b:c"}), "task.name: expected str matching"),
    "normaliser": (changed(normaliser={"mean": [1], "std": []}), "normaliser: mean has 1 numbers"),
    "normaliser zero": (changed(normaliser={"mean": [1], "std": [0]}), "normaliser: std: every"),
    "not UTF-8": (changed().replace(b"gym", b"g\xff"), "is not valid UTF-8 text"),
    "endless operator": (run(operator="sparse:" + "1" * 10**6 + "x"), "operator: 'sparse:1111"),
    "operator in disguise": (run(operator="a - at `$.x`"), r"genes\[0\]: operator: 'a - at \$.x'"),
    "layout with a line feed": (
        changed(policy={"name": "mlp", "layout": "0" * 64 + "\n"}),
        "policy.layout: expected str matching",
    ),
    "endless setting": (
        changed(task={"name": "gym", "settings": {"a": [1] * 2000}}),
        "length <= 1024",
    ),
}


def assert_answered(capsys, path):
    """The command line says it in one sentence, and exits with code 2."""
    with pytest.raises(SystemExit, match="2"):
        main(["genome", "show", str(path)])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"germline: {path}: ")
    assert err.count("\n") == 1
    assert len(err) < 600


@pytest.mark.parametrize("case", BAD)
def test_bad_json_is_refused_in_one_sentence(case, tmp_path, capsys):
    content, words = BAD[case]
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        files.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert_answered(capsys, path)


def peak(action):
    """Bytes allocated at most, by Python or numpy, while an action fails."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            action()
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_hundred_megabytes_of_brackets_are_not_even_read(tmp_path, capsys):
    path = tmp_path / "brackets.json"
    with path.open("wb") as stream:
        for _ in range(100):
            stream.write(b"[" * 10**6)
    message, allocated = peak(lambda: files.read(path))
    assert "over 16 MiB, too large for a genome" in message
    assert allocated < 2**20
    assert_answered(capsys, path)


@pytest.mark.parametrize(
    "start", [b"[", b'{"genes":[', b'{"germline":1,"policy":{"settings":{"a":']
)
def test_the_largest_file_of_brackets_allowed(tmp_path, start):
    path = tmp_path / "brackets.json"
    path.write_bytes(start + b"[" * (2**24 - 100))
    _, allocated = peak(lambda: files.read(path))
    assert allocated < 3 * 2**24


def test_a_claim_of_a_million_million_weights_allocates_nothing(tmp_path):
    policy = {"name": "mlp", "layout": "0" * 64, "settings": {"inputs": 10**6, "hidden": [10**6]}}
    genome = from_json(changed(policy=policy)).genome
    message, allocated = peak(lambda: policies.layout_of(genome.policy))
    assert "policy mlp: settings: 1,000,003,000,002 weights are more than" in message
    assert allocated < 2**20

    header = b'{"root":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    path = tmp_path / "claim.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    message, allocated = peak(lambda: files.read(path))
    assert "not a whole safetensors file" in message
    assert allocated < 2**20


def safetensors(tensors, file=None, **metadata):
    text = {} if file is None else {"germline": to_json(file)}
    return save(tensors, text | metadata)


def snapshot_file():
    blob = blobs.pack(np.ones(PLAIN.size, np.float32))
    return GenomeFile(snapshot_genome(PLAIN, blob), weights=blob)


ROOT = {"root": np.ones(PLAIN.size, np.float32)}
BIRTH = GenomeFile(Genome(snapshot_file().genome.policy, Birth(1)))
BAD_SAFETENSORS = {
    "truncated": (lambda: safetensors(ROOT, snapshot_file())[:-8], "not a whole safetensors"),
    "header cut": (lambda: safetensors(ROOT, snapshot_file())[:40], "is not safetensors"),
    "header huge": (lambda: (2**40).to_bytes(8, "little") + b"{" + bytes(99), "is not safetensors"),
    "no genome": (lambda: safetensors(ROOT), "metadata: has no germline entry"),
    "bad genome": (lambda: safetensors(ROOT, germline="{}"), "missing required field germline"),
    "birth": (lambda: safetensors(ROOT, BIRTH), "root: a safetensors genome has a Snapshot root"),
    "other weights": (
        lambda: safetensors({"root": np.zeros(PLAIN.size, np.float32)}, snapshot_file()),
        "its contents hash to .*refused",
    ),
    "other name": (
        lambda: safetensors({"weights": ROOT["root"]}, snapshot_file()),
        "one flat tensor named root, got .'weights'",
    ),
    "other type": (
        lambda: safetensors({"root": np.ones(4, np.int32)}, snapshot_file()),
        "tensor 'root': expected F32, got I32",
    ),
}


@pytest.mark.parametrize("case", BAD_SAFETENSORS)
def test_bad_safetensors_are_refused_in_one_sentence(case, tmp_path, capsys):
    make, words = BAD_SAFETENSORS[case]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(make())
    with pytest.raises(InputError, match=words) as caught:
        files.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert_answered(capsys, path)


def test_too_many_weights_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "large.safetensors"
    with path.open("wb") as stream:
        stream.write((2).to_bytes(8, "little") + b"{}")
        os.truncate(stream.fileno(), 2**31)
    with pytest.raises(InputError, match="more than the 268,435,456 weights allowed"):
        files.read(path)


def test_a_header_that_starts_like_json_is_not_mistaken_for_it(tmp_path):
    """A header of 0x7b20 bytes: its length, in the file's first bytes, reads as a space and "{"."""
    data = safetensors(ROOT, snapshot_file())
    length = int.from_bytes(data[:8], "little")
    padded = data[8 : 8 + length].ljust(0x7B20)
    path = tmp_path / "padded.safetensors"
    path.write_bytes((0x7B20).to_bytes(8, "little") + padded + data[8 + length :])
    assert files.read(path) == snapshot_file()


def test_tensors_of_a_hundred_axes_are_refused(tmp_path):
    shape = ",".join(["1"] * 100)
    header = f'{{"root":{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,4]}}}}'.encode()
    path = tmp_path / "axes.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    for read in (files.read, disk.read_safetensors):
        with pytest.raises(InputError, match="tensor 'root': has more than 8 axes"):
            read(path)


mutations = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=300)
@given(
    st.sampled_from(["json", "foreign", "safetensors"]),
    mutations,
    st.integers(0, 2**16),
    st.binary(),
)
def test_damaged_files_are_read_or_refused(tmp_path_factory, form, changes, end, tail):
    forms = {"json": good().encode(), "foreign": foreign()}
    data = bytearray(forms.get(form) or safetensors(ROOT, snapshot_file()))
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(bytes(data[: end % (2 * len(data))]) + tail)
    with contextlib.suppress(InputError):
        assert isinstance(files.read(path), GenomeFile)


@pytest.mark.parametrize(
    "details",
    [
        {"normaliser": Normaliser((float("nan"),), (1.0,))},
        {"arithmetic": "float64"},
        {"task": TaskRef("ALE/Frostbite")},
        {"task": TaskRef("gym", {"gain": [[0.5]]})},
    ],
)
def test_what_could_not_be_read_is_not_written(details, tmp_path):
    with pytest.raises(InputError):
        files.write(tmp_path / "genome.json", GenomeFile(BIRTH.genome, **details))
    assert list(tmp_path.iterdir()) == []


def test_the_longest_lineage_fits_a_file():
    genes = tuple(
        Gene(4294967295, (-1) ** i * 2.0**-64, "sparse:0.12345678901234567") for i in range(64)
    )
    text = to_json(GenomeFile(Genome(BIRTH.genome.policy, Birth(1), genes)))
    assert len(text) / len(genes) * MAX_GENES < files.MAX_JSON_BYTES


@pytest.mark.parametrize(
    "root",
    [
        Foreign("seed-list", (4294967295,) * MAX_GENES, "0" * 64),
        Foreign("uber", Slices(1, ((249_999_999, -0.12345678901234567),) * MAX_GENES), "0" * 64),
    ],
    ids=["seed-list", "uber"],
)
def test_the_longest_foreign_root_fits_a_file(root):
    genes = (Gene(4294967295, 2.0**-64),) * MAX_GENES
    file = GenomeFile(Genome(BIRTH.genome.policy, root, genes))
    assert from_json(to_json(file).encode()) == file


def test_what_others_wrote_is_read_within_bounds(tmp_path):
    path = tmp_path / "seeds.json"
    path.write_text("[1, 2]")
    assert files.read_plain(path, tuple[int, ...]) == (1, 2)
    with pytest.raises(InputError, match=r"seeds\.json: expected object, got array"):
        files.read_plain(path, dict[str, int])
    path.write_bytes(b" " * (files.MAX_JSON_BYTES + 1))
    with pytest.raises(InputError, match="over 16 MiB"):
        files.read_plain(path, tuple[int, ...])
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        files.read_plain(tmp_path / "none.json", tuple[int, ...])
    with pytest.raises(InputError, match="is not a file"):
        files.read_plain(tmp_path, tuple[int, ...])


def test_replacing_keeps_the_mode_of_a_file(tmp_path):
    path = tmp_path / "secret.json"
    files.write(path, BIRTH)
    path.chmod(0o600)
    files.write(path, BIRTH, replace=True)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_loop_of_links_is_named(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="loop: cannot be written"):
        files.write(loop, BIRTH, replace=True)
    assert loop.is_symlink()
    with pytest.raises(InputError, match="loop"):
        files.read(loop)


def test_what_is_not_a_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.json: No such file"):
        files.read(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="is not a file"):
        files.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a file"):
        files.read(tmp_path / "pipe")


def test_writing_replaces_only_when_asked(tmp_path):
    path = tmp_path / "genome.json"
    path.write_text("precious")
    with pytest.raises(InputError, match="is there already; use --force"):
        files.write(path, BIRTH)
    assert path.read_text() == "precious"
    files.write(path, BIRTH, replace=True)
    assert files.read(path) == BIRTH
    with pytest.raises(InputError, match="cannot be written: No such file"):
        files.write(tmp_path / "no" / "folder.json", BIRTH)


def test_a_snapshot_is_not_written_without_its_weights(tmp_path):
    with pytest.raises(InputError, match="without its weights"):
        files.write(tmp_path / "x.safetensors", GenomeFile(snapshot_file().genome))
    assert list(tmp_path.iterdir()) == []
