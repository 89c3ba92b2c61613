"""Relay in fewer forms: splits as slices, idle transpositions as reshapes, no idle way into float.

Before: ``%1 = split(dequantize(%x)); quantize(%1.0)``
After:  ``strided_slice(%x)``
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relay

from tvm_ethosu.partition.relay.legalize import post_order
from tvm_ethosu.partition.relay.parse import call_name, span_name, tensor_type

Rebuild = Callable[[relay.Expr], relay.Expr]


def canonical(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the typed module with its main function rewritten; values stay the same."""
    main = mod["main"]
    exprs = list(post_order(main.body))
    if not any(_is_of_interest(expr) for expr in exprs):
        return mod
    made: dict[relay.Expr, relay.Expr] = {}
    for expr in exprs:
        made[expr] = _rewritten(expr, lambda child: made[child])
    result = tvm.IRModule(dict(mod.functions.items()), mod.type_definitions)
    result["main"] = relay.Function(
        main.params, made[main.body], None, main.type_params, main.attrs
    )
    if mod.attrs is not None:
        result = result.with_attrs(dict(mod.attrs.items()))
    return relay.transform.InferType()(result)


def _is_of_interest(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.TupleGetItem) or call_name(expr) in ("qnn.quantize", "transpose")


def _rewritten(expr: relay.Expr, new: Rebuild) -> relay.Expr:
    match expr:
        case relay.Call():
            call = relay.Call(expr.op, [new(a) for a in expr.args], expr.attrs, expr.type_args)
            return _without_round_trip(_as_reshape(_named(call, expr), expr), expr)
        case relay.Tuple():
            return relay.Tuple([new(field) for field in expr.fields], expr.span)
        case relay.TupleGetItem():
            return _item(expr, new)
        case relay.Let():
            return relay.Let(expr.var, new(expr.value), new(expr.body), expr.span)
        case relay.If():
            branches = new(expr.true_branch), new(expr.false_branch)
            return relay.If(new(expr.cond), *branches, expr.span)
        case _:
            return expr


def _named(made: relay.Call, like: relay.Expr) -> relay.Call:
    """Return the call with the place in the model that another expression has."""
    return relay.Call(made.op, made.args, made.attrs, made.type_args, like.span)


def _as_reshape(made: relay.Call, old: relay.Call) -> relay.Call:
    """Return a transposition that only moves dimensions of 1 as the reshape that it is."""
    if call_name(made) != "transpose":
        return made
    dims, result = tensor_type(old.args[0]).dims, tensor_type(old).dims
    axes = [int(axis) % len(dims) for axis in made.attrs.axes or reversed(range(len(dims)))]
    moved = [axis for axis in axes if dims[axis] != 1]
    return _named(relay.reshape(made.args[0], result), old) if moved == sorted(moved) else made


def _item(expr: relay.TupleGetItem, new: Rebuild) -> relay.Expr:
    """Return one field of a tuple without the tuple; of a split as a slice of its input."""
    value = expr.tuple_value
    if isinstance(value, relay.Tuple):
        return _with_own_name(new(value.fields[expr.index]), expr, len(value.fields))
    if call_name(value) != "split":
        return relay.TupleGetItem(new(value), expr.index, expr.span)
    data, source = new(value.args[0]), tensor_type(value.args[0]).dims
    axis = int(value.attrs.axis) % len(source)
    sizes = [int(of.shape[axis]) for of in value.checked_type.fields]
    begin, end = [0] * len(source), list(source)
    begin[axis] = sum(sizes[: expr.index])
    end[axis] = begin[axis] + sizes[expr.index]
    if call_name(data) == "qnn.dequantize" and _is_per_tensor(data):
        part = relay.strided_slice(data.args[0], begin, end)
        args = [_with_own_name(part, expr, len(sizes)), *data.args[1:]]
        made = relay.Call(data.op, args, data.attrs, [])
    else:
        made = relay.strided_slice(data, begin, end)
    return _with_own_name(made, expr, len(sizes))


def _with_own_name(made: relay.Expr, like: relay.TupleGetItem, count: int) -> relay.Expr:
    """Return the call under the name of one result of an operator that has several.

    The importer gives each of them the names of all, joined by commas.
    """
    names = span_name(like).split(", ")
    if not isinstance(made, relay.Call):
        return made
    if len(names) != count:
        return _named(made, like) if made.span is None else made
    span = relay.Span(relay.SourceName(names[like.index]), 0, 0, 0, 0)
    return relay.Call(made.op, made.args, made.attrs, made.type_args, span)


def _is_per_tensor(call: relay.Call) -> bool:
    return all(
        isinstance(arg, relay.Constant) and arg.data.numpy().size == 1 for arg in call.args[1:3]
    )


def _without_round_trip(made: relay.Call, old: relay.Call) -> relay.Expr:
    """Return what was dequantized where it is quantized again to the very same numbers."""
    inner = made.args[0] if made.args else made
    if call_name(made) != "qnn.quantize" or call_name(inner) != "qnn.dequantize":
        return made
    if not (_is_per_tensor(made) and _is_per_tensor(inner)):
        return made
    pairs = zip(made.args[1:3], inner.args[1:3], strict=True)
    same = all(np.array_equal(one.data.numpy(), other.data.numpy()) for one, other in pairs)
    is_type_kept = str(old.attrs.out_dtype) == _type_of(inner.args[0])
    return inner.args[0] if same and is_type_kept else made


def _type_of(expr: relay.Expr) -> str:
    """Return the element type of an expression, new calls included."""
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(expr))
    return str(typed["main"].ret_type.dtype)
