"""The figure: what is computed for it, and that it is drawn as a picture should be."""

import math
from xml.etree import ElementTree

import pytest

from germline.algorithms.protocols import Report
from germline.run.stop import Totals
from germline.sweep import curves, figure
from germline.sweep.figure import Line, Mark, Panel
from germline.sweep.folder import Listed
from germline.sweep.table import Row, Runs, labels, quantile, rows, to_csv


def history(scores, frames=100):
    """A run with these scores, and so many frames in every generation."""
    return [
        (
            Report(g, 1, 0, score, score, score, score, "f" * 16, frames, frames, 0.1, None),
            Totals(g + 1, (g + 1) * frames, (g + 1) * frames, g + 1.0, 0.0),
        )
        for g, score in enumerate(scores)
    ]


def cell(name, env="CartPole-v1"):
    return Listed(name, {"spec": "small", "env": env, "sigma": name}, env)


def shapes(text, kind):
    return ElementTree.fromstring(text).findall(f".//{{*}}{kind}")


def words(text):
    return [shape.text for shape in shapes(text, "text")]


def test_seeds_meet_where_all_of_them_have_been():
    steps = [curves._steps(history(scores, frames), "frames") for scores, frames in (
        ([1.0, 2.0, 3.0, 4.0], 100),  # to 400
        ([10.0, 20.0, 30.0], 150),  # to 450
        ([5.0, 6.0, 7.0, 8.0], 120),  # to 480
    )]  # fmt: skip
    line = curves.median(steps, "three")
    assert line.x == [150, 200, 240, 300, 360, 400]
    # At 240 they are in their second, first and second generation: 2, 10 and 6.
    assert line.y == [5, 5, 6, 6, 7, 7]
    assert line.band[0] == [3.0, 3.5, 4.0, 4.5, 5.0, 5.5]
    assert line.band[1] == [7.5, 7.5, 8.0, 13.0, 13.5, 13.5]


def test_a_long_run_is_drawn_with_few_points():
    steps = [curves._steps(history([float(g) for g in range(5000)]), "frames")]
    line = curves.median(steps, "long")
    assert len(line.x) == curves.MOST
    assert (line.x[0], line.x[-1], line.y[-1]) == (100, 500_000, 4999)


def test_there_is_a_panel_for_every_environment():
    gathered = [
        Runs(cell("0.1", env), {1: history([1, 2]), 2: history([2, 4])})
        for env in ("CartPole-v1", "Acrobot-v1")
    ] + [Runs(cell("0.2"), {1: history([3, 4]), 2: history([3, 4])})]
    drawn = curves.draw("mine", gathered, 2)
    assert len(shapes(drawn, "g")) == 2
    lines = shapes(drawn, "polyline")
    assert len(lines) == len(shapes(drawn, "polygon")) == 3
    # The same setting looks the same in both.
    assert lines[0].get("stroke") == lines[2].get("stroke") != lines[1].get("stroke")
    assert lines[0].get("stroke-dasharray") != lines[1].get("stroke-dasharray")
    assert words(drawn)[-2:] == ["sigma 0.1", "sigma 0.2"]
    assert "frames" in words(drawn)


def test_what_is_not_finished_is_not_in_it_and_that_is_said():
    gathered = [Runs(cell("0.1"), {1: history([1, 2])}), Runs(cell("0.2"), {})]
    drawn = curves.draw("mine", gathered, 3)
    assert len(shapes(drawn, "polyline")) == 1
    assert words(drawn)[1].endswith("; 1 of 6 runs")
    nothing = curves.draw("mine", [Runs(cell("0.1"), {})], 3)
    assert shapes(nothing, "polyline") == []
    assert words(nothing)[1].endswith("; 0 of 3 runs")


def test_runs_without_frames_or_a_common_one_are_drawn_over_generations():
    for frames in ((0, 0), (100, 900)):
        runs = {seed: history([1.0], f) for seed, f in enumerate(frames)}
        drawn = curves.draw("mine", [Runs(cell("0.1"), runs)], 2)
        assert "generations" in words(drawn)
        assert len(shapes(drawn, "polyline")) == 1


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [-1e-9, 1e-9], [1e12, -3e12], [math.inf, 1]])
def test_any_scores_can_be_drawn(values):
    drawn = curves.draw("mine", [Runs(cell("0.1"), {1: history(values)})], 1)
    for shape in shapes(drawn, "polyline"):
        numbers = [float(n) for pair in shape.get("points").split() for n in pair.split(",")]
        assert all(0 <= n <= 1000 for n in numbers)
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_marks_lie_on_the_scale_of_the_lines():
    marks = [Mark("low", 0.0), Mark("high", 4000.0), Mark("higher", 4010.0)]
    lines = [Line("mine", [0, 100], [1000.0, 2000.0])]
    drawn = figure.draw("mine", [Panel("", lines, marks)], across="frames", up="scores")
    (curve,) = shapes(drawn, "polyline")
    corners = [tuple(map(float, pair.split(","))) for pair in curve.get("points").split()]
    dotted = [s for s in shapes(drawn, "path") if s.get("stroke-dasharray") == "1 3"]
    heights = [float(s.get("d").split()[1].partition("H")[0]) for s in dotted]
    # From the lowest to the highest, a thousand is as much for marks as it is for lines.
    thousand = corners[0][1] - corners[-1][1]
    assert heights[2] - heights[1] == pytest.approx(4 * thousand, abs=0.3)
    assert heights[2] == pytest.approx(corners[0][1] + thousand, abs=0.3)
    labels = {s.text: s for s in shapes(drawn, "text") if s.text in ("low", "high", "higher")}
    assert list(labels) == ["higher", "high", "low"]
    assert all(float(label.get("x")) > corners[-1][0] for label in labels.values())
    places = [float(label.get("y")) for label in labels.values()]
    assert places[1] - places[0] >= figure.LETTERING
    assert places[2] == pytest.approx(heights[2], abs=5)


def test_names_are_text():
    name = '<script>&"\x1b[31m' + "long" * 40
    drawn = figure.draw(name, [Panel(name, [Line(name, [0, 1], [0, 1])])], across=name, up=name)
    assert "<script>" not in drawn
    assert "\x1b" not in drawn
    assert words(drawn)[0] == name.replace("\x1b", "\\x1b")
    assert len(words(drawn)[-1]) == figure.LONGEST


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500, [0, 100, 200, 300, 400, 500]),
        (-90, -70, [-90, -85, -80, -75, -70]),
        (0.11, 0.2, [0.12, 0.14, 0.16, 0.18, 0.2]),
        (0, 7e8, [0, 2e8, 4e8, 6e8]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert figure.ticks(low, high) == pytest.approx(expected)


def test_quartiles_lie_between():
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.25) == 1.75
    assert quantile([1.0], 0.75) == 1.0
    assert quantile([-math.inf, 1.0], 0.5) == -math.inf


def test_a_row_without_runs_says_so():
    (row,) = rows([Runs(cell("0.1"), {})], 3)
    assert row == Row("0.1", "CartPole-v1", cell("0.1").columns, 0, 3)
    line = to_csv([row], ["costs"]).decode().splitlines()[1]
    assert line == "0.1,small,0.1,CartPole-v1,0,3,,,,,,,,"


def test_cells_are_called_by_what_they_differ_in():
    assert labels([cell("0.1").columns, cell("0.2").columns]) == ["sigma 0.1", "sigma 0.2"]
    assert labels([cell("0.1").columns]) == ["small"]
    assert labels([cell("1", "A").columns, cell("1", "B").columns]) == ["A", "B"]
