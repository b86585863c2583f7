"""The registered policies: a name, settings, and the layout of weights that they give.

A policy's settings are a msgspec struct with a `layout` method. Registering one is all it takes:

    @register("two-numbers")
    class TwoNumbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        def layout(self) -> Layout:
            return Layout((Tensor("numbers", (2,)),))
"""

from germline.policies import dqn, mlp
from germline.policies.registry import PolicySpec, layout_of, make, names, reference, register

__all__ = ["PolicySpec", "layout_of", "make", "names", "reference", "register"]

register("mlp")(mlp.Mlp)
register("dqn")(dqn.Dqn)
