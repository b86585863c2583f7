"""Points learned by heart: what is shown, how answers count, and arrays of one's own."""

import hashlib

import numpy as np
import pytest

import networks
from germline import Birth, Decoder, Gene, Genome, policies, tasks
from germline.errors import InputError
from germline.run import spec as specs
from germline.tasks import Episode, datasets, fitting, memorize
from germline.tasks.protocols import CAPPED, TERMINATED
from runs import run

FITNESS = ("cross-entropy", "incorrect", "first-error")


@tasks.dataset("four-corners")
def corners():
    return np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), [0, 1, 1, 0]


@tasks.dataset("pictures")
def pictures():
    return np.arange(90, dtype=np.uint8).reshape(10, 3, 3, 1), np.arange(10) % 4


BROKEN = {
    "no-points": (np.zeros((0, 2)), []),
    "flat": (np.zeros(3), [0, 1, 0]),
    "unequal": (np.zeros((3, 2)), [0, 1]),
    "not-finite": (np.full((2, 2), np.nan), [0, 1]),
    "shares": (np.zeros((2, 2)), [0.5, 1.0]),
    "negative": (np.zeros((2, 2)), [-1, 0]),
    "three-things": (1, 2, 3),
    "words": (np.array([["a"], ["b"]]), [0, 1]),
    "endless": (np.array([[1e300], [1.0]]), [0, 1]),
    "many": (np.zeros((5000, 1)), np.arange(5000) % 2),
}
for _name, _arrays in BROKEN.items():
    tasks.dataset(_name)(lambda arrays=_arrays: arrays)


@tasks.dataset("quits")
def quits():
    raise SystemExit(3)


def made(**settings):
    return tasks.make("memorize", settings)


def team(task, count=5, policy="mlp", **settings):
    """Individuals that do not answer all alike."""
    spec = fitting.fit(policy, settings, task.space())
    birth = Genome(policies.reference(policy, spec), Birth(1))
    genomes = [birth.child(Gene(number, 0.5)) for number in range(count)]
    return tasks.Players(spec, Decoder(spec.layout()), genomes)


def answers(task, players, number):
    """What one individual says of every point, looked at one by one: scores [points, classes]."""
    policy = players.policy(number)
    return np.array([networks.play(policy, obs) for obs in memorize.points(task).inputs])


def expected(task, said, limit):
    """The score and the number of points looked at, as the notes define them."""
    labels = memorize.points(task).labels[:limit]
    said = said[:limit].astype(np.float64)
    right = said.argmax(1) == labels
    if task.fitness == "incorrect":
        return -float((~right).sum()), limit
    if task.fitness == "first-error":
        before = limit if right.all() else int(right.argmin())
        return float(before), min(before + 1, limit)
    logs = said - np.log(np.exp(said).sum(1, keepdims=True))
    return float(logs[np.arange(limit), labels].mean()), limit


@pytest.mark.parametrize("fitness", FITNESS)
@pytest.mark.parametrize("shape", [(6,), (12, 12, 2)], ids=["vectors", "pictures"])
def test_answers_count_as_they_should(fitness, shape):
    task = made(points=70, shape=shape, classes=3, fitness=fitness)
    small = {"hidden": [5]} if len(shape) == 1 else {"filters": [3], "kernels": [4], "strides": [2]}
    players = team(task, 20, "mlp" if len(shape) == 1 else "conv", **small)
    every = [answers(task, players, number) for number in range(20)]
    for limit in (70, 9):
        found = task.play(players, [Episode(n, 5, limit) for n in range(20)])
        for said, outcome in zip(every, found, strict=True):
            score, steps = expected(task, said, limit)
            assert outcome.score == pytest.approx(score, rel=1e-5)
            assert outcome.steps == outcome.frames == steps
            ended = limit == 70 or (fitness == "first-error" and score < limit)
            assert outcome.end == (TERMINATED if ended else CAPPED)
    assert len({outcome.score for outcome in found}) > 1


def test_a_seed_changes_nothing_and_nobody_plays_twice():
    task = made(points=8, fitness="incorrect")
    players = team(task, 2)
    once = task.play(players, [Episode(n, 1, None) for n in range(2)])
    thrice = task.play(players, [Episode(n, seed, None) for seed in (1, 2, 3) for n in range(2)])
    assert thrice == once * 3


