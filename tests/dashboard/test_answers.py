"""What the dashboard tells of a run is what the store holds, read by other means."""

import math
import os
import shutil
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import numpy as np
import pytest
from msgspec.json import encode as json

from germline.dashboard.answers import about_individual, about_run
from germline.dashboard.answers.about_all_runs import Table, gallery
from germline.dashboard.evaluations import Index
from germline.dashboard.library import WAITING, Busy, Library, MissingError
from germline.errors import InputError
from germline.run import history, loop, prune
from germline.run import spec as specs
from germline.run.store import Store
from runs import ALGORITHMS, Late, begin, go_on, golden_store, run, small


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Finished runs, one that was only begun, one in which some fail; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("ga", "es"):
        run(folder / name, small({"stop.generations": 6}, name))
    run(folder / "brittle", small({"stop.generations": 4, "task.name": "brittle"}, "es"))
    run(folder / "<" / "script>" / "seed-1", small())
    begin(folder / "begun", small())
    return folder


@pytest.fixture
def library(made):
    return Library(made)


def key_of(library, name):
    return next(key for key in library.runs() if library.name(key) == name)


def asked(library, name, call, *given):
    """What a call gives, once all is read."""
    while True:
        with library.open(key_of(library, name)) as view:
            answer = call(view, *given)
        if getattr(answer, "read", 1) == 1:
            return answer


def fitness(store, generation, phase=0):
    return [math.fsum(s.returns) / len(s.returns) for s in played(store, generation, phase)]


def played(store, generation, phase=0):
    return [s for s in store.scores(generation) if s.phase == phase and s.returns]


def test_runs_are_found_below_the_folder_by_keys_that_say_nothing(library):
    names = [library.name(key) for key in library.runs()]
    assert names == ["</script>/seed-1", "begun", "brittle", "es", "ga"]
    assert all(len(key) == 16 and int(key, 16) >= 0 for key in library.runs())
    with pytest.raises(MissingError, match="no such run"):
        library.path("0" * 16)


def test_a_run_itself_may_be_the_folder(made):
    library = Library(made / "ga")
    assert [library.name(key) for key in library.runs()] == ["ga"]
    assert asked(library, "ga", about_run.row).generations == 6


def test_a_row_says_where_a_run_stands(library, made):
    row = asked(library, "ga", about_run.row)
    with Store.open(made / "ga") as store:
        reports, totals, counted = store.reports(), store.totals(), store.count()
    assert (row.generations, row.frames, row.steps) == totals[:3]
    assert row.evaluations == counted[1]
    assert row.sparkline == [report.elite for report in reports]
    assert row.best == max(report.elite for report in reports)
    assert row.champion == reports[-1].champion
    assert row.state == "finished"
    assert row.unplayable.startswith("This run imports games")
    begun = asked(library, "begun", about_run.row)
    assert (begun.state, begun.generations, begun.best, begun.champion) == (
        "stopped",
        0,
        None,
        None,
    )
    assert asked(library, "</script>/seed-1", about_run.row).title == "small"


def test_curves_are_the_reports_and_keep_both_ends_when_thinned(library, made):
    whole = asked(library, "ga", about_run.curves, 100).columns
    with Store.open(made / "ga") as store:
        progress = store.progress()
    assert whole["mean"] == [report.mean for report, _ in progress]
    assert whole["seconds"] == [totals.seconds for _, totals in progress]
    took = np.diff([0, *whole["seconds"]])
    assert whole["frames_per_second"] == pytest.approx(np.diff([0, *whole["frames"]]) / took)
    thin = asked(library, "ga", about_run.curves, 3).columns
    assert thin["generation"] == [0, 2, 5]
    assert thin["elite"] == [progress[i][0].elite for i in (0, 2, 5)]
    assert asked(library, "begun", about_run.curves, 3).columns["mean"] == []


