"""Ray: a cluster made here, nodes that come and go, and what only this engine has."""

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

import engines
import ray_cluster
import servers
from conformance.test_backends import RUNS, resolved
from conformance.test_engines import LONG, serial_digest, small
from engines import CONTINUE, KILL, STOP, OfRay, Running, children, until
from germline.address import Address
from germline.backends.ray import Ray, messages
from germline.errors import InputError
from ray_cluster import RayCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wanted_of_long(tmp_path_factory):
    return serial_digest(tmp_path_factory.mktemp("serial") / "run", small(LONG))


def left_by_ray():
    return set(Path(tempfile.gettempdir()).glob("germline-ray-*"))


def test_a_cluster_made_here_is_quiet_and_leaves_nothing(tmp_path):
    before = left_by_ray()
    run = tmp_path / "run"
    made = subprocess.run(
        [
            *(sys.executable, "-m", "germline", "train", "cartpole", "--out", run, "--plain"),
            *("--backend", "ray", "--workers", "1"),
            *("--set", "stop.generations=2", "--set", "algorithm.population=16"),
        ],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"},
        timeout=120,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    lines = made.stdout.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"{run}: cartpole")
    assert [line.split()[:2] for line in lines[1:3]] == [["generation", "0"], ["generation", "1"]]
    assert left_by_ray() == before


def test_nodes_are_removed_and_added(tmp_path, wanted_of_long):
    with OfRay() as engine:
        engine.host()
        engine.host()
        with Running(tmp_path / "run", small(LONG), engine.backend()) as running:
            for goal in (30, 120, 300):
                running.reaches(goal)
                engines.send(engine.hosts[0].pid, KILL)
                until(lambda: not engine.hosts[0].alive(), "the node is dead")
                engine.restart()
            assert running.digest() == wanted_of_long


def test_a_host_that_was_frozen_joins_again(tmp_path):
    with OfRay() as engine:
        engine.host()
        backend = engine.backend()
        with Running(tmp_path / "run", small(LONG), backend) as running:
            running.reaches(20)
            (frozen,) = engine.workers(None)
            engines.send(frozen, STOP)
            until(lambda: not backend.workers(), "it is given up")
            engines.send(frozen, CONTINUE)
            until(backend.workers, "it is back")
            assert engine.workers(None) == [frozen]
            running.digest()


def test_a_cluster_is_reached_from_outside(tmp_path):
    run = resolved(RUNS["es on a function"])
    port = servers.free_port()
    with closing(RayCluster(ray_client_server_port=port)) as made, made as cluster:
        cluster.add(1)
        wanted = serial_digest(tmp_path / "serial", run)
        backend = Ray(Address("ray", "127.0.0.1", port), trust=True)
        with Running(tmp_path / "run", run, backend) as running:
            assert running.digest() == wanted


def test_only_so_many_cores_are_used():
    run = resolved(RUNS["es on a function"])
    with ray_cluster.shared() as cluster, Ray(workers=3, trust=True) as backend:
        cluster.add(2)
        cluster.add(2)
        cluster.add(1)
        backend.open(run.problem, "run")
        until(lambda: sum(w.slots for w in backend.workers()) == 3, "three cores")


def test_evaluating_processes_do_not_know_the_token():
    run = resolved(RUNS["es on a function"])
    with OfRay() as engine, engine.backend() as backend:
        engine.host()
        backend.open(run.problem, "run")
        until(backend.workers, "it is there")
        (actor,) = engine.workers(None)
        token = os.environ["RAY_AUTH_TOKEN"].encode()
        assert token in Path(f"/proc/{actor}/environ").read_bytes()
        for child in children(actor):
            assert token not in Path(f"/proc/{child}/environ").read_bytes()


def test_nodes_that_others_use_are_told_of_and_passed_over():
    run = resolved(RUNS["es on a function"])
    warnings = []
    with ray_cluster.shared() as cluster:
        cluster.add(2)
        cluster.add(2)
        with Ray(workers=2, trust=True) as first:
            first.open(run.problem, "run")
            until(first.workers, "the first has a node")
            with Ray(workers=2, trust=True, warn=warnings.append) as second:
                second.open(run.problem, "run")
                until(lambda: list(second.results(0.1)) or second.workers(), "so has the second")
                assert first.workers()[0].name != second.workers()[0].name
            with Ray(trust=True, warn=warnings.append) as third:
                third.open(run.problem, "run")
                until(lambda: list(third.results(0.1)) or third.workers(), "so has the third")
                until(lambda: list(third.results(0.1)) or warnings, "it is told of the other")
    assert any("others use its cores" in text for text in warnings)


def test_a_node_that_refuses_ends_nothing_while_there_are_others():
    warnings = []
    backend = Ray(warn=warnings.append)
    backend._hear(messages.Gone("one", 1, "ale-py is not here"))
    assert list(backend.results(0.01)) == []
    assert warnings == ["one: does not work: ale-py is not here"]
    backend._hear(messages.Gone("other", 0, "ale-py is not here"))
    with pytest.raises(InputError, match="backend: ale-py is not here"):
        list(backend.results(0.01))


def refusal_of(backend):
    """Why a cluster cannot be worked with."""

    def work():
        backend.open(resolved(RUNS["es on a function"]).problem, "run")
        until(lambda: list(backend.results(0.1)), "an error comes", 120)

    with backend, pytest.raises(InputError) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize("address", [Address("ray", "127.0.0.1", 9), None])
def test_a_cluster_that_is_not_there(address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    assert "127.0.0.1:9 cannot be reached" in refusal_of(Ray(address))


def test_other_forms_of_an_address(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    assert "http://127.0.0.1:8265 is not HOST:PORT" in refusal_of(Ray())


def test_a_wrong_token_is_said_to_be_one(monkeypatch):
    with ray_cluster.shared() as cluster:
        cluster.add(1)
        monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
        told = refusal_of(Ray())
        assert "ConnectionError: Failed to connect" in told  # Ray's own words
        assert "does it want a token" in told