@pytest.mark.parametrize("fitness", FITNESS)
def test_what_is_known_is_a_behaviour(fitness):
    task = made(points=20, classes=2, fitness=fitness, behaviour="known")
    players = team(task)
    for number, outcome in enumerate(task.play(players, [Episode(n, 0, None) for n in range(5)])):
        right = answers(task, players, number).argmax(1) == memorize.points(task).labels
        if fitness == "first-error":
            right &= np.cumprod(right).astype(bool)
        assert outcome.behaviour == tuple(right.astype(float))
    assert made(points=20).play(team(made(points=20)), [Episode(0, 0, None)])[0].behaviour == ()


def test_noise_is_the_same_everywhere():
    drawn = memorize.points(made(points=100, shape=[8, 8, 3], seed=7))
    assert drawn.inputs.dtype == np.float32
    assert abs(drawn.inputs.mean()) < 0.03
    assert abs(drawn.inputs.std() - 1) < 0.03
    assert set(drawn.labels.tolist()) == set(range(10))
    digest = hashlib.sha256(drawn.inputs.tobytes() + drawn.labels.tobytes()).hexdigest()
    assert digest[:16] == "87267763f904aaec"
    whole = memorize.points(made(points=100, shape=[8, 8, 3], seed=7, dtype="int8"))
    assert whole.inputs.dtype == np.int8
    assert (whole.inputs == np.clip(32 * drawn.inputs, -127, 127)).all()


def test_points_held_out_are_others_and_change_nothing():
    plain, held = made(points=30), made(points=30, validation=10)
    other = made(points=30, validation=10, part="validation")
    for one, two in zip(memorize.points(plain), memorize.points(held), strict=True):
        assert (one == two).all()
    more = memorize.points(made(points=40))
    for one, two in zip(memorize.points(other), more, strict=True):
        assert (one == two[30:]).all()
    assert memorize.points(plain).inputs.shape == (30, 64)


def test_arrays_of_ones_own():
    task = made(data="four-corners", fitness="incorrect")
    assert task.space() == made(points=4, shape=[2], classes=2).space()
    assert memorize.points(task).labels.tolist() == [0, 1, 1, 0]
    tasks.check(task)
    task = made(data="pictures", points=6, validation=2, part="validation", classes=7)
    assert task.space().observation == (3, 3, 1)
    assert task.space().dtype == "uint8"
    assert task.space().outputs == 7
    assert memorize.points(task).labels.tolist() == [2, 3]
    assert len(memorize.points(made(data="pictures", validation=3)).labels) == 7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"part": "validation"}, "part: there are no points held out"),
        ({"points": 0}, "points"),
        ({"shape": []}, "shape"),
        ({"classes": 1}, "classes"),
        ({"points": 2**20, "shape": [2**20]}, r"points: 1,099,511,627,776 numbers"),
        ({"fitness": "loss"}, "fitness"),
        ({"data": "four-corners", "shape": [2]}, "shape: is that of the data"),
        ({"data": "four-corners", "dtype": "int8"}, "dtype: is that of the data"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        made(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data": "four-corner"}, "data: four-corner is not registered; did you mean four-corners"),
        ({"data": "four-corners", "points": 5}, "points: 5 are wanted, four-corners has 4"),
        ({"data": "pictures", "classes": 3}, "classes: 3, but pictures has a label 3"),
        ({"data": "no-points"}, r"expected \[points, ...\] and \[points\], got \[0, 2\]"),
        ({"data": "flat"}, "expected"),
        ({"data": "unequal"}, r"got \[3, 2\] and \[2\]"),
        ({"data": "not-finite"}, "some inputs are not finite"),
        ({"data": "shares"}, "labels are whole numbers"),
        ({"data": "negative"}, "labels are whole numbers"),
        ({"data": "three-things"}, "data: three-things: ValueError"),
    ],
)
def test_arrays_that_are_no_points_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        made(**settings).space()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"points": 5000, "behaviour": "known"}, "behaviour: known is for at most 4,096 points"),
        ({"data": "many", "behaviour": "known"}, "behaviour: known is for at most 4,096 points"),
        ({"data": "words"}, "data: words: inputs are numbers, not <U1"),
        ({"data": "endless"}, "some inputs are not finite"),
        ({"data": "quits"}, "data: quits: SystemExit: 3"),
    ],
)
def test_more_that_is_refused(settings, words):
    with pytest.raises(InputError, match=words):
        made(**settings).space()


