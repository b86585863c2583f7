"""Whether there is an accelerator, and what is said if one is wanted and there is none."""

import pytest

from commands import refused
from germline import device
from germline.errors import InputError

PLUGIN = "[jax_plugins]\nxla_cuda12 = jax_plugins.xla_cuda12\n"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with files that only one with such a device has, and a JAX that supports it."""
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    device.present.cache_clear()
    there, about = tmp_path / "nvidia0", tmp_path / "jax_cuda12_plugin-1.dist-info"
    there.touch()
    about.mkdir()
    (about / "METADATA").write_text("Name: jax-cuda12-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(device, "_PLATFORMS", {"cuda": ("gpu", (str(there),))})
    yield there
    device.present.cache_clear()


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An empty folder on a machine without such a device."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    device.present.cache_clear()
    yield tmp_path
    device.present.cache_clear()


def test_it_is_found(machine):
    assert device.choose() == device.choose("gpu") == "cuda"
    assert device.choose("cpu") == "cpu"
    with pytest.raises(InputError, match="there is no tpu here"):
        device.choose("tpu")


def test_it_is_not_there(machine):
    machine.unlink()
    assert device.present() is None


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("JAX_PLATFORMS", "cpu", None),
        ("JAX_PLATFORMS", "tpu,cpu", None),
        ("JAX_PLATFORMS", "cuda", "cuda"),
        ("JAX_PLATFORMS", "gpu,cpu", "cuda"),
        ("JAX_PLATFORMS", "", "cuda"),
        ("CUDA_VISIBLE_DEVICES", "", None),
        ("CUDA_VISIBLE_DEVICES", "-1", None),
        ("CUDA_VISIBLE_DEVICES", "0", "cuda"),
    ],
)
def test_the_environment_can_hide_it(machine, monkeypatch, name, value, found):
    monkeypatch.setenv(name, value)
    assert device.present() == found
    assert device.choose() == (found or "cpu")
    if found is None:
        with pytest.raises(InputError, match="there is no gpu here that JAX can use"):
            device.choose("gpu")


def test_its_name_is_what_the_driver_says(machine):
    assert device.name("cuda").startswith("cuda")


def test_only_floats_pay_for_being_the_same_every_time(machine, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--one")
    assert device.settings("cuda", exact=True)["XLA_FLAGS"] == "--one"
    floats = device.settings("cuda", exact=False)
    assert floats["XLA_FLAGS"] == "--one --xla_gpu_deterministic_ops=true"
    assert floats["JAX_PLATFORMS"] == "cuda,cpu"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("gpu", "device: there is no gpu here that JAX can use; germline doctor says what is"),
        ("abc", "backend.device: "),
    ],
)
def test_the_command_line_refuses_what_is_not_here(wanted, said, bare, germline):
    assert said in refused(germline("train", "cartpole", "--device", wanted))
    assert not list(bare.iterdir())
