"""NPU functions that become ready together as one: fewer calls, and one plan for their memory.

Before: ``main(x) = (@npu_0(x), @npu_1(x))``
After:  ``main(x) = (@npu_0(x).0, @npu_0(x).1)``

TVM joins functions only where one reads what another writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator

from tvm_ethosu.partition.relay.legalize import children, post_order
from tvm_ethosu.partition.relay.rewrite import npu_functions, rebuild, result_fields


@dataclass(frozen=True)
class _Needs:
    """What must be done before an expression: CPU calls (as bits), and the NPU calls in a row."""

    cpu: int = 0
    npu: int = 0


def _groups(main: relay.Function, names: Collection[str]) -> list[list[relay.Call]]:
    """Return the NPU calls that can be one: none waits for another, all wait for the same.

    As those of one group have as many NPU calls before them, groups cannot wait for each other.
    """
    needs: dict[relay.Expr, _Needs] = {}
    groups: dict[_Needs, list[relay.Call]] = {}
    for number, expr in enumerate(post_order(main.body)):
        cpu, npu = 0, 0
        for child in children(expr):
            cpu, npu = cpu | needs[child].cpu, max(npu, needs[child].npu)
        if isinstance(expr, relay.Call):
            if isinstance(expr.op, relay.GlobalVar) and expr.op.name_hint in names:
                groups.setdefault(_Needs(cpu, npu), []).append(expr)
                npu += 1
            else:
                cpu |= 1 << number
        needs[expr] = _Needs(cpu, npu)
    return list(groups.values())


@dataclass(frozen=True)
class _Merged:
    """A group's function and arguments, and where each member's results are among its own."""

    function: relay.Function
    arguments: tuple[relay.Expr, ...]
    starts: tuple[int, ...]


def _merge(group: Sequence[relay.Call], functions: Mapping[str, relay.Function]) -> _Merged:
    """Return the functions of a group as one; what several of them read becomes one parameter."""
    params: dict[relay.Expr, relay.Var] = {}
    fields: list[relay.Expr] = []
    starts = []
    for call in group:
        function = functions[call.op.name_hint]
        given = zip(function.params, call.args, strict=True)
        bound = {param: params.setdefault(argument, param) for param, argument in given}
        starts.append(len(fields))
        # In one piece, or what several results share would be there several times.
        results = relay.bind(relay.Tuple(result_fields(function)), bound)
        fields += list(results.fields)
    first = functions[group[0].op.name_hint]
    made = relay.Function(list(params.values()), relay.Tuple(fields), None, [], first.attrs)
    return _Merged(made, tuple(params), tuple(starts))


def _with_op(call: relay.Call, op: relay.GlobalVar) -> relay.Call:
    return relay.Call(op, call.args, call.attrs, call.type_args, call.span)


class _GroupMutator(ExprMutator):  # type: ignore[misc]
    """Calls a group's function in place of each member, and takes the member's results out."""

    def __init__(
        self,
        groups: Sequence[Sequence[relay.Call]],
        merged: Sequence[_Merged],
        functions: Mapping[str, relay.Function],
        new_vars: Mapping[str, relay.GlobalVar],
    ) -> None:
        super().__init__()
        self.place = {call: at for at, group in enumerate(groups) for call in group}
        self.groups = groups
        self.merged = merged
        self.functions = functions
        self.new_vars = new_vars
        self.made: dict[int, relay.Call] = {}

    def visit_call(self, call: relay.Call) -> relay.Expr:
        if call not in self.place:
            visited = super().visit_call(call)
            name = visited.op.name_hint if isinstance(visited.op, relay.GlobalVar) else ""
            # A function that stays as it is has another variable, too, in the new module.
            known = name in self.new_vars
            return _with_op(visited, self.new_vars[name]) if known else visited
        at = self.place[call]
        group, merged = self.groups[at], self.merged[at]
        if at not in self.made:
            arguments = [self.visit(argument) for argument in merged.arguments]
            var = self.new_vars[group[0].op.name_hint]
            self.made[at] = relay.Call(var, arguments, span=call.span)
        function = self.functions[call.op.name_hint]
        start = merged.starts[group.index(call)]
        fields = [
            relay.TupleGetItem(self.made[at], start + index)
            for index in range(len(result_fields(function)))
        ]
        return relay.Tuple(fields) if isinstance(function.body, relay.Tuple) else fields[0]

    def visit_tuple_getitem(self, item: relay.TupleGetItem) -> relay.Expr:
        value = self.visit(item.tuple_value)
        if isinstance(value, relay.Tuple):
            return value.fields[item.index]
        return relay.TupleGetItem(value, item.index, item.span)


def merge_ready_together(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with NPU functions that wait for the same CPU operators as one."""
    functions = npu_functions(mod)
    groups = [group for group in _groups(mod["main"], functions) if len(group) > 1]
    if not groups:
        return mod
    merged = [_merge(group, functions) for group in groups]
    gone = {call.op.name_hint for group in groups for call in group}
    kept = {name: function for name, function in functions.items() if name not in gone}
    made = {g[0].op.name_hint: m.function for g, m in zip(groups, merged, strict=True)}

    def mutator(new_vars: Mapping[str, relay.GlobalVar]) -> ExprMutator:
        return _GroupMutator(groups, merged, functions, new_vars)

    return rebuild(mod, kept | made, mutator)
