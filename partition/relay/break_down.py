"""Operators over a limit of the NPU, broken down before the partitioner sees them.

Before: ``conv2d(%x, strides=[4, 4])``
After:  ``conv2d(space_to_depth(%x, block_size=4), strides=[1, 1])``

An operator whose parts the NPU would not take all stays as it was, with its own limit as reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import tvm
from tvm import relay

from tvm_ethosu.partition import constraints as c
from tvm_ethosu.partition.relay.legalize import children, composite_rule, post_order
from tvm_ethosu.partition.relay.parse import call_name, tensor_type
from tvm_ethosu.partition.relay.smaller import ONLY_FOR, STEPS, Match, Step
from tvm_ethosu.partition.rules import RULES, Rule
from tvm_ethosu.scheduler.arch import (
    MAX_DILATION,
    MAX_DIM,
    MAX_KERNEL_ELEMENTS,
    MAX_KERNEL_H,
    MAX_PAD_TOP_LEFT,
    MAX_POOL_ELEMENTS,
    MAX_POOL_H,
    MAX_POOL_PAD,
    MAX_STRIDE,
)

# Finds the operators of a module that the NPU takes, as composite functions.
Merge = Callable[[tvm.IRModule], tvm.IRModule]


def _step_for(rule: Rule, constraint: c.Constraint) -> Step | None:
    step = STEPS.get(constraint)
    return step if step is not None and rule.name in ONLY_FOR.get(step, (rule.name,)) else None


_RULES = tuple(
    rule
    for rule in RULES
    if any(_step_for(rule, constraint) for constraint in rule.constraints)
    and not rule.name.startswith("ethos-u.padded")
)
_MAIN_CALLS = frozenset(rule.calls[0] for rule in _RULES)


def step_of(rule: Rule, constraint: c.Constraint) -> Step | None:
    """Return how an operator over one of a row's limits is broken down."""
    return _step_for(rule, constraint) if rule in _RULES else None


# Kernels up to this are within the limit with any dilation that the NPU has.
_SMALL_KERNEL = MAX_KERNEL_ELEMENTS // MAX_DILATION**2

# What may follow the main call of an operator.
_AFTER = ("nn.bias_add", "qnn.requantize", "clip", "cast", "qnn.quantize", "multiply", "where")


def broken_down(mod: tvm.IRModule, merge: Merge) -> tvm.IRModule:
    """Return the typed module with operators over some limits as several within them."""
    main = mod["main"]
    body = _smaller(main.body, merge)
    if body is None:
        return mod
    result = tvm.IRModule(dict(mod.functions.items()), mod.type_definitions)
    result["main"] = relay.Function(main.params, body, None, main.type_params, main.attrs)
    if mod.attrs is not None:
        result = result.with_attrs(dict(mod.attrs.items()))
    return relay.transform.InferType()(result)


def _smaller(body: relay.Expr, merge: Merge) -> relay.Expr | None:
    """Return a typed expression with its operators broken down, None if nothing can be."""
    exprs = list(post_order(body))
    found = {match.root: made for match, made in _pieces(exprs, merge)}
    if not found:
        return None
    new: dict[relay.Expr, relay.Expr] = {}
    for expr in exprs:
        new[expr] = _rebuilt(expr, new)
        if expr in found:
            function, inputs = found[expr]
            actual = {v: new[i] for v, i in zip(function.params, inputs, strict=True)}
            new[expr] = _named(relay.bind(function.body, actual), set(new.values()), expr.span)
    return new[body]


def _rebuilt(expr: relay.Expr, new: Mapping[relay.Expr, relay.Expr]) -> relay.Expr:
    if all(new[child] is child or new[child].same_as(child) for child in children(expr)):
        return expr
    match expr:
        case relay.Call():
            args = [new[arg] for arg in expr.args]
            return relay.Call(expr.op, args, expr.attrs, expr.type_args, expr.span)
        case relay.Tuple():
            return relay.Tuple([new[field] for field in expr.fields], expr.span)
        case relay.TupleGetItem():
            return relay.TupleGetItem(new[expr.tuple_value], expr.index, expr.span)
        case relay.Let():
            return relay.Let(expr.var, new[expr.value], new[expr.body], expr.span)
        case _:
            branches = new[expr.true_branch], new[expr.false_branch]
            return relay.If(new[expr.cond], *branches, expr.span)


def _named(body: relay.Expr, known: set[relay.Expr], span: relay.Span | None) -> relay.Expr:
    """Return an operator's parts under the operator's place in the model."""
    new: dict[relay.Expr, relay.Expr] = {}
    for expr in post_order(body):
        made = expr if expr in known else _rebuilt(expr, new)
        if isinstance(made, relay.Call) and expr not in known:
            made = relay.Call(made.op, made.args, made.attrs, made.type_args, span)
        new[expr] = made
    return new[body]


