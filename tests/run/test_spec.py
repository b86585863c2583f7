import math
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from germline.errors import InputError
from germline.run import spec as specs
from runs import ALGORITHMS, SMALL, small

WORD = "open-sesame"
CARTPOLE = {
    "task": {"name": "functional", "id": "CartPole-v1"},
    "policy": {"name": "mlp", "hidden": [4]},
}


def with_fields(table, **fields):
    return {table: SMALL.get(table, {}) | fields}


def cartpole(**fields):
    return CARTPOLE | {"policy": CARTPOLE["policy"] | fields}


def test_a_spec_is_read_from_a_file(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(
        """
        germline = 1
        name = "cartpole"
        [task]
        name = "functional"
        id = "CartPole-v1"
        [policy]
        name = "mlp"
        hidden = [4]
        [algorithm]
        name = "ga"
        population = 256
        sigma = {start = 0.5, end = 0.1, generations = 9}
        [stop]
        score = 475
        """
    )
    resolved = specs.resolve(specs.read(path))
    spec = resolved.spec
    assert (spec.name, spec.seed, spec.stop.score) == ("cartpole", 1, 475.0)
    assert spec.backend.name == "processes"
    # What the task decides is filled in, and every default written out.
    assert spec.policy == {"name": "mlp", "inputs": 4, "hidden": [4], "outputs": 2}
    assert (spec.task["id"], spec.task["suite"]) == ("CartPole-v1", "gymnasium")
    assert spec.algorithm["candidate_episodes"] == 30
    assert resolved.problem.policy.settings == {"inputs": 4, "hidden": [4], "outputs": 2}
    assert resolved.algorithm.sigma(9) == pytest.approx(0.1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_resolved_spec_is_written_read_and_resolved_to_itself(algorithm, tmp_path):
    resolved = specs.resolve(small(algorithm=algorithm), trust=True)
    path = tmp_path / "spec.toml"
    path.write_text(specs.to_toml(resolved.spec))
    again = specs.resolve(specs.read(path), trust=True)
    assert again == resolved
    assert specs.to_toml(again.spec) == specs.to_toml(resolved.spec)


def tables(values):
    return st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=4)


plain = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | tables(inner),
    max_leaves=8,
)


@given(tables(plain), tables(plain), st.floats(allow_nan=False), st.floats(0, exclude_min=True))
def test_anything_in_a_table_survives_toml(task, policy, score, hours):
    spec = specs.Spec(
        imports=("a.b", "c"),
        task={**task, "name": "a"},
        policy={**policy, "name": "b"},
        algorithm={"name": "c", "left out": None},
        stop=specs.Stop(score=score, hours=hours),
    )
    again = specs.parse(tomllib.loads(specs.to_toml(spec)))
    assert (again.task, again.policy) == (spec.task, spec.policy)
    assert again.algorithm == {"name": "c"}
    assert again.imports == spec.imports
    assert again.stop.hours == hours
    assert again.stop.score == score


def test_fields_are_overridden_by_dotted_name():
    spec = small({"seed": 9, "algorithm.population": 8, "stop.score": 3, "backend.workers": 2})
    assert (spec.seed, spec.algorithm["population"]) == (9, 8)
    assert (spec.stop.score, spec.stop.generations) == (3.0, 3)
    assert (spec.backend.name, spec.backend.workers) == ("serial", 2)
    assert small({"stop.generations": None}).stop == specs.Stop()
    assert small({"stop": {"frames": 5}}).stop == specs.Stop(frames=5)
    assert SMALL["algorithm"]["population"] == 6


def test_a_table_that_is_not_written_can_be_overridden():
    values = {name: SMALL[name] for name in ("task", "policy", "algorithm")}
    assert specs.parse(values, {"stop.generations": 4}).stop.generations == 4


def test_overrides_are_left_as_they_were():
    changes = {"stop": {"generations": 1}, "stop.generations": 2}
    assert small(changes).stop.generations == 2
    assert changes["stop"] == {"generations": 1}


