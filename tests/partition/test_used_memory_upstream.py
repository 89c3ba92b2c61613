"""The twelve cases of TVM's own test of AnnotateUsedMemory, with the numbers stated there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import tvm
from tvm import relay

from tvm_ethosu.partition import analyze_used_memory, annotate_used_memory
from tvm_ethosu.scheduler.errors import UserError


def primitive(
    *shapes: Sequence[int],
    compute: Callable[..., relay.Expr],
    dtype: str = "int8",
) -> relay.Function:
    """A primitive function over parameters of these shapes."""
    params = [relay.var(f"p{i}", shape=shape, dtype=dtype) for i, shape in enumerate(shapes)]
    return relay.Function(params, compute(*params)).with_attr("Primitive", 1)


def pool(size: int = 2) -> Callable[[relay.Expr], relay.Expr]:
    return lambda x: relay.nn.max_pool2d(x, pool_size=(size, size), layout="NHWC")


def module(params: Sequence[relay.Var], body: relay.Expr) -> tvm.IRModule:
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))


def _simple() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 2, 2, 4), dtype="int8")
    return module([x], primitive((1, 2, 2, 4), compute=pool(1))(x))


def _multiple_functions() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 8, 8, 2), dtype="int8")
    y = primitive((1, 8, 8, 2), compute=pool())(x)
    z = primitive((1, 7, 7, 2), compute=pool())(y)
    return module([x], primitive((1, 6, 6, 2), compute=pool())(z))


def _mixed_data_types() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 2, 2, 2), dtype="int16")
    cast = primitive((1, 2, 2, 2), compute=lambda p: relay.cast(p, "uint32"), dtype="int16")
    return module([x], cast(x))


def _parallel_function_call() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 4, 5, 6), dtype="int8")
    made = [
        primitive((1, 4, 5, 6), compute=lambda p: relay.reshape(p, (1, 4, 30)))(x) for _ in range(2)
    ]
    return module([x], relay.concatenate(made, axis=0))


def _many_different_parallel_calls() -> tvm.IRModule:
    shape = (1, 4, 5, 6)
    x = relay.var("x", shape=shape, dtype="int8")
    a = primitive(shape, compute=relay.tanh)(x)
    b = primitive(shape, compute=pool(1))(x)
    c = primitive(shape, compute=lambda p: relay.exp(relay.nn.relu(relay.abs(p))))(x)
    concat = primitive(shape, shape, shape, compute=lambda *p: relay.concatenate(list(p), axis=3))
    return module([x], concat(a, b, c))


def _nested_branches() -> tvm.IRModule:
    shape = (1, 2, 2, 4)
    x = relay.var("x", shape=shape, dtype="int8")

    def f(value: relay.Expr) -> relay.Expr:
        return primitive(shape, compute=pool(1))(value)

    a, b = f(x), f(x)
    c, d = f(b), f(b)
    return module([x], relay.concatenate([a, c, d], axis=3))


def _composite_inner_function() -> tvm.IRModule:
    p = relay.var("p", shape=(1, 2, 2, 4), dtype="int8")
    inner_var = relay.var("q", shape=(1, 2, 2, 4), dtype="int8")
    inner = relay.Function([inner_var], pool(2)(inner_var)).with_attr("Composite", "my_pool")
    outer = relay.Function([p], inner(p)).with_attr("Primitive", 1)
    x = relay.var("x", shape=(1, 2, 2, 4), dtype="int8")
    return module([x], outer(x))


def _same_function_in_series() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 2, 2, 4), dtype="int8")
    f = primitive((1, 2, 2, 4), compute=pool(1))
    return module([x], f(f(x)))


def _same_function_in_parallel() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 2, 2, 4), dtype="int8")
    f = primitive((1, 2, 2, 4), compute=pool(1))
    return module([x], relay.concatenate([f(x), f(x)], axis=0))


def _parallel_calls_with_non_ifm_input() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 4, 5, 6), dtype="int8")
    y = primitive((1, 4, 5, 6), compute=relay.tanh)(x)
    f = primitive((1, 4, 5, 6), compute=lambda p: relay.nn.max_pool2d(p, (2, 2), layout="NCHW"))
    return module([x], relay.concatenate([f(y) for _ in range(20)], axis=3))


IN, POOLED = 1 * 4 * 5 * 6, 1 * 4 * 4 * 5
CASES: dict[str, tuple[Callable[[], tvm.IRModule], list[list[int]], int]] = {
    "simple": (_simple, [[2 * 16]], 2 * 16),
    "multiple functions": (
        _multiple_functions,
        [[128 + 98], [98 + 72], [72 + 50]],
        128 + 50,
    ),
    "mixed data types": (_mixed_data_types, [[8 * 2 + 8 * 4]], 8 * 2 + 8 * 4),
    "parallel function call": (_parallel_function_call, [[240], [360]], 360),
    "many different parallel calls": (
        _many_different_parallel_calls,
        [[240], [360], [480], [720]],
        480,
    ),
    "nested branches": (_nested_branches, [[32], [48], [48], [64]], 64),
    "composite inner function": (_composite_inner_function, [[16 + 4]], 16 + 4),
    "multiple calls to the same function": (_same_function_in_series, [[32, 32]], 32),
    "parallel calls to the same function": (_same_function_in_parallel, [[32, 48]], 48),
    "parallel calls with non-ifm input": (
        _parallel_calls_with_non_ifm_input,
        [[2 * IN], [IN + POOLED * count for count in range(1, 21)]],
        IN + 20 * POOLED,
    ),
}


def annotations(mod: tvm.IRModule) -> tuple[list[list[int]], int]:
    """The numbers on the functions of an annotated module, in program order, and on main."""
    numbers = []
    body = mod["main"].body
    while isinstance(body, relay.Let):
        if isinstance(body.value, relay.Function):
            numbers.append([int(number) for number in body.value.attrs["used_memory"]])
        body = body.body
    return numbers, int(mod["main"].attrs["io_used_memory"])


def annotated_by_tvm(mod: tvm.IRModule) -> tvm.IRModule:
    annotate = tvm.get_global_func("relay._transform.AnnotateUsedMemory")()
    steps = [relay.transform.InferType(), relay.transform.ToANormalForm()]
    return tvm.transform.Sequential([*steps, relay.transform.InferType(), annotate])(mod)


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_pass_and_those_stated(case: str) -> None:
    make, expected, io_bytes = CASES[case]
    assert annotations(annotate_used_memory(make())) == (expected, io_bytes)
    assert annotations(annotated_by_tvm(make())) == (expected, io_bytes)


def test_dynamic_input() -> None:
    x = relay.var("x", shape=(1, 2, 2, relay.Any()), dtype="int8")
    p = relay.var("p", shape=(1, 2, 2, relay.Any()), dtype="int8")
    f = relay.Function([p], pool(1)(p)).with_attr("Primitive", 1)
    for entry in (annotate_used_memory, analyze_used_memory):
        with pytest.raises(UserError, match=r"dynamic shape .*input 'x'"):
            entry(module([x], f(x)))


def test_dynamic_call_site() -> None:
    x = relay.var("x", shape=(1, 2, 2, 4), dtype="int8")
    p = relay.var("p", shape=(relay.Any(), 2, 2, 4), dtype="int8")
    f = relay.Function([p], pool(1)(p)).with_attr("Primitive", 1)
    for entry in (annotate_used_memory, analyze_used_memory):
        with pytest.raises(UserError, match="dynamic shape"):
            entry(module([x], f(x)))