# --- operators over a limit -----------------------------------------------------------------------


def _pieces(
    exprs: Sequence[relay.Expr], merge: Merge
) -> Iterator[tuple[Match, tuple[relay.Function, tuple[relay.Expr, ...]]]]:
    """Yield the operators that can be broken down, each as a function of its inputs."""
    users = _only_users(exprs)
    for main in exprs:
        if isinstance(main, relay.Call) and call_name(main) in _MAIN_CALLS and _may_be_over(main):
            match, step = _match(main, users)
            made = None if match is None or step is None else _function(match, step, merge)
            if match is not None and made is not None:
                yield match, (made, match.inputs)


def _only_users(exprs: Sequence[relay.Expr]) -> dict[relay.Expr, relay.Expr]:
    """Return who reads an expression that a single other one reads."""
    users: dict[relay.Expr, list[relay.Expr]] = {}
    for expr in exprs:
        for child in children(expr):
            users.setdefault(child, []).append(expr)
    return {expr: found[0] for expr, found in users.items() if len(found) == 1}


def _may_be_over(main: relay.Call) -> bool:
    """Return whether it is worthwhile to look closer; most operators are within all limits."""
    attrs, name = main.attrs, call_name(main)
    dims, given = tensor_type(main).dims, tensor_type(main.args[0]).dims
    if math.prod(dims[:-3]) > 1 or max((*dims, *given), default=1) > MAX_DIM:
        return True
    if name.startswith("qnn.conv2d"):
        numbers = (*attrs.strides, *(int(step) + 1 for step in attrs.dilation))
        several = name == "qnn.conv2d" and int(attrs.groups) != 1
        height, width = map(int, attrs.kernel_size)
        large = height > MAX_KERNEL_H // MAX_DILATION or height * width > _SMALL_KERNEL
        padded = max(map(int, attrs.padding)) > MAX_PAD_TOP_LEFT
        return several or large or padded or max(map(int, numbers)) > MAX_DILATION + 1
    if name.endswith("_pool2d"):
        height, width = map(int, attrs.pool_size)
        over = height > MAX_POOL_H or height * width > MAX_POOL_ELEMENTS
        padded = max(map(int, attrs.padding)) > MAX_POOL_PAD
        return over or padded or max(map(int, attrs.strides)) > MAX_STRIDE
    return len(main.args) > 1 and dims not in (given, tensor_type(main.args[1]).dims)


def _match(
    main: relay.Call, users: Mapping[relay.Expr, relay.Expr]
) -> tuple[Match | None, Step | None]:
    """Return the operator around a main call, and what breaks it down."""
    roots = [main]
    while call_name(users.get(roots[-1])) in _AFTER:
        roots.append(users[roots[-1]])
    for root in reversed(roots):
        for rule in _RULES:
            if rule.calls[0] == call_name(main) and rule.pattern().match(root):
                params = rule.parse(root)
                if rule.applies(params):
                    match = Match(root, main, _inputs(main), params)
                    return match, _step(rule, match)
    return None, None


def _step(rule: Rule, match: Match) -> Step | None:
    """Return what is to be done about the first limit that the operator is over."""
    over = next((limit for limit in rule.constraints if limit(match.params) is not None), None)
    return None if over is None else _step_for(rule, over)


def _inputs(main: relay.Call) -> tuple[relay.Expr, ...]:
    """Return the calculated tensors that an operator reads, without the casts of an average."""
    arguments = [arg.args[0] if call_name(arg) == "cast" else arg for arg in main.args]
    return tuple(dict.fromkeys(a for a in arguments if not isinstance(a, relay.Constant)))


def _function(match: Match, step: Step, merge: Merge) -> relay.Function | None:
    """Return an operator's parts as a function of its inputs, None if the NPU takes not all."""
    params = [
        relay.Var(f"input{index}", given.checked_type) for index, given in enumerate(match.inputs)
    ]
    by_input = dict(zip(match.inputs, params, strict=True))
    alone = _typed(relay.Function(params, match.with_calls(by_input)))
    users = _only_users(list(post_order(alone.body)))
    mains = [e for e in post_order(alone.body) if call_name(e) == call_name(match.main)]
    inner, _ = _match(mains[0], users)
    made = None if inner is None else step(inner)
    if made is None:
        return None
    function = _typed(relay.Function(alone.params, made))
    further = _smaller(function.body, merge)
    if further is not None:
        function = _typed(relay.Function(function.params, further))
    return function if _fits(function, merge) else None


def _typed(function: relay.Function) -> relay.Function:
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]


def _fits(function: relay.Function, merge: Merge) -> bool:
    """Return whether the NPU takes all that a function does."""
    merged = merge(tvm.IRModule.from_expr(function))["main"]
    calls = (expr for expr in post_order(merged.body) if isinstance(expr, relay.Call))
    return all(composite_rule(call) is not None for call in calls)
