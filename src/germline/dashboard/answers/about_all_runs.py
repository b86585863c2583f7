"""What is told of all runs at once: the table, which is asked for every two seconds, and the best.

The line of a run whose files have not changed is not made anew.
"""

from collections import defaultdict

from germline.dashboard.answers import about_individual, about_run, schema
from germline.dashboard.library import Busy, Library, MissingError
from germline.errors import InputError

PER_RUN = 3  # cards of a run


class Table:
    """The runs of a library, a line each."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._made: dict[str, tuple[object, schema.Row]] = {}

    def rows(self) -> list[schema.Row]:
        """All of them, in the order of their names."""
        found = [row for key in self._library.runs() if (row := self._row(key)) is not None]
        there = {row.key for row in found}
        self._made = {key: made for key, made in self._made.items() if key in there}
        return found

    def _row(self, key: str) -> schema.Row | None:
        """A run's line, or why it cannot be read; None if it has just gone."""
        made = self._made.get(key)
        try:
            name = self._library.name(key)
        except MissingError:
            return None
        try:
            mark = self._library.mark(key)
            if made is not None and mark is not None and made[0] == mark:
                return made[1]
            with self._library.open(key) as view:
                row = about_run.row(view)
        except Busy as error:
            return made[1] if made else schema.Row(key, name, error=str(error))
        except (InputError, OSError) as error:
            return schema.Row(key, name, error=self._library.within(error))
        self._made[key] = mark, row
        return row


def gallery(library: Library, task: str, count: int) -> schema.Gallery:
    """The best genomes of a task, or those of every task in turn: the best ones first."""
    cards: dict[str, list[schema.Card]] = defaultdict(list)
    for key in library.runs():
        try:
            with library.open(key) as view:
                for card in about_individual.cards(view, PER_RUN):
                    cards[card.task].append(card)
        except (InputError, OSError, Busy):
            continue
    ranked: list[tuple[int, schema.Card]] = []
    for name in [task] if task else sorted(cards):
        best = sorted(cards.get(name, []), key=lambda card: (-(card.elite or 0.0), card.name))
        ranked += enumerate(best)
    ranked.sort(key=lambda pair: pair[0])  # which keeps tasks in their order
    return schema.Gallery(sorted(cards), len(ranked), [card for _, card in ranked[:count]])