@pytest.mark.parametrize("name", ["ga", "es", "brittle"])
def test_bands_are_quantiles_of_the_population(library, made, name):
    columns = asked(library, name, about_run.bands, 100).columns
    with Store.open(made / name) as store:
        reports = store.reports()
        for place, generation in enumerate(columns["generation"]):
            # The last of a strategy is its centre.
            scored = played(store, generation)
            some = [s for s in scored if name == "ga" or s.number < 4]
            means = [math.fsum(s.returns) / len(s.returns) for s in some]
            expected = np.quantile(means, [0.05, 0.25, 0.5, 0.75, 0.95])
            found = [columns[q][place] for q in ("q05", "q25", "q50", "q75", "q95")]
            assert found == pytest.approx(expected)
    assert columns["generation"] == list(range(6 if name != "brittle" else 4))
    assert columns["q50"] == pytest.approx([report.median for report in reports])


@pytest.mark.parametrize("name", ["ga", "brittle"])
def test_a_population_is_everybody_who_played(library, made, name):
    with Store.open(made / name) as store:
        report = max(store.reports(), key=lambda report: report.failures)
        expected = played(store, report.generation)
        means = fitness(store, report.generation)
    assert (report.failures > 0) == (name == "brittle")
    found = asked(library, name, about_run.population, report.generation, "steps", "fitness")
    assert found.individual == [scored.id for scored in expected]
    assert found.x == [sum(scored.steps) for scored in expected]
    assert found.y == pytest.approx(means)
    assert (found.champion, found.failures) == (report.champion, report.failures)
    numbers = asked(library, name, about_run.population, report.generation, "lowest", "episodes")
    assert numbers.x == [min(scored.returns) for scored in expected]
    assert numbers.y == [len(scored.returns) for scored in expected]


def test_what_is_not_finished_or_not_recorded_is_refused(library):
    with pytest.raises(MissingError, match="generation 6: is not finished"):
        asked(library, "ga", about_run.population, 6, "steps", "fitness")
    with pytest.raises(InputError, match="height: is not recorded; there are fitness, lowest"):
        asked(library, "ga", about_run.population, 0, "height", "fitness")


def test_behaviours_can_be_drawn(tmp_path):
    run(tmp_path / "placed", small({"stop.generations": 2, "task.name": "placed"}))
    library = Library(tmp_path)
    found = asked(library, "placed", about_run.population, 1, "behaviour.0", "behaviour.1")
    with Store.open(tmp_path / "placed") as store:
        behaviours = [result.behaviour for result in store.results(1, 0)]
    assert list(zip(found.x, found.y, strict=True)) == [b[:2] for b in behaviours]
    assert f"behaviour.{len(behaviours[0])}" not in found.names


@pytest.mark.parametrize("name", ["ga", "es", "brittle"])
def test_a_lineage_is_that_of_the_command_line(library, made, name):
    with Store.open(made / name) as store:
        champion = store.reports()[-1].champion
        expected = history.lineage(store, champion)
    found = asked(library, name, about_individual.lineage, champion[:6])
    assert found.individual == champion
    for one, other in zip(found.ancestors, expected, strict=True):
        gene = other.gene
        assert (one.id, one.generation, one.episodes) == other[:2] + other[3:4]
        assert (one.mean, one.gain) == pytest.approx(other[4:])
        assert (one.seed, one.operator) == ((gene.seed, gene.operator) if gene else (None, None))


def test_branches_are_the_parents_whose_line_ended(library, made):
    with Store.open(made / "ga") as store:
        champion = store.reports()[-1].champion
        line = {born.id for born in store.ancestry(champion)}
        everybody = {scored.id for scored in store.scores()}
        ancestries = [store.ancestry(name) for name in everybody]
        known = history.standings(store.scores())
    parents = {born[-2].id: born for born in ancestries if len(born) > 1}
    branches = asked(library, "ga", about_individual.lineage, champion).branches
    assert set(branches.id) == set(parents) - line
    assert branches.id, "the run is too small to have any"
    by_id = {born[-1].id: born for born in ancestries}
    for at, name in enumerate(branches.id):
        before = by_id[name][-2].id if len(by_id[name]) > 1 else ""
        assert branches.parent[at] == before
        assert branches.mean[at] == pytest.approx(known[name].mean)
        if before:
            assert branches.parent_mean[at] == pytest.approx(known[before].mean)