FLAWS = {
    "top level": ({"nmae": "x"}, "'nmae' is not one of its settings; did you mean name?"),
    "stop field": (with_fields("stop", scroe=1), "stop: 'scroe' is not", "did you mean score?"),
    "backend field": (with_fields("backend", wrokers=1), "backend: 'wrokers'", "mean workers?"),
    "task field": (
        CARTPOLE | {"task": CARTPOLE["task"] | {"slot": 1}},
        "task functional: 'slot' is not one of its settings; did you mean slots?",
    ),
    "task without fields": (with_fields("task", slots=1), "task positive: 'slots'", "are none"),
    "policy field": (with_fields("policy", hiden=[1]), "policy mlp:", "'hiden'", "mean hidden?"),
    "algorithm field": (
        with_fields("algorithm", popultion=9),
        "algorithm ga: 'popultion' is not one of its settings; did you mean population?",
    ),
    "far from any": ({"zzzz": 1}, "'zzzz'", "there are germline, name, seed,"),
    "seed text": ({"seed": "one"}, "seed: expected int, got str; given: 'one'"),
    "seed share": ({"seed": 1.5}, "seed: expected int, got float; given: 1.5"),
    "seed negative": ({"seed": -1}, "seed: expected int >= 0; given: -1"),
    "seed large": ({"seed": 2**32}, "seed:", "4294967295; given: 4294967296"),
    "name": ({"name": "../x"}, "name: has characters", "given: '../x'"),
    "checkpoint": ({"checkpoint": 0}, "checkpoint: expected int >= 1; given: 0"),
    "lineage": ({"lineage": -1}, "lineage: expected int >= 0; given: -1"),
    "arithmetic": ({"arithmetic": "flaot32"}, "arithmetic:", "'flaot32'", "mean float32?"),
    "stop type": (with_fields("stop", score="high"), "stop.score: expected float", "'high'"),
    "generations": (with_fields("stop", generations=0), "stop.generations: expected int >= 1", "0"),
    "hours": (with_fields("stop", hours=math.nan), "stop.hours: expected float > 0", "given: nan"),
    "backend": (with_fields("backend", name="procesess"), "backend.name:", "mean processes?"),
    "far backend": (with_fields("backend", name="celery"), "'celery'", "there are serial, pro"),
    "backend number": (with_fields("backend", name=3), "backend.name: is text"),
    "backend list": (with_fields("backend", name=[f"redis://:{WORD}@h"]), "backend.name: is text"),
    "scheme": (with_fields("backend", name=f"reddis://:{WORD}@h"), "backend.name:", "mean redis?"),
    "no scheme": (with_fields("backend", name=f"me:{WORD}@h"), "backend.name: an address is"),
    "port": (with_fields("backend", name=f"redis://h:{WORD}"), "backend.name: the port of a redis"),
    "audit": (with_fields("backend", audit=1.5), "backend.audit: expected float <= 1.0", "1.5"),
    "audit of floats": (with_fields("backend", audit=0.1), 'audit: needs arithmetic = "exact"'),
    "open door": (
        with_fields("backend", name="grpc://0.0.0.0"),
        "others can reach this address, so give backend.certificate and backend.key, or say",
    ),
    "certificate alone": (
        with_fields("backend", name="grpc://0.0.0.0", certificate="c"),
        "backend.certificate: needs backend.key, too",
    ),
    "key alone": (
        with_fields("backend", name="grpc://127.0.0.1", key="k"),
        "backend.key: needs backend.certificate, too",
    ),
    "certificate of a broker": (
        with_fields("backend", name=f"redis://:{WORD}@h", certificate="c", key="k"),
        "backend.certificate: is for grpc addresses, not for redis; use rediss:// for TLS",
    ),
    "certificate of processes": (
        with_fields("backend", certificate="c", key="k"),
        "backend.certificate: is for grpc addresses, not for serial",
    ),
    "insecure broker": (
        with_fields("backend", name="amqps://h", insecure=True),
        "backend.insecure: is for grpc addresses, not for amqps",
    ),
    "token of processes": (
        with_fields("backend", token_file="t"),
        "backend.token_file: is for workers elsewhere, not for serial",
    ),
    "workers": (with_fields("backend", workers=0), "backend.workers: expected int >= 1; given: 0"),
    "price": (with_fields("backend", price=-1.0), "backend.price: expected float >= 0", "-1.0"),
    "endless price": (with_fields("backend", price=math.inf), "backend.price: expected float <="),
    "task": (with_fields("task", name="functionl"), "task: 'functionl'", "mean functional?"),
    "environment": (
        CARTPOLE | {"task": {"name": "functional", "id": "CartPol-v1"}},
        "task functional: id: 'CartPol-v1'",
        "did you mean CartPole-v1?",
    ),
    "policy": (with_fields("policy", name="mpl"), "policy: 'mpl' is not registered", "mean mlp?"),
    "policy for a task": (cartpole(name="mpl"), "policy: 'mpl' is not registered", "mean mlp?"),
    "algorithm": (with_fields("algorithm", name="gaa"), "algorithm: 'gaa'", "did you mean ga?"),
    "operator": (with_fields("algorithm", operator="gausian"), "operator: 'gausian'", "gaussian"),
    "no heads": (with_fields("algorithm", operator="block:head"), "operator: block:head needs"),
    "optimizer": (
        {"algorithm": {"name": "es", "optimizer": "adm"}},
        "optimizer: 'adm' is not one of optax's; did you mean adam?",
    ),
    "not an optimizer": (
        {"algorithm": {"name": "es", "optimizer": "chain"}},
        "optimizer: optax.chain cannot be made",
    ),
    "optimizer option": (
        {"algorithm": {"name": "es", "optimizer_options": {"b3": 1}}},
        "optimizer: optax.adam cannot be made",
        "'b3'",
    ),
    "table is a number": ({"task": 3}, "task: a table with a name is needed"),
    "no name": ({"policy": {"hidden": [3]}}, "policy: a table with a name is needed"),
    "name is a number": (with_fields("algorithm", name=3), "algorithm: a table with a name is"),
    "stop is a number": ({"stop": 3}, "stop: must be a table"),
    "newer": ({"germline": 2}, "germline: 2 is newer than this program, which reads 1"),
    "version 0": ({"germline": 0}, "germline: 0 is not 1"),
    "version text": ({"germline": "1"}, "germline: '1' is not the version of a spec; this is 1"),
    "version true": ({"germline": True}, "germline: True is not the version"),
    "inputs": (cartpole(inputs=3), "policy mlp: sees [3], the task shows [4]"),
    "outputs": (cartpole(outputs=3), "policy mlp: has 3 outputs, the task takes 2"),
    "head": (cartpole(head="continuous"), "policy mlp: head: is continuous", "are discrete"),
    "pixels": (CARTPOLE | {"policy": {"name": "dqn"}}, "policy dqn: sees", "the task shows [4]"),
    "exact floats": (CARTPOLE | {"arithmetic": "exact"}, "arithmetic: exact needs observations in"),
    "exact gru": ({"arithmetic": "exact", "policy": {"name": "gru"}}, "policy gru: has no exact"),
    "exact and normalised": (
        {"arithmetic": "exact", "policy": {"name": "dqn", "normalise": "virtual"}},
        "policy.normalise: has no exact arithmetic; leave one of them out",
    ),
    "virtual": ({"policy": {"name": "dqn", "normalise": "virtual"}}, "policy: normalise: virtual"),
    "cost": (with_fields("stop", cost=1.0), "stop.cost: needs backend.price"),
    "elites": (
        with_fields("algorithm", elites=4, candidates=9),
        "elites: 4 are more than the 3 parents",
    ),
    "candidates": (with_fields("algorithm", elites=3), "candidates: 2 leave none", "elite of 3"),
    "odd": (
        {"algorithm": {"name": "es", "population": 5}},
        "algorithm es: population: expected int that's a multiple of 2; given: 5",
    ),
    "sigma 0": (with_fields("algorithm", sigma=0.0), "sigma: 0.0 must be above 0"),
    "sigma negative": (with_fields("algorithm", sigma=-0.5), "sigma: -0.5 must be above 0"),
    "sigma nan": (with_fields("algorithm", sigma=math.nan), "sigma: nan is not a number"),
    "sigma large": (with_fields("algorithm", sigma=1e9), "sigma: 1000000000.0 is too large"),
    "sigma small": (with_fields("algorithm", sigma=1e-30), "sigma: 1e-30 is too small"),
    "sigma text": (with_fields("algorithm", sigma="big"), "sigma: expected float", "'big'"),
    "schedule": (
        with_fields("algorithm", sigma={"start": 1.0, "end": 0.0, "generations": 3}),
        "sigma.end: expected float > 0",
    ),
    "no module": ({"imports": ["no_such_module"]}, "imports: no_such_module: No module named"),
    "not a module": ({"imports": ["a b"]}, "imports[0]: has characters", "given: ['a b']"),
}
for missing in ("task", "policy", "algorithm"):
    FLAWS[f"no {missing}"] = ({missing: None}, f"{missing}: a table with a name is needed")


