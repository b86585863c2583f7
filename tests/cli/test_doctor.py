"""What `germline doctor --bench` measures, and what it recommends by that."""

import json
import sys

import pytest

from commands import ok
from germline import tasks
from germline.cli import bench
from germline.device import cores

SECTIONS = {"emulator", "decode", "forward", "end_to_end", "recommendation"}


def numbers(section):
    return {name: value for name, value in section.items() if not isinstance(value, str)}


@pytest.mark.numerics
@pytest.mark.slow
def test_every_part_is_measured(germline, monkeypatch):
    monkeypatch.setattr(bench, "SECONDS", 0.05)
    found = json.loads(ok(germline("doctor", "--bench", "--device", "cpu", "--json")))
    assert set(found) == {"machine", *SECTIONS}
    assert found["emulator"]["game"] == "frostbite"
    for section in SECTIONS - {"recommendation"}:
        assert numbers(found[section])
        assert all(value > 0 for value in numbers(found[section]).values())
    assert set(numbers(found["forward"])) == {
        f"{arithmetic}_per_second" for arithmetic in ("exact", "float32", "bfloat16")
    }
    played = numbers(found["end_to_end"])
    assert len(played) == 2
    assert f"exact_{cores()}_processes" in played
    advice = found["recommendation"]
    assert advice["slots"] is None
    assert advice["frames_per_second"] in played.values()
    assert advice["why"][0].startswith("Leave it at one process per core: ")
    assert f'arithmetic = "{advice["arithmetic"]}"' in advice["why"][1]


@pytest.mark.numerics
@pytest.mark.slow
def test_without_a_game_a_pole_is_balanced_as_on_an_accelerator(monkeypatch):
    tasks.make("atari", {"game": "frostbite"}).close()
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.setattr(bench, "TRIED", bench.TRIED[:2])
    said = []
    found = bench.measured(0.05, networks=2, together=True, say=said.append)
    assert set(found) == SECTIONS
    assert found["emulator"]["game"] == "CartPole-v1"
    assert found["emulator"]["atari"].endswith("add it with: pip install 'germline[atari]'")
    assert set(found["decode"]) == {"milliseconds_alone", "milliseconds_in_32"}
    assert found["forward"]["networks"] == "2 at once"
    slots = [lanes * cores() for lanes in bench.TRIED]
    assert set(numbers(found["end_to_end"])) == {f"float32_{n}_slots" for n in slots}
    advice = found["recommendation"]
    assert advice["slots"] in slots
    assert advice["arithmetic"] == "float32"
    assert len(said) == 3 + len(slots)


@pytest.mark.parametrize(
    ("floats", "chosen", "words"),
    [
        (119.0, "exact", "1.19 times as fast as exact, and exact gives the same lineage on every"),
        (121.0, "bfloat16", "1.21 times as fast as exact, but floats give the same lineage on one"),
    ],
)
def test_floats_are_recommended_only_if_much_is_gained(floats, chosen, words):
    rates = {("exact", 32): 98.0, ("exact", 64): 100.0, ("bfloat16", 64): floats}
    advice = bench.recommended(rates, 64, 125.0, wide=True)
    assert (advice["slots"], advice["arithmetic"]) == (64, chosen)
    slots, arithmetic = advice["why"]
    assert slots.startswith("Set backend.slots = 64: 100 frames a second, 80% of the emulators ")
    assert "32 give 98" in slots
    assert arithmetic.startswith(f'Set arithmetic = "{chosen}": ')
    assert words in arithmetic


def test_a_device_is_for_the_bench(germline):
    code, _, error = germline("doctor", "--device", "cpu")
    assert (code, error) == (2, "germline: --device: is what to measure, so add --bench\n")
    code, _, error = germline("doctor", "--bench", "--device", "abacus")
    assert (code, error) == (2, "germline: --device: 'abacus' is not auto, cpu, gpu or tpu\n")