def test_what_is_shown_counts_for_behaviours():
    held = {"validation": 5000, "behaviour": "known"}
    assert made(points=10, **held).space().outputs == 10
    with pytest.raises(InputError, match="known is for at most"):
        made(points=10, part="validation", **held).space()


def test_a_dataset_that_is_made_anew_is_shown_anew():
    def again(labels):
        def made_again():
            return np.arange(8).reshape(4, 2), labels

        return tasks.dataset("made-again")(made_again)

    again([0, 1, 1, 0])
    task = made(data="made-again", fitness="incorrect")
    players = team(task, hidden=[])
    before = task.play(players, [Episode(n, 0, None) for n in range(5)])
    again([1, 0, 0, 1])
    assert memorize.points(task).labels.tolist() == [1, 0, 0, 1]
    after = task.play(players, [Episode(n, 0, None) for n in range(5)])
    assert [a.score + b.score for a, b in zip(before, after, strict=True)] == [-4] * 5
    with pytest.raises(ValueError, match="read-only"):
        memorize.points(task).labels[0] = 1


def test_nothing_is_normalised_by_what_is_not_counted():
    given = first_error()
    given["policy"] = {"name": "mlp", "normalise": "observations"}
    with pytest.raises(InputError, match="memorize does not add up what is observed"):
        specs.resolve(specs.parse(given))


def test_a_dataset_has_one_home():
    with pytest.raises(ValueError, match=r"registered already, as .*corners"):
        tasks.dataset("four-corners")(pictures)
    assert tasks.dataset("four-corners")(corners) is corners
    assert datasets.home("four-corners") == corners.__module__
    assert datasets.home("nobody") is datasets.home(None) is datasets.home(["corners"]) is None


def first_error(**fields):
    settings = {"points": 6, "shape": [8], "classes": 3, "dtype": "int8"}
    return {
        "task": {"name": "memorize", "fitness": "first-error", **settings},
        "policy": {"name": "memory", "heads": 24, "born": "empty"},
        "algorithm": {
            "name": "ga",
            "population": 32,
            "parents": 1,
            "candidates": 0,
            "operator": "grow",
            "sigma": 0.25,
        },
        "stop": {"score": 6, "generations": 60},
        "backend": {"name": "serial"},
        **fields,
    }


@pytest.mark.parametrize("arithmetic", ["float32", "exact"])
def test_a_memory_grows_until_it_knows_all(arithmetic, tmp_path):
    from germline import train

    done = train(first_error(arithmetic=arithmetic), tmp_path / "run")
    assert done.reports[-1].elite == 6
    assert done.score(episodes=2).returns == (6, 6)


def test_an_exact_run_is_the_same_in_batches_of_any_size(tmp_path, monkeypatch):
    given = specs.parse(first_error(arithmetic="exact", stop={"generations": 5}))
    one = run(tmp_path / "one", given)
    monkeypatch.setattr(memorize, "_form", lambda *_: memorize.Form(3, 4, first=True))
    assert run(tmp_path / "other", given) == one


def test_exact_arithmetic_has_no_cross_entropy():
    given = first_error(arithmetic="exact")
    given["task"]["fitness"] = "cross-entropy"
    with pytest.raises(InputError, match="exact arithmetic has no cross-entropy"):
        specs.resolve(specs.parse(given))
    given["task"] |= {"fitness": "incorrect", "dtype": "float32"}
    words = "exact needs observations in whole numbers, such as pixels, not float32"
    with pytest.raises(InputError, match=words):
        specs.resolve(specs.parse(given))
    given = first_error(arithmetic="exact")
    given["policy"]["similarity"] = "cosine"
    with pytest.raises(InputError, match=r"policy.similarity: has no exact arithmetic"):
        specs.resolve(specs.parse(given))


def test_exact_steps_fit_what_is_drawn_anew():
    grown = specs.resolve(specs.parse(first_error(arithmetic="exact"))).problem.policy
    assert grown.settings["steps"] == [-7, -7]
