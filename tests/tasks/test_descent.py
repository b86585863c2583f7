"""Adam on points to be learned by heart: it starts as a newborn, learns, can be redone."""

import msgspec
import numpy as np
import pytest

from germline import Birth, Decoder, Genome, policies, tasks
from germline.errors import InputError
from germline.tasks import Episode, descent, fitting
from germline.tasks.descent import descend

NETWORKS = {
    "mlp": {"hidden": [32]},
    "conv": {"filters": [4], "kernels": [3], "strides": [2], "hidden": [9]},
}
SHAPES = {"mlp": (12,), "conv": (8, 8, 3)}


def made(name="mlp", **settings):
    """A task of 16 points; where as many are held out, one program serves both parts."""
    task = tasks.make("memorize", {"points": 16, "shape": SHAPES[name], **settings})
    return task, fitting.fit(name, NETWORKS[name], task.space())


def newborn(name, task, spec, seed):
    """What the task says of an individual without genes."""
    genome = Genome(policies.reference(name, spec), Birth(seed))
    players = tasks.Players(spec, Decoder(spec.layout()), [genome])
    return task.play(players, [Episode(0, 1, None)])[0]


@pytest.mark.parametrize(("name", "held_out"), [("mlp", 8), ("conv", 16)])
def test_it_starts_where_a_newborn_does(name, held_out):
    task, spec = made(name, validation=held_out)
    first, *_ = descend(task, spec, seed=5, steps=0)
    for part, loss, errors in (
        ("training", first.loss, first.errors),
        ("validation", first.validation_loss, first.validation_errors),
    ):
        shown = msgspec.structs.replace(task, part=part)
        assert loss == pytest.approx(-newborn(name, shown, spec, 5).score, rel=1e-5)
        counted = msgspec.structs.replace(shown, fitness="incorrect")
        assert errors == -newborn(name, counted, spec, 5).score


def test_it_learns_all_points():
    task, spec = made()
    curve = descend(task, spec, seed=1, steps=200, rate=1e-2)
    assert [step.number for step in curve] == list(range(201))
    assert curve[0].errors > 8
    assert curve[-1].errors == 0
    assert curve[-1].loss < 0.01
    assert curve[-1].validation_loss is None


def test_it_learns_in_batches():
    task, spec = made(validation=16)
    curve = descend(task, spec, seed=1, steps=410, rate=1e-2, batch=4, every=100)
    assert [step.number for step in curve] == [0, 100, 200, 300, 400, 410]
    assert curve[-1].errors == 0


@pytest.mark.parametrize("batch", [None, 4])
def test_the_same_seed_gives_the_same_curve(batch):
    task, spec = made(validation=16)
    one, same, other = (descend(task, spec, seed=seed, steps=5, batch=batch) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_batches_change_what_is_learned():
    task, spec = made()
    whole, batches = (descend(task, spec, seed=1, steps=3, batch=b) for b in (None, 4))
    assert whole[0] == batches[0]
    assert whole[-1] != batches[-1]


def test_an_epoch_shows_every_point_once_at_most():
    for total, batch in ((16, 4), (18, 4), (7, 7)):
        steps = total // batch
        epochs = [
            np.concatenate([descent._batch(3, e * steps + s, total, batch) for s in range(steps)])
            for e in range(2)
        ]
        for epoch in epochs:
            assert len({*epoch.tolist()}) == len(epoch) == steps * batch
        assert epochs[0].tolist() != epochs[1].tolist()


def test_what_is_held_out_is_not_learned_from():
    task, spec = made(validation=16)
    curve = descend(task, spec, seed=1, steps=200, rate=1e-2)
    assert curve[-1].errors == 0
    assert curve[-1].validation_errors > 8
    assert curve[-1].validation_loss > curve[0].validation_loss


def test_the_fitness_of_the_task_changes_nothing():
    curves = [
        descend(*made(fitness=fitness), seed=1, steps=2)
        for fitness in ("cross-entropy", "incorrect", "first-error")
    ]
    assert curves[0] == curves[1] == curves[2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": -1}, "steps: -1 is not 0 or more"),
        ({"every": 0}, "every: 0 is not 1 or more"),
        ({"rate": 0.0}, "rate: 0.0 is not a number above 0"),
        ({"rate": float("nan")}, "rate: nan is not a number above 0"),
        ({"batch": 0}, "batch: 0 is not from 1 to 16"),
        ({"batch": 17}, "batch: 17 is not from 1 to 16"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_makes_no_sense_is_refused(given, words):
    task, spec = made()
    with pytest.raises(InputError, match=words):
        descend(task, spec, **{"seed": 1, "steps": 1, **given})


def test_a_network_that_does_not_fit_is_refused():
    task, _ = made()
    with pytest.raises(InputError, match=r"sees \[5\], the task shows \[12\]"):
        descend(task, policies.make("mlp", {"inputs": 5, "outputs": 10}), seed=1, steps=1)


def test_a_network_with_statistics_is_refused():
    task, _ = made()
    spec = fitting.fit("mlp", {"normalise": "observations"}, task.space())
    with pytest.raises(InputError, match="normalise"):
        descend(task, spec, seed=1, steps=1)
