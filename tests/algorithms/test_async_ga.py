"""Evolution without a barrier: what follows from any order of arrivals."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolution import POLICY, scored
from germline import algorithms, policies
from germline.algorithms import GA, AsyncGA, async_ga, async_state
from germline.errors import InputError
from germline.messages import Evaluation, Failure, Sums

SMALL = AsyncGA(population=6, parents=3, candidates=3, candidate_episodes=2, sigma=0.5)
PLAIN = AsyncGA(population=6, parents=3, candidates=0, sigma=0.5)
ELITES = AsyncGA(
    population=4, parents=3, elites=2, candidates=4, candidate_episodes=2, adaptive_cap=True
)
KINDS = {"one elite": SMALL, "no candidates": PLAIN, "two elites": ELITES}

orders = st.randoms(use_true_random=False)


def fitness(request):
    """A number that an individual has, whenever it arrives."""
    return int(request.genome.digest[:4], 16) % 50


def answer(request, value=None):
    """How a request did; its length depends on who plays, so that adaptive caps move."""
    count = len(request.episode_seeds)
    value = float(fitness(request) if value is None else value)
    steps = (10 + fitness(request),) * count
    return Evaluation(request.key, (value,) * count, steps, steps, "t" * count)


def wander(algorithm, rng, arrivals, flight=9, broken=0.1, known=None):
    """Arrivals in some order, with `flight` under way: (state before, result, report, after).

    Who was asked for is added to what is `known`, by its key.
    """
    state, out = algorithm.start(1, POLICY, "run"), {}
    known = {} if known is None else known
    for _ in range(arrivals):
        if len(out) < flight // 2:
            asked = [r for r in algorithm.ask(state, len(out) + flight) if r.key not in out]
            out.update((r.key, r) for r in asked[: flight - len(out)])
            known.update((r.key, r.genome) for r in asked)
        # Mostly one of the first that were asked for, sometimes any.
        place = rng.randrange(len(out)) if rng.random() < 0.3 else 0
        request = out.pop(list(out)[place])
        # Not all of a window, which would be the end.
        fails = rng.random() < broken and any(isinstance(r, Evaluation) for r in state.window)
        result = Failure(request.key, "it broke") if fails else answer(request)
        after, report, _ = algorithm.tell(state, [result])
        yield state, result, report, after
        state = after


def told(algorithm, results, state=None):
    """The state after results, told one by one."""
    state = state or algorithm.start(1, POLICY, "run")
    for result in results:
        state = algorithm.tell(state, [result])[0]
    return state


def rolled(algorithm, generations, value=None):
    """A state at the beginning of a generation, everybody having arrived in order."""
    state = algorithm.start(1, POLICY, "run")
    while state.generation < generations:
        asked = algorithm.ask(state)
        state = algorithm.tell(state, [answer(r, value and value(r)) for r in asked])[0]
    return state


@settings(max_examples=20)
@given(orders, st.sampled_from(list(KINDS.values())))
def test_it_rolls_after_so_many_arrivals_in_any_order(rng, algorithm):
    window = beside = generation = 0
    for state, result, report, after in wander(algorithm, rng, 60):
        window, beside = window + (result.key.phase == 0), beside + (result.key.phase == 1)
        assert (report is not None) == (window == algorithm.population)
        assert after.arrived == state.arrived + 1
        if report is not None:
            assert (report.generation, after.generation) == (generation, generation + 1)
            assert report.evaluations == window + beside
            assert 1 <= len(after.parents) <= algorithm.parents
            assert (after.window, after.beside, after.told) == ((), (), {})
            assert report.best >= report.mean
            generation, window, beside = generation + 1, 0, 0
    assert generation


@settings(max_examples=20)
@given(orders, st.sampled_from(list(KINDS.values())))
def test_a_log_of_arrivals_replays_in_any_parts(rng, algorithm):
    steps = list(wander(algorithm, rng, 60))
    log = [result for _, result, _, _ in steps]
    rolls = [n + 1 for n, (*_, report, _) in enumerate(steps) if report is not None]
    state, done = algorithm.start(1, POLICY, "run"), 0
    while done < len(log):
        most = min((r for r in rolls if r > done), default=len(log))
        until = rng.randint(done + 1, most)
        state, _, _ = algorithm.tell(state, log[done:until])
        assert state == steps[until - 1][3]
        done = until


@settings(max_examples=20)
@given(orders, st.sampled_from(list(KINDS.values())))
def test_a_state_that_was_kept_goes_on_as_if_it_had_not_been(rng, algorithm):
    steps = list(wander(algorithm, rng, 50))
    log = [result for _, result, _, _ in steps]
    at = rng.randrange(len(steps))
    state = steps[at][0]
    kept = algorithm.decode(algorithm.encode(state), POLICY)
    assert kept == state
    assert algorithm.ask(kept, 9) == algorithm.ask(state, 9)
    final = steps[-1][3]
    assert told(algorithm, log[at:], kept) == final
    assert algorithm.encode(told(algorithm, log[at:], kept)) == algorithm.encode(final)


@settings(max_examples=20)
@given(orders, st.sampled_from(list(KINDS.values())))
def test_who_was_asked_for_can_be_told_from_the_key(rng, algorithm):
    """Stragglers too: whoever becomes a parent is the one that was evaluated."""
    known = {}
    for state, result, report, after in wander(algorithm, rng, 60, known=known):
        assert algorithm.individuals(state, [result.key]) == [known[result.key]]
        if report is not None:
            living = {genome.digest for genome in known.values()}
            assert {genome.digest for genome in after.parents} <= living


@given(orders)
def test_within_a_window_only_who_is_in_it_counts(rng):
    state = rolled(PLAIN, 1)
    results = [answer(request) for request in PLAIN.ask(state)]
    wanted = PLAIN.tell(state, results)
    rng.shuffle(results)
    assert PLAIN.tell(state, results) == wanted


def test_any_number_may_be_asked_for():
    state = PLAIN.start(1, POLICY, "run")
    assert [r.key.number for r in PLAIN.ask(state)] == list(range(6))
    assert [r.key.number for r in PLAIN.ask(state, 20)] == list(range(20))
    some = [r for r in PLAIN.ask(state, 20) if r.key.number in (0, 3, 17)]
    state = told(PLAIN, map(answer, some))
    assert [r.key.number for r in PLAIN.ask(state, 5)] == [1, 2, 4, 5, 6]
    assert [r.key.number for r in PLAIN.ask(state)] == [1, 2, 4]
    assert 17 not in {r.key.number for r in PLAIN.ask(state, 30)}
    assert PLAIN.ask(state, 0) == []


def test_the_settings_are_those_of_the_ga():
    assert msgspec.structs.asdict(AsyncGA()) == msgspec.structs.asdict(GA())
    with pytest.raises(InputError, match="elites: 4 are more than the 3 parents"):
        AsyncGA(elites=4, parents=3)


def test_a_straggler_is_a_parent_in_the_window_in_which_it_arrives():
    start = PLAIN.start(1, POLICY, "run")
    late, *others = PLAIN.ask(start, 7)
    first = told(PLAIN, map(answer, others))
    assert first.generation == 1
    asked = PLAIN.ask(first)
    results = [*[answer(r, 1) for r in asked[:3]], answer(late, 99), answer(asked[3], 1)]
    second = told(PLAIN, results, first)
    assert second.generation == 1
    second, report, _ = PLAIN.tell(second, [answer(asked[4], 1)])
    assert second.generation == 2
    assert (report.best, report.champion) == (99.0, late.genome.id)
    assert second.parents[0] == late.genome
    assert PLAIN.individuals(second, [late.key]) == [late.genome]
    with pytest.raises(ValueError, match="was told before"):
        PLAIN.tell(second, [answer(late)])


def test_a_straggler_of_long_ago_has_played_and_is_forgotten(monkeypatch):
    monkeypatch.setattr(async_ga, "REMEMBERED", 2)
    late, *others = PLAIN.ask(PLAIN.start(1, POLICY, "run"), 7)
    state = told(PLAIN, map(answer, others))
    while state.generation < 3:
        state = told(PLAIN, map(answer, PLAIN.ask(state)), state)
    assert set(state.past) == {1, 2}
    assert PLAIN.individuals(state, [late.key]) == [None]
    after, report, _ = PLAIN.tell(state, [answer(late, 99)])
    assert (report, after.window, after.arrived) == (None, (), state.arrived + 1)
    after, report, _ = PLAIN.tell(after, list(map(answer, PLAIN.ask(after))))
    assert report.evaluations == 7
    assert report.best < 99
    assert late.genome not in after.parents
    assert PLAIN.decode(PLAIN.encode(after), POLICY) == after


def test_candidates_are_the_best_of_the_window_and_then_the_elite_too():
    first = rolled(SMALL, 1, lambda r: r.key.number)
    born = [r.genome for r in SMALL.ask(SMALL.start(1, POLICY, "run"))]
    again = [r for r in SMALL.ask(first) if r.key.phase == 1]
    assert [r.genome for r in again] == [born[5], born[4], born[3]]
    assert [r.key for r in again] == [("run", 0, 1, n) for n in range(3)]
    assert all(len(r.episode_seeds) == 2 for r in again)
    # There is no elite yet, but the best have children.
    assert first.elite == ()
    assert first.parents == (born[5], born[4], born[3])
    second = rolled(SMALL, 2, lambda r: r.key.number)
    assert second.elite[0].genome == born[3]  # candidate 2, by its mean
    assert [r.genome for r in SMALL.ask(second)][2] == born[3]


def test_an_elite_counts_from_the_next_roll_on():
    state = rolled(SMALL, 1)
    again = [r for r in SMALL.ask(state) if r.key.phase == 1]
    children = [r for r in SMALL.ask(state) if r.key.phase == 0]
    state = told(SMALL, [answer(r, 10 * r.key.number) for r in again[:2]], state)
    assert state.elite == ()
    before = SMALL.ask(state)
    assert [r.key for r in before if r.key.phase == 1] == [again[2].key]
    state = told(SMALL, [answer(again[2], 5)], state)
    assert [(e.genome, e.score) for e in state.elite] == [(again[1].genome, 10.0)]
    assert state.trial is None
    assert SMALL.ask(state) == before[1:]  # the same parents as before
    state, report, _ = SMALL.tell(state, [answer(r, 1) for r in children])
    assert state.parents[0] == again[1].genome
    assert (report.elite, report.champion) == (10.0, again[1].genome.id)
    assert state.trial.genomes[-1] == again[1].genome


def test_one_lucky_episode_is_no_score_to_judge_by():
    state = SMALL.start(1, POLICY, "run")
    asked = SMALL.ask(state)
    report = SMALL.tell(state, [answer(r, 600 * (r.key.number == 4)) for r in asked])[1]
    assert (report.best, report.elite, report.champion) == (600.0, 100.0, asked[4].genome.id)
    report = PLAIN.tell(state, [answer(r, 600 * (r.key.number == 4)) for r in asked])[1]
    assert report.elite == 600.0  # it is all there is where nobody plays again


def test_no_others_are_tried_while_candidates_play():
    state = rolled(SMALL, 1)
    waiting = [r for r in SMALL.ask(state) if r.key.phase == 1]
    for generation in (2, 3):
        children = [r for r in SMALL.ask(state) if r.key.phase == 0]
        state = told(SMALL, map(answer, children), state)
        assert state.generation == generation
        # They are still those of generation 0, with its cap and statistics.
        assert [r for r in SMALL.ask(state) if r.key.phase == 1] == waiting
    state = told(SMALL, map(answer, waiting), state)
    assert state.trial is None
    state = told(SMALL, map(answer, SMALL.ask(state)), state)
    assert state.trial.generation == 3


def test_caps_and_statistics_of_candidates_are_those_of_their_generation():
    spec = policies.make("mlp", {"inputs": 2, "hidden": [3], "normalise": "observations"})
    policy = policies.reference("mlp", spec)
    algorithm = msgspec.structs.replace(SMALL, adaptive_cap=True)

    def seen(request):
        sums = Sums(5, (1.0, float(request.key.number)), (2.0, 50.0))
        return msgspec.structs.replace(answer(request), observation_sums=sums)

    state = algorithm.start(1, policy, "run")
    first = {(r.cap, r.context) for r in algorithm.ask(state)}
    for _ in range(2):
        children = [r for r in algorithm.ask(state) if r.key.phase == 0]
        state, _, blobs = algorithm.tell(state, list(map(seen, children)))
        asked = algorithm.ask(state)
        assert {(r.cap, r.context) for r in asked if r.key.phase == 1} == first
        assert not {(r.cap, r.context) for r in asked if r.key.phase == 0} & first
        assert {r.context for r in asked} == set(blobs) == set(algorithm.blobs(state))
    read = algorithm.decode(algorithm.encode(state), policy)
    assert algorithm.ask(read) == algorithm.ask(state)


def test_if_all_candidates_fail_the_elite_stays():
    state = rolled(SMALL, 2)
    before = state.elite
    broken = [Failure(r.key, "broken") for r in SMALL.ask(state) if r.key.phase == 1]
    after = told(SMALL, broken, state)
    assert after.trial is None
    assert after.elite == before


def test_without_candidates_the_elite_keeps_the_score_it_was_born_with():
    lucky = PLAIN.ask(PLAIN.start(1, POLICY, "run"))[3]
    state = rolled(PLAIN, 4, lambda r: 100 if r.key == lucky.key else r.key.number)
    assert [(e.genome, e.score) for e in state.elite] == [(lucky.genome, 100.0)]
    assert state.parents[0] == lucky.genome


def test_a_window_of_failures_is_the_end_and_half_of_one_is_not():
    state = PLAIN.start(1, POLICY, "run")
    failures = [Failure(r.key, "the game broke") for r in PLAIN.ask(state, 6)]
    kept = told(PLAIN, failures[:5])
    with pytest.raises(InputError, match="generation 0: every individual failed: the game broke"):
        PLAIN.tell(kept, failures[5:])
    after, report, _ = PLAIN.tell(kept, scored(PLAIN.ask(kept)[:1], lambda r: 2))
    assert (report.failures, report.best, len(after.parents)) == (5, 2.0, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "other"}, "was told in generation 1"),
        ({"generation": 2}, "was told in generation 1"),
        ({"generation": -1}, "was told in generation 1"),
        ({"phase": 1, "generation": 1}, "has no candidates that play"),
        ({"phase": 1, "generation": 0, "number": 3}, "but only 3 were asked for"),
        ({"generation": 0}, "was told before"),
    ],
)
def test_what_was_not_asked_for_is_refused(change, words):
    state = rolled(SMALL, 1)
    result = answer(SMALL.ask(state)[-1])
    wrong = msgspec.structs.replace(result, key=result.key._replace(**change))
    with pytest.raises(ValueError, match=words):
        SMALL.tell(state, [wrong])


def test_nothing_is_told_twice_nor_beyond_a_report():
    state = rolled(SMALL, 1)
    for request in SMALL.ask(state):
        after, _, _ = SMALL.tell(state, [answer(request)])
        with pytest.raises(ValueError, match="was told before"):
            SMALL.tell(after, [answer(request)])
    results = [answer(r) for r in SMALL.ask(state, 7)]
    with pytest.raises(ValueError, match="together with arrivals before a report"):
        SMALL.tell(state, results)


def test_a_state_is_little_more_than_its_parents():
    """Whatever is remembered of the past shares its genes."""
    algorithm = AsyncGA(population=40, parents=10, candidates=0, sigma=0.5)
    size = {}
    state = algorithm.start(1, POLICY, "run")
    while state.generation < 130:
        state = told(algorithm, map(answer, algorithm.ask(state)), state)
        size[state.generation] = len(algorithm.encode(state))
    assert len(state.past) == async_ga.REMEMBERED
    longest = max(len(genome.genes) for genome in state.parents)
    assert longest > 50
    assert size[130] < 100 * 10 * 40 + 20 * longest * 8
    assert size[130] < 1.2 * size[110]
    assert algorithm.decode(algorithm.encode(state), POLICY) == state


def test_numbers_are_kept_as_bits():
    rng = np.random.default_rng(0)
    for numbers in ([], [0], [7], [8], rng.integers(0, 500, 99).tolist()):
        assert async_state._numbers(async_state._bits(frozenset(numbers))) == frozenset(numbers)


def test_only_the_ga_does_without_a_barrier():
    assert algorithms.asynchronous("ga") == algorithms.asynchronous("async-ga") == "async-ga"
    for name in ("es", "random-search"):
        with pytest.raises(InputError, match=f"--async: {name} needs everyone of a generation"):
            algorithms.asynchronous(name)
    assert [n for n in algorithms.names() if algorithms.make(n, {}).asynchronous] == ["async-ga"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"selection": "candidates"}, "selection: only ga has it; async-ga"),
        ({"ancestors": 3}, "ancestors: only ga has it; async-ga selects by fitness alone"),
    ],
)
def test_it_selects_by_fitness_alone(settings, words):
    with pytest.raises(InputError, match=words):
        algorithms.make("async-ga", settings)