@pytest.mark.parametrize("case", FLAWS)
def test_a_mistake_is_told_with_its_field_value_and_closest_name(case):
    changes, *words = FLAWS[case]
    with pytest.raises(InputError) as refused:
        specs.resolve(specs.parse(SMALL | changes), trust=True)
    message = str(refused.value)
    assert all(word in message for word in words), message
    assert "\n" not in message
    assert len(message) < 600
    assert WORD not in message


FAR = f"amqp://me:{WORD}@broker//?heartbeat=5&my_token={WORD}"
SEEN = "amqp://me:***@broker:5672//?heartbeat=5&my_token=***"


def test_what_is_written_of_an_address_has_no_secrets(tmp_path):
    spec = small({"backend.name": FAR, "backend.token_file": "t"})
    assert WORD not in specs.to_toml(spec)
    resolved = specs.resolve(spec, trust=True)
    assert WORD not in repr(resolved.spec)
    assert resolved.spec.backend.name == SEEN
    assert resolved.engine.name == FAR
    assert resolved.engine.address.password == WORD
    path = tmp_path / "spec.toml"
    path.write_text(specs.to_toml(resolved.spec))
    again = specs.resolve(specs.read(path), trust=True)
    assert again.spec == resolved.spec
    assert again.engine.address.incomplete


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "grpc://127.0.0.1"},
        {"name": "grpc://[::1]:99", "insecure": True},
        {"name": "grpc://0.0.0.0", "insecure": True},
        {"name": "grpc://0.0.0.0", "certificate": "c", "key": "k", "token_file": "t"},
        {"name": "amqps://me@broker/runs", "workers": 2, "token_file": "t"},
        {"name": "redis://broker/0", "patience": 5.0},
    ],
    ids=lambda fields: fields["name"],
)
def test_an_address_is_an_engine(fields):
    resolved = specs.resolve(small({"backend": fields}), trust=True)
    assert resolved.engine == specs.Engine(**fields)
    assert resolved.spec.backend.name == resolved.engine.address.redacted


