import math

import pytest

from germline.algorithms.protocols import Report
from germline.errors import InputError
from germline.run.stop import Rule, Stop, Totals, left, met, rules

NOTHING = Totals(0, 0, 0, 0.0, 0.0)
REPORT = Report(1, 8, 0, 12.0, 9.0, 9.5, 11.0, "0" * 16, 20, 40, 0.5, None)
NOW = Totals(generations=2, frames=100, steps=50, seconds=10.0, cost=0.5)


def test_rules_are_those_that_were_given_in_one_order():
    stop = Stop(cost=2.0, frames=1000, score=20.0, generations=10, hours=1.0)
    assert list(rules(stop, REPORT, NOW)) == [
        Rule("score", 11.0, 20.0),
        Rule("generations", 2, 10),
        Rule("frames", 100, 1000),
        Rule("hours", 10 / 3600, 1.0),
        Rule("cost", 0.5, 2.0),
    ]
    assert list(rules(Stop(), REPORT, NOW)) == []


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"score": 11.0}, "score 11 of 11"),
        ({"score": -1.5}, "score 11 of -1.5"),
        ({"generations": 2}, "generations 2 of 2"),
        ({"frames": 99}, "frames 100 of 99"),
        ({"hours": 0.002}, "hours 0.00277778 of 0.002"),
        ({"cost": 0.5}, "cost 0.5 of 0.5"),
        ({"generations": 1, "score": 3.0}, "score 11 of 3"),
    ],
    ids=str,
)
def test_the_first_rule_that_holds_is_told(rule, words):
    assert met(Stop(**rule), REPORT, NOW) == words


@pytest.mark.parametrize(
    "rule",
    [{}, {"score": 11.5}, {"score": math.inf}, {"generations": 3}, {"frames": 101}, {"hours": 1}],
    ids=str,
)
def test_no_rule_holds_before_its_time(rule):
    assert met(Stop(**rule), REPORT, NOW) is None


def test_what_is_left_is_up_to_the_nearest_rule():
    # Ten seconds brought 2 generations, 100 frames and a cost of 0.5.
    assert left(Stop(generations=10), REPORT, NOTHING, NOW) == (40.0, "generations")
    assert left(Stop(frames=1000), REPORT, NOTHING, NOW) == (90.0, "frames")
    assert left(Stop(cost=0.75), REPORT, NOTHING, NOW) == (5.0, "cost")
    assert left(Stop(hours=1.0), REPORT, NOTHING, NOW) == (pytest.approx(3590.0), "hours")
    every = Stop(generations=10, frames=1000, hours=1.0, score=20.0)
    assert left(every, REPORT, NOTHING, NOW) == (40.0, "generations")


def test_what_is_left_follows_the_pace_between_two_moments():
    before = Totals(generations=1, frames=90, steps=45, seconds=8.0, cost=0.5)
    assert left(Stop(generations=3), REPORT, before, NOW) == (2.0, "generations")
    assert left(Stop(frames=110), REPORT, before, NOW) == (2.0, "frames")
    assert left(Stop(cost=9.0), REPORT, before, NOW) is None  # it did not move


def test_what_is_left_is_unknown_without_a_pace_and_for_a_score():
    assert left(Stop(generations=10), REPORT, NOW, NOW) is None
    assert left(Stop(score=20.0), REPORT, NOTHING, NOW) is None
    assert left(Stop(), REPORT, NOTHING, NOW) is None


def test_nothing_is_left_of_a_rule_that_holds():
    assert left(Stop(generations=2), REPORT, NOTHING, NOW) == (0.0, "generations")


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="nan"):
        Stop(score=math.nan)
