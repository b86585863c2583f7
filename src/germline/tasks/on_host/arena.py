"""Host environments beside an accelerator: many individuals at once, each in a place of its own.

The places are in two halves. While the device decides for one half, the crew plays on with the
other. A lane whose episode is over has begun the next before it is looked at, and its player is
decoded into its place on the device, with all others that begin in that step.

A hand that takes long is not waited for: its places sit out until it answers. What was lost with
a hand that ended is played again, each episode in a hand of its own; one that is then lost again
is reported.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from germline.decode import Decoder
from germline.files import Arithmetic
from germline.policies.building import build
from germline.policies.protocols import PolicySpec
from germline.tasks.on_host.crew import Crew
from germline.tasks.on_host.hand import HALVES, Report, Ticket
from germline.tasks.on_host.lanes import HostTask
from germline.tasks.on_host.seats import Bout, Seats
from germline.tasks.protocols import Outcome


@dataclass
class Turn:
    """What has come of it since the last turn, by the numbers of bouts.

    `lost` are those whose process ended while it had nothing else, and the code it left.
    """

    ended: list[tuple[int, Outcome]] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Half:
    """What is played in a half, and whom it waits for."""

    seats: Seats
    playing: dict[int, int] = field(default_factory=dict)  # place → number of its bout
    begun: dict[int, int] = field(default_factory=dict)  # those that have no seat yet
    owing: set[int] = field(default_factory=set)  # hands that are at it
    out: bool = False  # it is to be decided for when they have answered

    def forget(self, number: int) -> None:
        """A bout is not played here any more."""
        self.playing = {p: n for p, n in self.playing.items() if n != number}
        self.begun = {p: n for p, n in self.begun.items() if n != number}


class Arena:
    """Plays bouts of one task and one policy; `hands` processes with `lanes` lanes in each half."""

    def __init__(
        self,
        task: HostTask,
        spec: PolicySpec,
        decoder: Decoder,
        arithmetic: Arithmetic,
        *,
        hands: int,
        lanes: int,
        imports: Sequence[str] = (),
    ) -> None:
        space = task.space()
        assert space is not None
        counting = getattr(spec, "normalise", None) == "observations"
        self.crew = Crew(task, space, hands=hands, lanes=lanes, imports=imports, counting=counting)
        places, eyes = self.crew.places, self.crew.eyes
        maker = partial(build, spec, arithmetic=arithmetic)
        self.halves = [_Half(Seats(maker, decoder, space, eyes, places)) for _ in range(HALVES)]
        self.queue: deque[Bout] = deque()
        self.apart: deque[Bout] = deque()  # to be played in a hand of their own
        self.bouts: dict[int, Bout] = {}  # with the crew

    @property
    def busy(self) -> bool:
        """Whether anything is left to play."""
        return bool(self.queue or self.apart or self.bouts)

    def add(self, bouts: Iterable[Bout]) -> None:
        """Take bouts, to be played when there is a place."""
        self.queue.extend(bouts)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Give bouts up; a hand that holds one and does not answer is ended."""
        given_up = set(numbers)
        self.queue = deque(bout for bout in self.queue if bout.number not in given_up)
        self.apart = deque(bout for bout in self.apart if bout.number not in given_up)
        for number in given_up & set(self.bouts):
            self._drop(number)

    def under_way(self) -> set[int]:
        """The bouts that have begun."""
        return {number for half in self.halves for number in half.playing.values()}

    def turn(self, wake: Any = None) -> Turn:  # noqa: ANN401 - a file
        """Go on until there may be something to tell, or somebody rings at `wake`."""
        turn = Turn()
        self._order()
        for number in self.crew.wait(wake):
            self._hear(number, turn)
        late = {number for number, hand in enumerate(self.crew.hands) if hand.late()}
        for number in late:
            if self.crew.hands[number].suspect:
                self._lose(number, turn)
        for number, half in enumerate(self.halves):
            if half.out and half.owing <= late:
                self._play(number, turn)
        return turn

    def close(self) -> None:
        """End the crew."""
        self.crew.close()

    def _order(self) -> None:
        """Send out every half that rests and has something to do."""
        for number, half in enumerate(self.halves):
            if half.out:
                continue
            tickets = self._tickets(half) if self.queue or self.apart else {}
            live = {self.crew.hand_of(place) for place in half.playing}
            # Others may have been given up while it kept a ticket for later.
            live |= {n for n, hand in enumerate(self.crew.hands) if hand.spare and not hand.owes}
            for hand in sorted((live | set(tickets)) - half.owing):
                given = [Ticket(b.number, b.seed, b.cap) for b in tickets.get(hand, ())]
                self.crew.order(hand, number, given)
                half.owing.add(hand)
                half.out = True

    def _tickets(self, half: _Half) -> dict[int, list[Bout]]:
        """Who gets which bouts: one for every free lane, and while there are many, one to spare."""
        hands = self.crew.hands
        ready = [n for n, hand in enumerate(hands) if hand.ready and not hand.late()]
        open_ = [n for n in ready if n not in half.owing]
        given = self._to_be_alone(open_)
        free = {n: self.crew.lanes - len(hands[n].spare) for n in open_ if not hands[n].alone}
        for place in half.playing:
            if (number := self.crew.hand_of(place)) in free:
                free[number] -= 1
        spare = int(len(self.queue) > sum(max(0, f) for f in free.values()) + 2 * len(hands))
        for _ in range(self.crew.lanes + spare):
            for number in free:
                if self.queue and free[number] + spare > 0:
                    free[number] -= 1
                    given.setdefault(number, []).append(self._given(self.queue))
        return given

    def _to_be_alone(self, open_: list[int]) -> dict[int, list[Bout]]:
        """What is played apart goes to hands that have nothing, and they get nothing else."""
        given = {}
        for number in open_:
            hand = self.crew.hands[number]
            if (self.apart or hand.alone) and not self._held(number):
                hand.alone = bool(self.apart)
                if self.apart:
                    given[number] = [self._given(self.apart)]
        return given

    def _given(self, queue: deque[Bout]) -> Bout:
        bout = queue.popleft()
        self.bouts[bout.number] = bout
        return bout

    def _held(self, hand: int) -> list[int]:
        """The bouts that a hand has, by number."""
        playing = [pair for half in self.halves for pair in half.playing.items()]
        begun = [number for place, number in playing if self.crew.hand_of(place) == hand]
        return [*begun, *self.crew.hands[hand].spare]

    def _hear(self, number: int, turn: Turn) -> None:
        """Take what a hand has to say; one that has ended is replaced."""
        try:
            report = self.crew.hear(number)
        except EOFError:
            self._lose(number, turn)
            return
        if report is not None:
            self._take(report, turn)
            half = self.halves[report.half]
            half.owing.discard(number)
            half.out = True  # even if the others went on without it

    def _take(self, report: Report, turn: Turn) -> None:
        half = self.halves[report.half]
        for place, number, outcome in report.ended:
            half.playing.pop(place, None)
            if self.bouts.pop(number, None) is not None:
                turn.ended.append((number, outcome))
        for place, number in report.begun:
            if number in self.bouts:  # and was not given up since
                half.playing[place] = half.begun[place] = number
        for number, reason in report.broken:
            half.forget(number)
            if self.bouts.pop(number, None) is not None:
                turn.failed.append((number, reason))

    def _lose(self, number: int, turn: Turn) -> None:
        """Another hand takes the place of one that is gone; what it had is played again.

        Unless it had one thing only, which then is to blame.
        """
        suspect = self.crew.hands[number].suspect  # of what was given up, and is not here any more
        held = self._held(number)
        for half in self.halves:
            half.owing.discard(number)
            for lost in held:
                half.forget(lost)
        bouts = [self.bouts.pop(lost) for lost in held]
        code = self.crew.replace(number)
        if len(bouts) == 1 and not suspect:
            turn.lost.append((bouts[0].number, code))
        else:
            self.apart.extend(bouts)

    def _drop(self, number: int) -> None:
        """Forget a bout that is with the crew, and have its lane left."""
        del self.bouts[number]
        for hand in range(len(self.crew.hands)):
            if number in self._held(hand):
                self.crew.hands[hand].drop(number)
        for half in self.halves:
            half.forget(number)

    def _play(self, number: int, turn: Turn) -> None:
        """Decide for a half whose lanes have been heard of, and let it rest."""
        half = self.halves[number]
        half.out = False
        begun = {place: self.bouts[n] for place, n in half.begun.items()}
        half.begun.clear()
        for place, reason in half.seats.seat(begun):
            lost = half.playing[place]
            self._drop(lost)
            turn.failed.append((lost, reason))
        places = range(self.crew.places)
        absent = [place for place in places if self.crew.hand_of(place) in half.owing]
        if not half.playing.keys() - set(absent):
            return
        actions = half.seats.decide(self.crew.shown[number], begun, absent)
        here = [place for place in places if place not in absent] if absent else slice(None)
        self.crew.actions[number, here] = actions[here]