@pytest.mark.parametrize("name", ["ga", "es"])
def test_an_individual_has_its_genome_and_every_episode(library, made, name):
    with Store.open(made / name) as store:
        champion = store.reports()[2].champion
        genome = store.genome(champion)
        scored = [s for s in store.scores() if s.id == champion]
        children = [i for i in {s.id for s in store.scores()} if _parent(store, i) == champion]
    found = asked(library, name, about_individual.individual, champion)
    assert [(g.seed, g.sigma, g.operator) for g in found.genes] == [
        tuple(g) for g in _plain(genome)
    ]
    assert [e.score for e in found.episodes] == [v for s in scored for v in s.returns]
    assert [e.steps for e in found.episodes] == [v for s in scored for v in s.steps]
    assert found.mean == pytest.approx(np.mean([e.score for e in found.episodes]))
    assert found.children == len(children)
    assert found.root.type == ("birth" if name == "ga" else "snapshot")
    assert found.parent == _parent_of(made / name, champion)


def _plain(genome):
    return [(gene.seed, gene.sigma, gene.operator) for gene in genome.genes]


def _parent(store, name):
    line = store.ancestry(name)
    return line[-2].id if len(line) > 1 else None


def _parent_of(folder, name):
    with Store.open(folder) as store:
        return _parent(store, name)


def test_one_that_failed_says_why(library, made):
    with Store.open(made / "brittle") as store:
        failed = next(scored for scored in store.scores() if scored.failure)
    found = asked(library, "brittle", about_individual.individual, failed.id)
    assert failed.failure in found.failure


def test_nobody_has_an_unknown_id(library):
    for start in ("0000", "ffff0000ffff0000", "g"):
        with pytest.raises(MissingError):
            asked(library, "ga", about_individual.individual, start)


def test_cards_are_the_best_champions_each_once(library, made):
    cards = asked(library, "ga", about_individual.cards, 2)
    with Store.open(made / "ga") as store:
        last = {report.champion: report.elite for report in store.reports()}
        ages = {name: len(store.genome(name).genes) for name in last}
    best = sorted(last.values(), reverse=True)[:2]
    assert [card.elite for card in cards] == best
    assert all(last[card.id] == card.elite and ages[card.id] == card.genes for card in cards)


def test_a_run_that_goes_on_is_read_on(tmp_path):
    folder = begin(tmp_path / "run", small())
    library = Library(tmp_path)
    for generations in (2, 3, 5):
        go_on(folder, {"stop.generations": generations})
        assert len(asked(library, "run", about_run.curves, 100).columns["best"]) == generations
        columns = asked(library, "run", about_run.bands, 100).columns
        assert columns["generation"] == list(range(generations))
    whole = Library(tmp_path)
    assert asked(whole, "run", about_run.bands, 100).columns == columns


def test_without_a_barrier_a_generation_is_what_arrived_in_it(tmp_path):
    rolling = ALGORITHMS["ga"] | {"name": "async-ga"}
    folder = begin(tmp_path / "run", small({"stop.generations": 1, "algorithm": rolling}))
    live = Library(tmp_path)
    with Late() as backend:
        for generations in range(1, 9):
            changes = {"stop.generations": generations}
            resolved = specs.resolve(specs.read(folder / "spec.toml", changes), trust=True)
            loop.evolve(folder, resolved, backend)
            asked(live, "run", about_run.bands, 100)
    with Store.open(folder) as store:
        reports, arrivals = store.reports(), list(store.arrivals())
    ends = np.cumsum([report.evaluations for report in reports])
    assert any(  # stragglers
        arrival.result.key.generation < generation
        for generation, end in enumerate(ends)
        for arrival in arrivals[end - reports[generation].evaluations : end]
    )
    fresh = Library(tmp_path)
    bands = asked(live, "run", about_run.bands, 100).columns
    assert bands == asked(fresh, "run", about_run.bands, 100).columns
    assert bands["q50"] == pytest.approx([report.median for report in reports])
    for report in reports:
        found = asked(live, "run", about_run.population, report.generation, "number", "fitness")
        assert np.mean(found.y) == pytest.approx(report.mean)
    champion = reports[-1].champion
    with Store.open(folder) as store:
        expected = history.lineage(store, champion)
    line = asked(live, "run", about_individual.lineage, champion)
    told = {a.id for a in arrivals[: ends[-1]]}
    assert [one.id for one in line.ancestors] == [one.id for one in expected]
    assert all(one.episodes > 0 for one in line.ancestors if one.id in told)
    assert json(line) == json(asked(fresh, "run", about_individual.lineage, champion))
    workers = asked(live, "run", about_run.workers)
    assert sum(worker.evaluations for worker in workers.workers) == reports[-1].evaluations