def test_another_engine_takes_away_what_it_has_no_use_for():
    grpc = {"name": "grpc://h", "certificate": "c", "key": "k", "token_file": "t", "price": 2.0}
    values = SMALL | {"backend": grpc}

    def engine(**changes):
        changes = {f"backend.{name}": value for name, value in changes.items()}
        return specs.parse(values, changes).backend

    assert engine(name="serial") == specs.Engine(name="serial", price=2.0)
    assert engine(name="redis://h") == specs.Engine(name="redis://h", token_file="t", price=2.0)
    assert engine(name="grpc://g") == specs.Engine(**grpc | {"name": "grpc://g"})
    assert engine(name="serial", key="k").key == "k"


def test_audits_are_for_exact_arithmetic():
    exact = {"arithmetic": "exact", "backend.audit": 0.25}
    assert specs.resolve(small(exact), trust=True).engine.audit == 0.25


def test_a_score_that_no_run_can_reach_is_refused():
    with pytest.raises(InputError, match=r"^stop\.score"):
        small({"stop.score": math.nan})


def test_code_is_run_only_if_trusted():
    with pytest.raises(InputError, match=r"imports: games is code; add --trust"):
        specs.resolve(small())


def test_a_name_below_what_is_no_table_is_refused():
    with pytest.raises(InputError, match=r"^seed.x: seed is not a table$"):
        small({"seed.x": 1})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name = ", "not valid TOML: "),
        (b"name = 'a'\nname = 'b'\n", "not valid TOML: "),
        (b"name = '\xff'", "is not valid UTF-8 text"),
        (b"seed = 'one'", "a table with a name is needed"),
        (b"#" * (2**16 + 1), "over 64 KiB, too large for a spec"),
        (b"seed = " + b"[" * 9999, "not valid TOML"),
        (b"seed = " + b"9" * 5000, "not valid TOML"),
    ],
    ids=["half", "twice", "bytes", "no tables", "huge", "deep", "digits"],
)
def test_a_file_that_is_no_spec_is_told_with_its_name(content, words, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as refused:
        specs.read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_told_with_its_name(tmp_path):
    with pytest.raises(InputError, match=rf"^{tmp_path}: is not a file$"):
        specs.read(tmp_path)
    with pytest.raises(InputError, match=rf"^{tmp_path}/none: No such file or directory$"):
        specs.read(tmp_path / "none")
