"""Functional environments of others on the device: Gymnasium's, gymnax's and Brax's."""

from typing import Annotated

import msgspec

from germline.tasks import behaviours
from germline.tasks.dynamics import Described, Dynamics, Suite, dynamics
from germline.tasks.on_device import DeviceTask


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
        return Described(found, behaviours.find("functional", self.behaviour, own))

    @property
    def title(self) -> str:
        """With its id."""
        return f"functional: {self.id}"