def test_of_a_pruned_run_there_are_no_parts_shown_as_wholes(tmp_path, made):
    prune.prune(made / "ga", tmp_path / "pruned", trust=True)
    library = Library(tmp_path)
    row = asked(library, "pruned", about_run.row)
    assert (row.pruned, row.generations) == (6, 6)
    assert len(asked(library, "pruned", about_run.curves, 100).columns["mean"]) == 6
    assert asked(library, "pruned", about_run.bands, 100).columns["generation"] == []
    assert asked(library, "pruned", about_run.workers).workers == []
    with pytest.raises(MissingError, match="only a part of it was kept by prune"):
        asked(library, "pruned", about_run.population, 5, "steps", "fitness")
    assert asked(library, "pruned", about_individual.individual, row.champion).id == row.champion


def test_of_a_huge_population_some_are_shown(library, monkeypatch):
    whole = asked(library, "ga", about_run.population, 3, "number", "fitness")
    monkeypatch.setattr(about_run, "MAX_POINTS", 4)
    some = asked(library, "ga", about_run.population, 3, "number", "fitness")
    assert (len(some.x), some.evaluations) == (3, whole.evaluations)
    assert some.x == whole.x[::2]


def test_an_older_copy_of_a_run_is_read_anew(tmp_path):
    folder = begin(tmp_path / "run", small())
    go_on(folder, {"stop.generations": 2})
    shutil.copytree(folder, tmp_path / ".before")
    go_on(folder, {"stop.generations": 4})
    library = Library(tmp_path)
    assert asked(library, "run", about_run.row).generations == 4
    shutil.rmtree(folder)
    (tmp_path / ".before").rename(folder)
    assert asked(library, "run", about_run.row).generations == 2
    assert asked(library, "run", about_run.bands, 9).columns["generation"] == [0, 1]


def test_calls_about_one_run_do_not_pile_up(library):
    key = key_of(library, "ga")
    with ThreadPoolExecutor(WAITING) as pool, library.open(key):
        # One has it open, all but one others wait, and one more is sent away.
        calls = [pool.submit(asked, library, "ga", about_run.row) for _ in range(WAITING)]
        done, _ = wait(calls, 60, FIRST_COMPLETED)
        assert [type(call.exception()) for call in done] == [Busy]
        row = Table(library)._row(key)
        assert row.error.startswith("16 calls about this run are waiting")


def test_rows_are_made_anew_when_a_run_has_changed(tmp_path):
    folder = begin(tmp_path / "run", small())
    library = Library(tmp_path)
    table = Table(library)
    for generations in (1, 3):
        go_on(folder, {"stop.generations": generations})
        assert [row.generations for row in table.rows()] == [generations]
    for path in folder.iterdir():
        os.utime(path, (10**9, 10**9))
    first = table.rows()[0]
    assert table.rows()[0] is first
    shutil.rmtree(folder)
    library._looked = -9.0
    assert table.rows() == []


def test_names_and_files_may_be_odd(made, tmp_path):
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copytree(made / "ga", odd)
    for name, spoil in {
        "fifo": lambda folder: os.mkfifo(folder / "lock"),
        "folder": lambda folder: (folder / "spec.toml").mkdir(),
        "bare": lambda folder: None,
    }.items():
        shutil.copytree(made / "ga", tmp_path / name)
        (tmp_path / name / "lock").unlink()
        if name != "fifo":
            (tmp_path / name / "spec.toml").unlink()
        spoil(tmp_path / name)
    library = Library(tmp_path)
    rows = {row.name: row for row in Table(library).rows()}
    assert rows["caf\ufffd"].generations == 6
    assert rows["fifo"].error == "fifo/lock: is a link or of another kind, and not followed"
    assert rows["folder"].error.startswith("folder/spec.toml: is a link or of another kind")
    assert "spec.toml" in rows["bare"].error
    assert {card.name for card in gallery(library, "", 9).cards} == {"caf\ufffd"}


