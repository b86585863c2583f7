"""The GA without a barrier: selection rolls forward after so many results, whoever they are of.

A generation begins when its parents are chosen, and any number of their children may be asked for
while it lasts. It ends when `population` individuals have arrived, stragglers of earlier ones among
them: those that arrived are its window, and the best of the window and the elite are the next
parents. Everything follows from the order of arrival, so a log of arrivals replays a lineage.

Candidates play again beside it. They are chosen at the end of a generation, from its window and the
elite; when the last of them has arrived they give a new elite, which counts from the next roll on.
While they play, no others are chosen.
"""

import itertools
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from germline.algorithms import async_state, generational, progress
from germline.algorithms.async_state import Past, Rolling, Trial
from germline.algorithms.ga import GA
from germline.algorithms.generational import CANDIDATES, POPULATION, Scored
from germline.algorithms.protocols import Blobs, Report, State
from germline.genome import Genome, PolicyRef
from germline.messages import Evaluation, Key, Request, Result

REMEMBERED = 100  # generations whose stragglers can still become parents


class AsyncGA(GA, frozen=True, kw_only=True):
    """The settings of `GA`; `population` is how many arrivals a generation lasts.

    Of equals the one with the lower key comes first, however late it arrived. A straggler of more
    than `REMEMBERED` generations ago counts as played and is not selected. If all candidates fail,
    the elite stays.
    """

    asynchronous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.refuse_selection("async-ga selects by fitness alone")
        super().__post_init__()

    def start(self, seed: int, policy: PolicyRef, run: str = "") -> State:
        """Give the state before the first arrival."""
        return Rolling(seed=seed, policy=policy, run=run)

    def ask(self, state: State, count: int | None = None) -> list[Request]:
        """Ask for candidates that were not yet told, then for `count` children.

        Without a count, for as many children as are left until the next roll.
        """
        total = self.population - len(state.window) if count is None else count
        for number in sorted(state.told):
            total += number < total
        seeds = progress.episode_seeds(state, total, self.episodes)
        children = progress.requests(self, state, self.born(state, range(total)), seeds)
        return [*(super().ask(_phase(state)) if state.trial else ()), *children]

    def tell(self, state: State, results: Sequence[Result]) -> tuple[State, Report | None, Blobs]:
        """Take results in as they arrived; the last one of a window rolls on."""
        report = None
        for result in results:
            if report is not None:
                raise ValueError(f"{result.key} was told together with arrivals before a report")
            state = self._arrived(state, result)
            if len(state.window) == self.population:
                state, report = self._rolled(state)
        return state, report, {} if report is None else self.blobs(state)

    def individuals(self, state: State, keys: Sequence[Key]) -> list[Genome | None]:
        """Give who has these keys; None for those that are forgotten."""
        found: dict[Key, Genome] = {}
        if state.trial is not None:
            places = enumerate(state.trial.genomes)
            generation = state.trial.generation
            found = {Key(state.run, generation, CANDIDATES, n): genome for n, genome in places}
        parents = {n: past.parents for n, past in state.past.items()}
        parents[state.generation] = state.parents
        children = sorted(key for key in keys if key.phase == POPULATION)
        for generation, group in itertools.groupby(children, lambda key: key.generation):
            if generation in parents:
                same = list(group)
                born = self.born(
                    generational.State(
                        seed=state.seed,
                        policy=state.policy,
                        generation=generation,
                        parents=parents[generation],
                    ),
                    [key.number for key in same],
                )
                found.update(zip(same, born, strict=True))
        return [found.get(key) for key in keys]

    def blobs(self, state: State) -> Blobs:
        """The statistics of observations, for children and for candidates, if they are used."""
        earlier = {} if state.trial is None else progress.context_blobs(_phase(state))
        return {**earlier, **progress.context_blobs(state)}

    def encode(self, state: State) -> bytes:
        """Write a state."""
        return async_state.encoded(state)

    def decode(self, data: bytes, policy: PolicyRef) -> State:
        """Read a state back."""
        return async_state.decoded(data, policy)

    def _arrived(self, state: Rolling, result: Result) -> Rolling:
        """Take one result in."""
        key = result.key
        if key.run != state.run or not 0 <= key.generation <= state.generation:
            raise ValueError(f"{key} was told in generation {state.generation} of {state.run!r}")
        if isinstance(result, Evaluation) and not result.returns:
            raise ValueError(f"{key} has no returns")
        changed = msgspec.structs.replace(state, arrived=state.arrived + 1)
        if key.phase == CANDIDATES:
            return self._tried(changed, result)
        past = state.past.get(key.generation)
        own = key.generation == state.generation
        if key.number in (state.told if own else past.told if past else ()):
            raise ValueError(f"{key} was told before")
        if own:
            told = {**state.told, key.number: result}
            return msgspec.structs.replace(changed, told=told, window=(*state.window, result))
        if past is None:
            return msgspec.structs.replace(changed, beside=(*state.beside, result))
        known = {**state.past, key.generation: Past(past.parents, past.told | {key.number})}
        return msgspec.structs.replace(changed, past=known, window=(*state.window, result))

    def _tried(self, state: Rolling, result: Result) -> Rolling:
        """Take in how a candidate did; the last of them gives the elite."""
        key, trial = result.key, state.trial
        if trial is None or key.generation != trial.generation:
            raise ValueError(f"{key} was told, but its generation has no candidates that play")
        if not 0 <= key.number < len(trial.genomes):
            raise ValueError(f"{key} was told, but only {len(trial.genomes)} were asked for")
        if key.number in trial.told:
            raise ValueError(f"{key} was told before")
        told = {**trial.told, key.number: result}
        state = msgspec.structs.replace(state, beside=(*state.beside, result))
        if len(told) < len(trial.genomes):
            return msgspec.structs.replace(state, trial=msgspec.structs.replace(trial, told=told))
        elite = self.tried(trial.genomes, told)[: self.elites] or state.elite
        return msgspec.structs.replace(state, trial=None, elite=elite)

    def _rolled(self, state: Rolling) -> tuple[Rolling, Report]:
        """Choose parents from a full window, and perhaps candidates: the next generation."""
        window = dict(enumerate(sorted(state.window, key=lambda result: result.key)))
        values = progress.fitness(window)
        progress.refuse_ruin(msgspec.structs.replace(state, told=window), values)
        ranked = progress.best_first(values)
        few = ranked[: max(self.wanted() + self.elites, self.candidates)]
        best = [
            Scored(genome, float(values[place]))
            for place, genome in zip(
                few, self.individuals(state, [window[place].key for place in few]), strict=True
            )
            if genome is not None
        ]
        elite, trial = state.elite, state.trial
        if not self.candidates:
            elite = self.carried([*best[: self.elites], *elite])
        elif self.elites and trial is None:
            fresh = best[: self.candidates - len(elite)]
            genomes = tuple(scored.genome for scored in (*fresh, *elite))
            trial = Trial(state.generation, genomes, {}, state.length, state.moments)
        names = {scored.genome.digest for scored in elite}
        others = [scored.genome for scored in best if scored.genome.digest not in names]
        every = (*state.window, *state.beside)
        champion = elite[0] if elite else best[0]
        if self.elites and self.candidates and not elite:
            # Nobody has played again yet, and one lucky episode must not end a run.
            champion = Scored(champion.genome, float(values[ranked].mean()))
        report = self.report(state, values[ranked], every, champion)
        past = {**state.past, state.generation: Past(state.parents, frozenset(state.told))}
        following = progress.next_generation(
            state,
            state.window,
            every,
            window=(),
            beside=(),
            parents=self.chosen([scored.genome for scored in elite], others),
            elite=elite,
            past=dict(itertools.islice(past.items(), max(0, len(past) - REMEMBERED), None)),
            trial=trial,
        )
        return following, report


def _phase(state: Rolling) -> generational.State:
    """The candidates' phase as a generation with a barrier would have it."""
    trial = state.trial
    assert trial is not None
    return generational.State(
        seed=state.seed,
        policy=state.policy,
        run=state.run,
        generation=trial.generation,
        phase=CANDIDATES,
        told=trial.told,
        candidates=trial.genomes,
        length=trial.length,
        moments=trial.moments,
    )
