import math
from dataclasses import replace

import pytest

import games  # noqa: F401 - registers its tasks
from germline import policies
from germline.errors import InputError
from germline.files import GenomeFile, TaskRef
from germline.genome import Birth, Gene, Genome
from germline.run.score import Scores, score, seeds, watch

SPEC = policies.make("mlp", {"inputs": 4, "hidden": [4], "outputs": 2})
TASKS = {
    "gym": TaskRef("gym", {"id": "CartPole-v1"}),
    "functional": TaskRef("functional", {"id": "CartPole-v1"}),
}


def genome(task):
    return GenomeFile(Genome(policies.reference("mlp", SPEC), Birth(1)), task)


def test_scores_have_a_mean_a_median_and_an_error():
    scores = Scores((1.0, 2.0, 6.0), (1, 1, 1), (4, 4, 4))
    assert (scores.mean, scores.median) == (3.0, 2.0)
    assert scores.error == pytest.approx(math.sqrt(7) / math.sqrt(3))
    assert Scores((5.0,), (1,), (1,)).error == 0.0


def test_seeds_are_drawn_by_counter():
    assert seeds(3, 100)[:7] == seeds(3, 7)
    assert len(set(seeds(3, 100))) == 100
    assert not set(seeds(3, 100)) & set(seeds(4, 100))


@pytest.mark.parametrize("task", TASKS)
def test_more_episodes_begin_with_the_same(task):
    few, more = (score(genome(TASKS[task]), n, workers=1) for n in (1, 19))
    assert more.returns[:1] == few.returns
    assert len(more.returns) == len(more.steps) == len(more.frames) == 19


@pytest.mark.numerics
@pytest.mark.parametrize("task", TASKS)
def test_what_is_watched_is_what_is_scored(task):
    shots = []
    seen = watch(genome(TASKS[task]), shots.append, drawn=False, episodes=3, seed=2, cap=40)
    assert seen == score(genome(TASKS[task]), 3, seed=2, cap=40, workers=1)
    assert [shot.step for shot in shots] == [n for s in seen.steps for n in range(s + 1)]
    ends = [shot for shot in shots if shot.end]
    assert tuple(shot.score for shot in ends) == seen.returns
    assert all((shot.action is None) == (shot.step == 0) for shot in shots)
    assert all(shot.picture is None for shot in shots)


def test_an_individual_that_fails_is_told_with_the_reason():
    parent = genome(TaskRef("brittle"))
    children = (parent.genome.child(Gene(seed, 0.5)) for seed in range(8))
    found = {child.id: replace(parent, genome=child) for child in children}
    failures = {}
    for who, file in found.items():
        try:
            assert score(file, 2, workers=1).returns == (1.0, 1.0)
        except InputError as error:
            failures[who] = str(error)
    assert 0 < len(failures) < len(found)
    for who, message in failures.items():
        assert message.startswith(f"{who}: could not be played: ZeroDivisionError: ")


def test_what_cannot_be_looked_at_is_refused():
    with pytest.raises(InputError, match="germline eval gives its score"):
        watch(genome(TaskRef("positive")), print, drawn=False)


def test_a_genome_without_a_task_is_refused():
    for play in (score, lambda file: watch(file, print, drawn=False)):
        with pytest.raises(InputError, match="task: the genome names none"):
            play(genome(None))