def test_the_gallery_has_the_best_of_every_task_first(library):
    found = gallery(library, "", 2)
    everything = gallery(library, "", 100)
    assert len(found.cards) == 2 < found.total == len(everything.cards)
    assert {card.task for card in found.cards} == set(found.tasks) == {"brittle", "positive"}
    for task in found.tasks:
        best = max(card.elite for card in everything.cards if card.task == task)
        assert [card.elite for card in found.cards if card.task == task] == [best]


def test_another_run_in_the_same_folder_is_another(tmp_path):
    run(tmp_path / "run", small())
    library = Library(tmp_path)
    before = asked(library, "run", about_run.bands, 100)
    shutil.rmtree(tmp_path / "run")
    run(tmp_path / "run", small({"seed": 8}))
    after = asked(library, "run", about_run.bands, 100)
    assert after.columns["q50"] != before.columns["q50"]
    assert after == asked(Library(tmp_path), "run", about_run.bands, 100)


def test_pieces_of_an_index_are_the_whole(library, monkeypatch):
    champion = asked(library, "ga", about_run.row).champion
    whole = asked(library, "ga", about_individual.lineage, champion)
    bands = asked(library, "ga", about_run.bands, 100)
    monkeypatch.setattr("germline.dashboard.evaluations.PIECE", 5)
    monkeypatch.setattr("germline.dashboard.evaluations.PATIENCE", 0)
    other = Library(library.folder)
    with other.open(key_of(other, "ga")) as view:
        first = about_individual.lineage(view, champion)
    assert 0 < first.read < 1
    assert [a.id for a in first.ancestors] == [a.id for a in whole.ancestors]
    assert asked(other, "ga", about_run.bands, 100) == bands
    assert json(asked(other, "ga", about_individual.lineage, champion)) == json(whole)


def test_indices_of_runs_not_looked_at_lately_make_room(made, monkeypatch):
    library = Library(made)
    asked(library, "ga", about_run.bands, 100)
    monkeypatch.setattr("germline.dashboard.library.KEPT", 0)
    asked(library, "es", about_run.bands, 100)
    assert library._pasts[key_of(library, "ga")].index.size == 0
    assert library._pasts[key_of(library, "es")].index.size > 0


def test_an_index_of_nothing_knows_nobody():
    index = Index()
    known = index.about(np.array([5, 3], np.int64))
    assert known.episodes.tolist() == [0, 0]
    assert np.isnan(known.mean).all()
    assert index.bands([0, 1]) == {}
    assert index.children(5) == 0


def test_an_old_store_is_read(tmp_path):
    golden_store(tmp_path)
    library = Library(tmp_path)
    row = asked(library, "old", about_run.row)
    assert row.generations > 0
    found = asked(library, "old", about_individual.individual, row.champion)
    assert {episode.end for episode in found.episodes} == {""}


def test_a_damaged_run_does_not_hide_the_others(made, tmp_path):
    shutil.copytree(made / "ga", tmp_path / "ga")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.db").write_bytes(b"no database" * 100)
    library = Library(tmp_path)
    assert [library.name(key) for key in library.runs()] == ["bad", "ga"]
    with pytest.raises(InputError, match="cannot be read"):
        asked(library, "bad", about_run.row)
    assert asked(library, "ga", about_run.row).generations == 6


@pytest.mark.parametrize("part", ["run.db", "spec.toml", "blobs", ""])
def test_links_out_of_the_folder_are_not_followed(made, tmp_path, part):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    shutil.copytree(made / "es", outside)
    if part:
        shutil.copytree(outside, inside / "run")
        target = inside / "run" / part
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    link = inside / "run" / part if part else inside / "run"
    link.symlink_to(outside / part)
    library = Library(inside)
    for key in library.runs():
        with pytest.raises(MissingError, match="is a link"), library.open(key):
            pass
    assert len(library.runs()) == (0 if part in ("", "run.db") else 1)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a folder; runs are begun with"):
        Library(tmp_path / "none")
