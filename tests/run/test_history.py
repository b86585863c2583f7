import pytest

from germline.errors import InputError
from germline.genome import Gene
from germline.run import history
from germline.run.records import Scored
from germline.run.store import Store
from runs import begin, run, small


def scored(who, generation, *returns):
    count = (1,) * len(returns)
    return Scored(who, generation, 0, 0, returns, count, count, None if returns else "failed")


def test_a_standing_is_over_all_episodes_of_all_generations():
    found = history.standings(
        [scored("a", 0, 1.0, 4.0), scored("b", 0), scored("a", 2, 7.0), scored("b", 1, -2.0)]
    )
    assert found == {
        "a": history.Standing("a", 0, 3, 4.0, 1.0, 7.0),
        "b": history.Standing("b", 1, 1, -2.0, -2.0, -2.0),  # when it first did not fail
    }


def test_those_that_only_failed_have_no_standing():
    assert history.standings([scored("a", 0), scored("a", 1)]) == {}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Finished runs, not to be changed; in one, every second individual fails."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("es", "random-search"):
        run(folder / name, small({"stop.generations": 4}, name))
    run(folder / "ga", small({"stop.generations": 4, "algorithm.candidate_episodes": 4}))
    run(folder / "brittle", small({"stop.generations": 4, "task.name": "brittle"}, "es"))
    begin(folder / "begun", small())
    return folder


def test_the_best_played_half_as_often_as_the_champion(made):
    with Store.open(made / "ga") as store:
        champion = store.reports()[-1].champion
        episodes = sum(len(s.returns) for s in store.scores(3) if s.id == champion)
        known = history.standings(store.scores()).values()
        expected = [standing for standing in known if standing.episodes >= episodes / 2]
        expected.sort(key=lambda s: (-s.mean, s.generation, s.id))
        assert 0 < len(expected) < len(known)
        assert history.best(store, 100) == expected
        assert history.best(store, 2) == expected[:2]


def test_one_episode_is_enough_within_a_generation(made):
    with Store.open(made / "ga") as store:
        found = history.best(store, 100, 1)
        assert {standing.id for standing in found} == {s.id for s in store.scores(1)}
        assert {standing.episodes for standing in found} > {1}
        assert history.best(store, 100, 9) == []


def test_a_run_without_generations_has_no_best(made):
    with Store.open(made / "begun") as store:
        assert history.best(store, 10) == []


def test_a_lineage_goes_from_a_root_by_one_gene_each(made):
    with Store.open(made / "ga") as store:
        champion = store.reports()[-1].champion
        found = history.lineage(store, champion)
        assert found[0].gene is None
        assert found[-1].id == champion
        assert [a.gene for a in found[1:]] == list(store.genome(champion).genes)
        assert len(found) > 2
        generations = [ancestor.generation for ancestor in found]
        assert generations == sorted(set(generations))
        # Of anyone else, too.
        other = next(s.id for s in store.scores(0))
        assert [a.id for a in history.lineage(store, other)] == [other]


def test_the_lineage_of_a_centre_is_that_of_centres(made):
    with Store.open(made / "es") as store:
        centres = [report.champion for report in store.reports()]
        found = history.lineage(store, centres[-1])
        assert [ancestor.id for ancestor in found] == centres
        assert [ancestor.generation for ancestor in found] == [0, 1, 2, 3]
        assert all(ancestor.gene is None for ancestor in found)
        middle = history.lineage(store, centres[1])
        assert middle == found[:2]


def test_one_who_moved_from_a_centre_has_it_as_a_parent(made):
    with Store.open(made / "es") as store:
        centres = {report.champion for report in store.reports()}
        name = next(s.id for s in store.scores(2) if s.id not in centres)
        centre, moved = history.lineage(store, name)
        assert centre.id == store.reports()[2].champion
        assert isinstance(moved.gene, Gene)


def test_random_search_has_no_lineage_but_its_champion(made):
    with Store.open(made / "random-search") as store:
        champion = store.reports()[-1].champion
        (alone,) = history.lineage(store, champion)
        assert (alone.id, alone.gene, alone.gain) == (champion, None, None)


def test_one_that_failed_has_no_gain_and_gives_none(made):
    with Store.open(made / "brittle") as store:
        known = history.standings(store.scores())
        failed = [s.id for s in store.scores() if s.id not in known]
        assert failed
        for name in failed:
            last = history.lineage(store, name)[-1]
            assert (last.episodes, last.mean, last.gain) == (0, None, None)
        assert all(standing.id not in failed for standing in history.best(store, 100))


def test_nobody_has_no_lineage(made):
    with Store.open(made / "ga") as store, pytest.raises(InputError, match="no individual has"):
        history.lineage(store, "0" * 16)
