"""Functional environments of others on the device: Gymnasium's, gymnax's and Brax's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from germline.policies.protocols import Array
from germline.tasks import behaviours
from germline.tasks.on_device.dynamics import Dynamics, State
from germline.tasks.on_device.task import DeviceTask
from germline.tasks.suites import Suite, dynamics


class Functional(DeviceTask, frozen=True, forbid_unknown_fields=True):
    """An environment on the device, by suite and id.

    `behaviour` is what novelty is measured by: "observation" for the last one, or the name of a
    function of yours; see `behaviours`.
    """

    id: Annotated[str, msgspec.Meta(max_length=200)]
    suite: Suite = "gymnasium"
    behaviour: behaviours.Title | None = None

    def dynamics(self) -> Dynamics:
        """The environment, described by its last observation or a function."""
        found = dynamics(self.suite, self.id, self.limit)
        if self.behaviour is None:
            return found
        own = {"observation": lambda state, obs: obs}
        return _Described(found, behaviours.find("functional", self.behaviour, own))

    @property
    def title(self) -> str:
        """With its id."""
        return f"functional: {self.id}"


@dataclass(frozen=True)
class _Described:
    """An environment whose episodes a function of (state, observation) describes."""

    inner: Dynamics
    behaviour: Callable[[State, Array], Array]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the environment's own
        return getattr(self.inner, name)
