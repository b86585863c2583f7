"""The digests by which a machine shows that it computes as the others do."""

import hashlib

import numpy as np
import pytest

from germline import decode_reference as reference
from germline import policies, proof
from germline.blobs import BlobCache
from germline.errors import InputError
from germline.evaluate import Evaluator
from germline.files import TaskRef
from germline.genome import Birth, Gene, Genome
from germline.messages import Problem
from germline.noise import Stream, reference_words
from germline.policies.arithmetic import integers_reference
from germline.policies.conv import Conv

pytestmark = pytest.mark.numerics


@pytest.fixture
def forgetful():
    proof.check.cache_clear()
    yield
    proof.check.cache_clear()


def test_the_network_digest_is_what_the_definitions_in_numpy_give():
    spec = policies.exact(Conv(filters=(4, 8), hidden=(32,)), sigma=0.05, genes=5)
    genes = tuple(Gene(n, 0.05, operator) for n, operator in enumerate(proof.OPERATORS))
    genome = Genome(policies.reference("conv", spec), Birth(1), genes)
    theta = reference.decode(genome, spec.layout())
    words, _ = reference_words(1, Stream.WEIGHTS, 0, 4 * 84 * 84 * 4)
    seen = (words & np.uint32(255)).astype(np.uint8).reshape(4, 84, 84, 4)
    logits = integers_reference.outputs(spec, theta, seen).astype("<i4").tobytes()
    digest = hashlib.sha256(theta.astype("<f4").tobytes() + 2 * logits)
    assert digest.hexdigest() == proof.NETWORK == proof.network()


def test_the_game_digest_is_golden():
    assert proof.game() == proof.GAME


@pytest.mark.parametrize("name", ["network", "game"])
def test_an_exact_run_refuses_a_machine_that_differs(name, monkeypatch, forgetful):
    spec = policies.exact(policies.make("dqn", {}))
    reference_ = policies.reference("dqn", spec)
    task = TaskRef("atari", {"game": "frostbite"})
    monkeypatch.setattr(proof, name, lambda: "0" * 64)
    with pytest.raises(InputError, match=f"the {name} digest is 0000000000000000 here"):
        Evaluator(Problem(task, reference_, "exact"), BlobCache())
    Evaluator(Problem(task, reference_, "float32"), BlobCache())


def test_a_population_of_the_network_at_hand_is_as_defined():
    for padding in ("same", "valid"):
        proof.plays(policies.exact(policies.make("dqn", {"padding": padding})))


def test_a_device_that_computes_otherwise_is_refused(monkeypatch):
    monkeypatch.setattr(proof.integers_reference, "outputs", lambda *_: np.zeros((1, 18)))
    with pytest.raises(InputError, match="otherwise than defined"):
        proof.plays(policies.exact(policies.make("dqn", {})))
