import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from germline import batches
from germline.batches import decode_batch, pack, unpack
from germline.errors import InputError
from germline.genome import Birth, Gene, Genome, PolicyRef, Snapshot
from germline.messages import Key, Request, encode
from samples import PLAIN, genomes, policy_for, roots, seeds

POLICY = policy_for(PLAIN)
EGG = Genome(POLICY, Birth(1))


def aged(genes, seed=1):
    """An individual that has so many genes."""
    sigmas, operators = (0.5, -0.25), ("gaussian", "lowrank:2", "sparse:0.5")
    lineage = (
        Gene(7919 * i % 2**32, sigmas[i // 9 % 2], operators[i // 30 % 3]) for i in range(genes)
    )
    return Genome(POLICY, Birth(seed), tuple(lineage))


def asked(genomes):
    """One request for each, no two alike."""
    return [
        Request(
            Key("run", 3, number % 2, number),
            genome,
            tuple(range(number, number + 1 + number % 3)),
            None if number % 2 else 100 + number,
            None if number % 3 else "c" * 64,
        )
        for number, genome in enumerate(genomes)
    ]


def read(data, policy, known):
    return unpack(decode_batch(data), policy, known)


def sent(requests, known=None):
    return read(encode(pack(requests)), POLICY, {} if known is None else known)


FAMILIES = {
    "nobody": [],
    "births": [Genome(POLICY, Birth(seed)) for seed in (1, 2, 2**32 - 1)],
    "a snapshot and its child": [
        Genome(POLICY, Snapshot("a" * 64)),
        Genome(POLICY, Snapshot("a" * 64), (Gene(1, 0.5),)),
    ],
    "children": [EGG.child(Gene(seed, 0.5)) for seed in range(5)],
    "mirrored pairs": [EGG.child(Gene(seed, s)) for seed in range(3) for s in (0.5, -0.5)],
    "several operators": [
        EGG.child(Gene(1, sigma, operator))
        for sigma in (2.0**-64, 0.01, 2.0**16)
        for operator in ("gaussian", "block:row", "sparse:0.01", "lowrank:64")
    ],
    "parents among their children": [
        EGG.child(Gene(1, 0.5)),
        EGG,
        EGG.child(Gene(1, 0.5)).child(Gene(2, 0.5)),
        EGG.child(Gene(2, 0.5)),
    ],
    "of 1,000 genes": [aged(1000), aged(1000).child(Gene(5, 1.0)), aged(1000, seed=2)],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_requests_arrive_as_they_were_sent(family):
    requests = asked(FAMILIES[family])
    arrived = sent(requests)
    assert arrived == requests
    assert [r.genome.canonical for r in arrived] == [r.genome.canonical for r in requests]


@settings(max_examples=50)
@given(st.lists(genomes(PLAIN, roots=roots), max_size=6), st.data())
def test_any_requests_arrive_as_they_were_sent(bases, data):
    children = [
        base.child(Gene(data.draw(seeds), 0.5))
        for base in bases
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    requests = asked(data.draw(st.permutations([*bases, *children])))
    assert sent(requests) == requests


def test_a_sibling_costs_a_few_bytes_however_old_its_parent_is():
    def price(parent):
        family = [
            Request(Key("run", 1, 0, seed % 100), parent.child(Gene(2**31 + seed, 0.5)), (2**30,))
            for seed in range(101)
        ]
        first, both, all_ = (len(encode(pack(family[:count]))) for count in (1, 2, 101))
        return first, both - first, all_

    young, old = price(EGG), price(aged(1000))
    assert old[1] == young[1] < 80
    assert old[2] - young[2] == old[0] - young[0]
    # 4 bytes for each gene, and some for every change of σ and operator.
    assert 4 * 1000 < old[0] - young[0] < 4 * 1000 + 3500


def test_parents_that_were_met_are_not_read_anew(monkeypatch):
    monkeypatch.setattr(batches, "KNOWN", 2)
    known = {}
    mother, father = aged(3), aged(4)
    sent(asked([mother.child(Gene(1, 0.5)), father.child(Gene(1, 0.5))]), known)
    assert set(known) == {mother.digest, father.digest}
    kept = known[mother.digest]
    again = sent(asked([mother.child(Gene(2, 0.5)), EGG]), known)
    # Who was met last is remembered; an egg may soon have children.
    assert set(known) == {mother.digest, EGG.digest}
    assert known[mother.digest] is kept
    assert again[0].genome.genes[:-1] == kept.genes


def rewritten(change):
    """A batch of two siblings, decoded as plain data, changed and encoded again."""
    batch = msgspec.msgpack.decode(
        encode(pack(asked([aged(3).child(Gene(s, 0.5)) for s in (1, 2)])))
    )
    change(batch)
    return msgspec.msgpack.encode(batch)


def tampered_seed(batch):
    runs = batch[0][0][1][1]
    runs[0][2] = b"\1" + runs[0][2][1:]


def tampered_sigma(batch):
    batch[0][0][1][1][0][0] = 0.25


def tampered_root(batch):
    batch[0][0][1][0]["seed"] = 2


def tampered_name(batch):
    batch[0][0][0] = "0" * 64


@pytest.mark.parametrize(
    "change",
    [tampered_seed, tampered_sigma, tampered_root, tampered_name],
    ids=lambda c: c.__name__,
)
def test_a_batch_that_does_not_hash_to_its_name_is_refused(change):
    known = {}
    with pytest.raises(InputError, match=r"^batch: \w{16} is not what its genes give; refused$"):
        read(rewritten(change), POLICY, known)
    assert known == {}


def test_a_batch_for_another_policy_is_refused():
    other = PolicyRef("sample", POLICY.layout, {"size": 1})
    with pytest.raises(InputError, match="is not what its genes give"):
        read(rewritten(lambda batch: None), other, {})


MALFORMED = {
    "not two lists": msgspec.msgpack.encode([[]]),
    "a text": msgspec.msgpack.encode("batch"),
    "a number for a name": rewritten(lambda b: b[0][0].__setitem__(0, 5)),
    "no such root": rewritten(lambda b: b[0][0][1][0].update(kind="foreign")),
    "a seed too large": rewritten(lambda b: b[1][0][2].update(seed=2**32)),
    "no such operator": rewritten(lambda b: b[1][0][2].update(operator="swap")),
    "no such operator before": rewritten(lambda b: b[0][0][1][1][0].__setitem__(1, "swap")),
    "half a seed": rewritten(lambda b: b[0][0][1][1][0].__setitem__(2, b"\0\0")),
    "sigma zero": rewritten(lambda b: b[1][0][2].update(sigma=0.0)),
}
NOT_MESSAGES = {
    "nothing": b"",
    "not msgpack": b"\xc1",
    "cut off": rewritten(lambda b: None)[:-1],
    "more than a batch": rewritten(lambda b: None) + b"\0",
}
BASES = {
    "no such base": rewritten(lambda b: b[1][0].__setitem__(1, 1)),
    "a base from the end": rewritten(lambda b: b[1][0].__setitem__(1, -1)),
}


@pytest.mark.parametrize(
    "case",
    [*MALFORMED, *NOT_MESSAGES, *BASES],
)
def test_a_malformed_batch_is_refused(case):
    with pytest.raises(InputError):
        read((MALFORMED | NOT_MESSAGES | BASES)[case], POLICY, {})
