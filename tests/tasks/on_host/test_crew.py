"""Processes with lanes: the memory they share, how they start, and that nothing is left of them."""

import gc
import mmap
import os
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arcade  # noqa: F401 - registers its environments
from germline import tasks
from germline.errors import InputError
from germline.tasks.on_host.crew import Crew
from germline.tasks.on_host.hand import SharedArrays, Ticket
from ray_cluster import children

shapes = st.lists(st.integers(1, 5), max_size=3).map(tuple)


@given(
    st.integers(1, 9),
    shapes,
    st.sampled_from(["uint8", "float32"]),
    shapes,
    st.sampled_from(["int8", "int32", "float32"]),
)
def test_what_is_shown_and_what_is_done_do_not_touch(places, shown, dtype, action, kind):
    arrays = SharedArrays(places, shown, dtype, action, kind)
    memory = mmap.mmap(-1, arrays.bytes())
    seen, done = arrays.views(memory)
    assert seen.shape == (2, places, *shown)
    assert done.shape == (2, places, *action)
    assert seen.flags.aligned
    assert done.flags.aligned
    seen[...], done[...] = 1, 2
    assert np.all(seen == 1)
    assert np.all(done == 2)


def opened(imports=("arcade",), hands=2, **options):
    task = tasks.make("gym", {"id": "Arcade-v0", "options": options})
    return closing(Crew(task, task.space(), hands=hands, lanes=1, imports=imports))


def heard(crew, number):
    """The next report of a hand."""
    while number not in crew.wait():
        pass
    return crew.hear(number)


def ready(crew):
    while not all(hand.ready for hand in crew.hands):
        for number in crew.wait():
            crew.hear(number)


def test_a_hand_plays_what_it_is_given():
    with opened() as crew:
        ready(crew)
        crew.order(1, 0, [Ticket(7, 10, None), Ticket(8, 10, 1)])
        assert crew.hands[1].spare == [7, 8]
        report = heard(crew, 1)
        assert report.begun == [(1, 7)]  # in its own place, of two
        assert crew.hands[1].spare == [8]
        first = crew.shown[0, 1].copy()
        assert first.any()
        assert not crew.shown[0, 0].any()
        crew.actions[:] = 1
        for _ in range(3):  # as many steps as the seed says
            assert crew.hands[1].owes == set()
            crew.order(1, 0, [])
            report = heard(crew, 1)
        ((place, number, outcome),) = report.ended
        assert (place, number, outcome.steps, outcome.score) == (1, 7, 3, 3.0)
        assert report.begun == [(1, 8)]
        np.testing.assert_array_equal(crew.shown[0, 1], first)


def test_what_is_dropped_is_left_in_either_half():
    with opened(hands=1) as crew:
        ready(crew)
        crew.actions[:] = 1
        crew.order(0, 0, [Ticket(1, 10, None)])
        crew.order(0, 1, [Ticket(2, 10, None), Ticket(3, 10, None), Ticket(4, 10, None)])
        heard(crew, 0), heard(crew, 0)
        for number in (1, 3):
            crew.hands[0].drop(number)
        assert crew.hands[0].suspect
        crew.order(0, 1, [])
        heard(crew, 0)
        assert not crew.hands[0].suspect
        crew.order(0, 0, [])
        assert heard(crew, 0).begun == [(0, 4)]


def test_a_module_that_cannot_be_imported():
    before = set(children(os.getpid()))
    with pytest.raises(InputError, match="cannot start: ModuleNotFoundError: No module named 'no_"):
        opened(imports=("no_such_module",), hands=1)
    assert set(children(os.getpid())) <= before


def test_hands_that_end_at_their_start_are_not_started_for_ever(tmp_path, monkeypatch):
    ends = "import os, sys\nif 'germline.tasks.on_host.hand' in str(sys.orig_argv): os._exit(7)\n"
    (tmp_path / "sitecustomize.py").write_text(ends)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InputError, match="processes that play end with code 7 at their start"):
        opened()


def test_nothing_is_left():
    def open_files():
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before, files = set(children(os.getpid())), open_files()
    with opened() as crew:
        ready(crew)
        crew.hands[0].process.kill()
        with pytest.raises(EOFError):
            heard(crew, 0)
        assert crew.replace(0) == -9
        processes = [hand.process for hand in crew.hands]
    assert all(process.returncode is not None for process in processes)
    del crew
    assert set(children(os.getpid())) <= before
    assert open_files() == files


def test_a_hand_is_late_when_it_owes_something_for_long():
    with opened(hands=1) as crew:
        ready(crew)
        hand = crew.hands[0]
        hand.since = time.monotonic() - 1000
        assert not hand.late()
        crew.order(0, 0, [])
        assert not hand.late()
        hand.since -= 1000
        assert hand.late()
        heard(crew, 0)
        assert not hand.late()
