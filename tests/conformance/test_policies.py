"""The conformance table of policies. A new network joins by a line in `networks.NETWORKS`."""

import pytest

from germline import policies
from networks import EXACT, NETWORKS, context_of, spec_of


def test_every_registered_policy_is_in_the_table():
    assert set(policies.names()) == {name.split()[0] for name in NETWORKS}


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_in_floats(name, arithmetic):
    spec = spec_of(name)
    policies.check(spec, arithmetic=arithmetic, context=context_of(spec))


@pytest.mark.parametrize("name", EXACT)
def test_in_integers(name):
    policies.check(spec_of(name, exact=True), arithmetic="exact")
