"""Programs whose memory is not fixed."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relay

from tests.backend.error_ways.desk import Way, python
from tests.backend.error_ways.networks import dynamic
from tvm_ethosu.partition import analyze_used_memory


def _module(*params: relay.Var, body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(list(params), body))


def _conditional() -> tvm.IRModule:
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    return _module(x, flag, body=relay.If(flag, relay.nn.relu(x), relay.abs(x)))


def _recursive() -> tvm.IRModule:
    loop, x, y = relay.GlobalVar("loop"), relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    module = tvm.IRModule({loop: relay.Function([x], loop(x), relay.TensorType((4,)))})
    module["main"] = relay.Function([y], loop(y))
    return module


def _half_fused() -> tvm.IRModule:
    """Return a module of which one function is primitive and one is not."""
    x, y, z = (relay.var(name, shape=(4,)) for name in "xyz")
    f, g = relay.var("f"), relay.var("g")
    primitive = relay.Function([y], relay.abs(y)).with_attr("Primitive", 1)
    body = relay.Let(g, relay.Function([z], relay.exp(z)), g(f(x)))
    return _module(x, body=relay.Let(f, primitive, body))


MEMORY: Mapping[str, Way] = {
    "used_memory: control flow has no fixed memory (found … at …)": python(
        lambda: analyze_used_memory(_conditional())
    ),
    "used_memory: a call of @… has no fixed memory unless it is inlined": python(
        lambda: analyze_used_memory(_recursive())
    ),
    "used_memory: a function inside of main is no primitive function": python(
        lambda: analyze_used_memory(_half_fused())
    ),
    "… a dynamic shape has no fixed size in memory …": python(
        lambda: analyze_used_memory(dynamic())
    ),
}
