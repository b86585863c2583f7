import subprocess
import sys

import pytest

from engines import ENGINES
from germline import address
from germline.backends import registry

KINDS = {kind.module: kind for kind in registry.ENGINES}


def test_every_address_has_an_engine():
    schemes = [scheme for kind in registry.ENGINES for scheme in kind.schemes]
    assert sorted(schemes) == sorted(address.PORTS)


@pytest.mark.parametrize("name", KINDS)
def test_an_engine_is_found_by_its_name_and_its_addresses(name):
    kind = KINDS[name]
    assert registry.kind_of(name) is kind
    for scheme in kind.schemes:
        assert registry.kind_of(address.parse(f"{scheme}://127.0.0.1")) is kind


@pytest.mark.parametrize("name", KINDS)
def test_its_module_makes_it_and_reaches_it_from_hosts(name):
    module = registry.load(name)
    assert callable(module.make)
    joined = bool(KINDS[name].schemes) and not KINDS[name].cluster
    assert hasattr(module, "connect") == joined


@pytest.mark.parametrize("name", KINDS)
def test_a_host_does_without_jax(name):
    code = f"import sys; from germline.backends import registry; registry.load({name!r})"
    subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit('jax' in sys.modules)"], check=True, timeout=60
    )


@pytest.mark.parametrize("name", KINDS)
def test_every_engine_is_in_the_conformance_suite(name):
    assert any(made.split()[0] == name for made in ENGINES)
