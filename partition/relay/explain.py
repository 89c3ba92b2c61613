"""Where each operator of a partitioned module runs, and why the others stay on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relay

from tvm_ethosu.partition.relay.legalize import composite_calls, post_order
from tvm_ethosu.partition.relay.parse import call_name, span_name
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.report import Decision
from tvm_ethosu.partition.rules import RULES, Rule

_OUR_OWN_CALLS = ("annotation.stop_fusion",)
_IDLE = (
    "it only rearranges memory beside CPU operators or at the ends of the network, and the NPU "
    "could only copy what the CPU passes on for free"
)


def _npu_decisions(mod: tvm.IRModule) -> Iterator[Decision]:
    for name, function in npu_functions(mod).items():
        for call, rule in composite_calls(function):
            for origin in _origins(call.op.body):
                yield Decision(rule.name.removeprefix("ethos-u."), origin, name)


def _origins(body: relay.Expr) -> list[str]:
    """Return the names of the operators that are one on the NPU: the last one, then the others.

    They are several where a pad became padding, or a DEQUANTIZE and a QUANTIZE are in a table.
    """
    others = [span_name(expr) for expr in post_order(body) if call_name(expr)]
    return list(dict.fromkeys((span_name(body), *filter(None, others))))


def _cpu_groups(main: relay.Function) -> list[list[relay.Call]]:
    """Return the calls that stay, those that one operator of the model became together."""
    calls = [
        expr
        for expr in post_order(main.body)
        if call_name(expr) and call_name(expr) not in _OUR_OWN_CALLS
    ]
    owner = _owners(calls)
    groups: dict[str, list[relay.Call]] = {}
    for index, call in enumerate(calls):
        key = span_name(call) or f"#{owner.get(call, index)}"
        groups.setdefault(key, []).append(call)
    return list(groups.values())


def _owners(calls: Sequence[relay.Call]) -> dict[relay.Call, int]:
    """Return, for calls without a name in the model, which row's match they belong to."""
    owner: dict[relay.Call, int] = {}
    for index in reversed(range(len(calls))):
        root = calls[index]
        rule = None if root in owner or span_name(root) else _matching_rule(root, [])
        while rule is not None and isinstance(root, relay.Call):
            owner[root] = index
            root = None if call_name(root) == rule.calls[0] else root.args[0]
    return owner


# Calls that stand around an operator's main work; they never name the reason by themselves.
_AROUND = ("cast", "clip", "nn.bias_add", "qnn.requantize", "qnn.quantize", "qnn.dequantize")


def _matching_rule(call: relay.Call, main_calls: Sequence[str]) -> Rule | None:
    for rule in RULES:
        is_about_it = rule.calls[0] in main_calls or not main_calls
        if is_about_it and rule.pattern().match(call) and rule.applies(rule.parse(call)):
            return rule
    return None


def _unmatched_reason(names: Sequence[str], main_calls: Sequence[str]) -> str:
    """Say what is missing for a row of the table to match, or that there is no such row."""
    for rule in RULES:
        if rule.calls[0] in main_calls:
            missing = [call for call in rule.calls[1:] if call not in names]
            if missing:
                return f"{rule.calls[0]} is not followed by {', '.join(missing)}"
            return f"{rule.calls[0]} has operands that are not constant, or an unknown form"
    return f"the NPU's operator table has no row for {', '.join(main_calls or names)}"


def _cpu_decision(calls: Sequence[relay.Call]) -> Decision:
    names = list(dict.fromkeys(call_name(call) for call in calls))
    main_calls = [name for name in names if name not in _AROUND]
    operator, origin = " + ".join(names), span_name(calls[-1])
    matches = [(call, _matching_rule(call, main_calls)) for call in reversed(calls)]
    rejections = [rule.reject(rule.parse(call)) for call, rule in matches if rule is not None]
    if not rejections:
        return Decision(operator, origin, None, _unmatched_reason(names, main_calls))
    # A reshape beside the main work has nothing against it.
    reason = next((str(rejection) for rejection in rejections if rejection is not None), _IDLE)
    return Decision(operator, origin, None, reason)


def explain_partition(mod: tvm.IRModule) -> tuple[Decision, ...]:
    """Return one decision per operator of a module that ``partition_for_ethosu`` returned."""
    typed = relay.transform.InferType()(mod)
    cpu = [_cpu_decision(calls) for calls in _cpu_groups(typed["main"])]
    return (*_npu_decisions(typed), *cpu)
