"""Constant folding for analyses that look at shapes only: nothing is computed.

TVM's FoldConstant compiles and runs every constant expression, which takes most of the time that it
needs to optimise a float network. For memory only the types matter.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tvm_ethosu.partition.relay.parse import call_name

# TVM decides by the values of scalars (zero points, scales), so these are left to it.
_FEWEST_ELEMENTS = 2


def _uses_quantisation(main: relay.Function) -> bool:
    found = False

    def visit(expr: relay.Expr) -> None:
        nonlocal found
        found = found or call_name(expr).startswith("qnn.")

    relay.analysis.post_order_visit(main.body, visit)
    return found


class _Folder(ExprMutator):  # type: ignore[misc]
    """Replaces calls of operators on constants by constants of the same type, full of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[tuple[tuple[int, ...], str], tvm.nd.NDArray] = {}

    def visit_call(self, call: relay.Call) -> relay.Expr:
        new_call = super().visit_call(call)
        constant = call_name(new_call) != "" and all(
            isinstance(arg, relay.Constant) for arg in new_call.args
        )
        of = call.checked_type
        if not (constant and new_call.args and isinstance(of, relay.TensorType)):
            return new_call
        shape = tuple(int(dim) for dim in of.shape)
        if math.prod(shape) < _FEWEST_ELEMENTS:
            return new_call
        return self._zeros(shape, str(of.dtype))

    def _zeros(self, shape: tuple[int, ...], dtype: str) -> relay.Constant:
        # The bytes can be shared; the expressions can't, or two constants would become one.
        key = (shape, dtype)
        if key not in self.data:
            self.data[key] = tvm.nd.array(np.zeros(shape, dtype))
        return relay.Constant(self.data[key])


def fold_types(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a float module with constant expressions folded, their values lost."""
    if _uses_quantisation(mod["main"]):
        return mod
    passes = [relay.transform.SimplifyInference(), relay.transform.InferType()]
    simple = tvm.transform.Sequential(passes)(mod)
    folded = tvm.IRModule(simple.functions, simple.type_definitions, attrs=simple.attrs)
    folded["main"] = _Folder().visit(simple["main"])
    return relay.transform.InferType()(folded)
