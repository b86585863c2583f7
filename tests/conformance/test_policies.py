"""The conformance table of policies. A new network joins by a line in `networks.NETWORKS`."""

import pytest

from germline import policies
from networks import EXACT, LARGE, NETWORKS, context_of, patient, spec_of

# In half precision, one network with convolutions is enough for the impatient.
OTHERS = ("dqn valid", "conv same", "conv normalised", "conv-lstm small")


def test_every_registered_policy_is_in_the_table():
    assert set(policies.names()) == {name.split()[0] for name in NETWORKS}


@pytest.mark.parametrize("name", patient(NETWORKS, (*LARGE, "conv same", "conv-lstm small")))
def test_in_floats(name):
    spec = spec_of(name)
    policies.check(spec, context=context_of(spec))


@pytest.mark.parametrize("name", patient(NETWORKS, (*LARGE, *OTHERS)))
def test_in_half_precision(name):
    spec = spec_of(name)
    policies.check(spec, arithmetic="bfloat16", context=context_of(spec))


@pytest.mark.parametrize("name", patient(EXACT, (*LARGE, "conv same")))
def test_in_integers(name):
    policies.check(spec_of(name, exact=True), arithmetic="exact")
