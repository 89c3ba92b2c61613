"""TVM's ``used_memory`` without TVM's pass: for any module, and with a report of who holds it.

AnnotateUsedMemory gives each primitive function the bytes that are live at each of its calls. It
runs in the AOT executor only, needs a fused module in A-normal form, and gives one number. Here the
same numbers come from an analysis of our own, which also says which tensors they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relay

from tvm_ethosu.partition.liveness import Interval, Role, Storage, intervals
from tvm_ethosu.partition.memory_report import (
    CallReport,
    LiveTensor,
    UsedMemoryReport,
    total_bytes,
)
from tvm_ethosu.partition.relay.let_chain import (
    Binding,
    Call,
    LetChain,
    Storages,
    free_vars,
    function_operators,
    read_chain,
    read_storages,
    strip_on_device,
    type_bytes,
)
from tvm_ethosu.partition.relay.prepare import Prepared, is_npu_function, prepare
from tvm_ethosu.scheduler.budget import CallSite, IoPlace

USED_MEMORY = "used_memory"
IO_USED_MEMORY = "io_used_memory"


def _live_variables(chain: LetChain) -> list[set[relay.Var]]:
    """Return for each binding the variables that are live before or after it, classic liveness."""
    live = set(free_vars(chain.result))
    around: list[set[relay.Var]] = []
    for binding in reversed(chain.bindings):
        before = (live - {binding.var}) | set(free_vars(binding.value))
        around.append(live | before)
        live = before
    return around[::-1]


def _tvm_numbers(chain: LetChain, calls: Iterable[Call]) -> dict[int, int]:
    """Return TVM's number for the call at each binding: every live variable counts by its type."""
    around = _live_variables(chain)
    sizes: dict[relay.Var, int] = {}

    def size(var: relay.Var) -> int:
        if var not in sizes:
            sizes[var] = type_bytes(var.checked_type, f"variable '{var.name_hint}'")
        return sizes[var]

    return {call.binding: sum(map(size, around[call.binding])) for call in calls}


def _io_bytes(main: relay.Function) -> int:
    types = [param.checked_type for param in main.params] + [main.body.checked_type]
    return sum(type_bytes(of, "an input or output") for of in types)


def _is_let_bound(chain: LetChain, call: Call) -> bool:
    value = chain.bindings[call.binding].value
    return isinstance(strip_on_device(value.op), relay.Var)


class _Reporter:
    """Turns storages and intervals into the tensors that users see."""

    def __init__(self, chain: LetChain, found: Storages) -> None:
        self.chain = chain
        self.found = found
        outputs = set(found.read(chain.result))
        given = [i for i, s in enumerate(found.all) if s.role in (Role.INPUT, Role.CONSTANT)]
        self.intervals = intervals(len(found.all), found.steps, given, outputs)
        self.outputs = outputs
        self.names = {call.step: call.name for call in found.calls if call.step is not None}
        self.tensors = [self._tensor(index) for index in range(len(found.all))]

    def _tensor(self, index: int) -> LiveTensor:
        storage: Storage = self.found.all[index]
        interval: Interval = self.intervals[index]
        is_output = index in self.outputs
        role = Role.OUTPUT if is_output and storage.role is Role.INNER else storage.role
        producer = self.names.get(interval.first, "an operator")
        last = self.names.get(interval.last, "an operator")
        return LiveTensor(
            storage.name,
            storage.shape,
            storage.dtype,
            storage.size_bytes,
            role,
            "network input" if interval.first < 0 else producer,
            "network output" if is_output else last,
        )

    def live(self, step: int, when: str) -> tuple[LiveTensor, ...]:
        """Return tensors, constants apart, in use ``before``, ``during`` or ``after`` a step."""
        return tuple(
            tensor
            for tensor, interval in zip(self.tensors, self.intervals, strict=True)
            if tensor.role is not Role.CONSTANT and getattr(interval, when)(step)
        )

    def idle_io(self, step: int) -> tuple[LiveTensor, ...]:
        """Return network inputs and outputs that are not in use at a step."""
        live = set(self.live(step, "during"))
        return tuple(
            tensor
            for tensor in self.tensors
            if tensor.role in (Role.INPUT, Role.OUTPUT) and tensor not in live
        )

    def ending(self, step: int, args: Sequence[relay.Expr]) -> dict[int, Role]:
        """Return the arguments of a call whose memory nobody reads after it, and what they are.

        Each of them has one piece of memory for itself.
        """
        shown = [self.found.read(arg) for arg in args]
        read = Counter(storage for storages in shown for storage in storages)
        single = {at: storages[0] for at, storages in enumerate(shown) if len(storages) == 1}
        roles = {at: self.tensors[storage].role for at, storage in single.items()}
        return {
            at: roles[at]
            for at, storage in single.items()
            if read[storage] == 1
            and roles[at] is not Role.CONSTANT
            and self.intervals[storage].last == step
        }

    def made_outputs(self, call: Call) -> frozenset[int]:
        """Return the results of a call that are outputs of the network, each one once."""
        given = Counter(self.found.read(self.chain.result))
        made = self.found.of[self.chain.bindings[call.binding].var]
        return frozenset(at for at, storage in enumerate(made) if given[storage] == 1)

    def call(
        self, call: Call, step: int, used_memory_bytes: int, operators: tuple[str, ...] | None
    ) -> CallReport:
        """Return the report of one call, which is at a step."""
        args = strip_on_device(self.chain.bindings[call.binding].value).args
        ending = self.ending(step, args)
        return CallReport(
            call.name,
            function_operators(call.function) if operators is None else operators,
            used_memory_bytes,
            total_bytes(self.live(step, "before")),
            total_bytes(self.live(step, "during")),
            total_bytes(self.live(step, "after")),
            self.live(step, "during"),
            self.idle_io(step),
            is_npu_function(call.function),
            frozenset(ending),
            frozenset(at for at, role in ending.items() if role is Role.INPUT),
            self.made_outputs(call),
            tuple(self.name(arg) for arg in args),
        )

    def name(self, arg: relay.Expr) -> str:
        """Return the name of an argument's tensor, nothing where it is several or a constant."""
        tensors = [self.tensors[storage] for storage in self.found.read(arg)]
        is_one = len(tensors) == 1 and tensors[0].role is not Role.CONSTANT
        return tensors[0].name if is_one else ""


def _npu_operators(mod: tvm.IRModule) -> dict[str, tuple[str, ...]]:
    """Return the operators of each NPU function by its global symbol."""
    return {
        str(function.attrs["global_symbol"]): function_operators(function)
        for function in mod.functions.values()
        if isinstance(function, relay.Function) and is_npu_function(function)
    }


def _analyze(prepared: Prepared, operators: Mapping[str, tuple[str, ...]]) -> UsedMemoryReport:
    main = prepared.mod["main"]
    chain = read_chain(prepared.mod)
    found = read_storages(chain)
    calls = [call for call in found.calls if _is_let_bound(chain, call)]
    numbers = _tvm_numbers(chain, calls)
    reporter = _Reporter(chain, found)
    reports = tuple(
        reporter.call(call, call.step, numbers[call.binding], operators.get(call.name))
        for call in calls
        if call.step is not None
    )
    return UsedMemoryReport(reports, _io_bytes(main), prepared.passes)


def _target(target: tvm.target.Target | str) -> tvm.target.Target:
    return target if isinstance(target, tvm.target.Target) else tvm.target.Target(target)


def analyze_used_memory(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    target: tvm.target.Target | str = "llvm",
) -> UsedMemoryReport:
    """Return who holds the memory at each call of a Relay module, which is not changed.

    Args:
        mod: a module at any stage: as a frontend gives it, fused, partitioned, in A-normal form.
        params: constants by parameter name; unbound parameters count as network inputs.
        target: what the module will be built for; operators are fused accordingly.

    Raises:
        UserError: a shape is dynamic, or there is control flow or recursion.
    """
    prepared = prepare(with_stubs(mod), _target(target), params, keep_values=False)
    return _analyze(prepared, _npu_operators(mod))


def annotate_used_memory(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None = None,
    *,
    target: tvm.target.Target | str = "llvm",
) -> tvm.IRModule:
    """Return the module, fused and in A-normal form, with the attributes of AnnotateUsedMemory.

    Before: ``let %f = fn (%p, Primitive=1) {..}; let %a = %f(%x); ..``
    After:  ``let %f = fn (%p, Primitive=1, used_memory=[96]) {..}; let %a = %f(%x); ..``

    ``main`` gets ``io_used_memory``. TVM's graph executor takes no module in this form: build the
    original one for it, and use ``analyze_used_memory``.

    Raises:
        UserError: as ``analyze_used_memory``.
    """
    prepared = prepare(mod, _target(target), params)
    main = prepared.mod["main"]
    chain = read_chain(prepared.mod)
    calls = [c for c in read_storages(chain).calls if _is_let_bound(chain, c)]
    numbers = _tvm_numbers(chain, calls)
    of_function: dict[relay.Function, list[int]] = {}
    for call in calls:
        of_function.setdefault(call.function, []).append(numbers[call.binding])
    body = _with_numbers(main.body, of_function)
    annotated = relay.Function(main.params, body, main.ret_type, main.type_params, main.attrs)
    annotated = annotated.with_attr(IO_USED_MEMORY, tvm.tir.IntImm("uint64", _io_bytes(main)))
    result = tvm.IRModule(prepared.mod.functions, attrs=prepared.mod.attrs)
    result["main"] = annotated
    return relay.transform.InferType()(result)


def _with_numbers(body: relay.Expr, of_function: Mapping[relay.Function, list[int]]) -> relay.Expr:
    """Rebuild a let chain with ``used_memory`` on the functions that it binds."""
    bindings: list[Binding] = []
    while isinstance(body, relay.Let):
        value = body.value
        if isinstance(value, relay.Function) and value in of_function:
            numbers = [tvm.tir.IntImm("uint64", number) for number in of_function[value]]
            value = value.with_attr(USED_MEMORY, numbers)
        bindings.append(Binding(body.var, value))
        body = body.body
    for binding in reversed(bindings):
        body = relay.Let(binding.var, binding.value, body)
    return body


def _stub(function: relay.Function) -> relay.Function:
    """Return the function with a body of the same type that costs TVM's passes nothing."""
    result = function.checked_type.ret_type

    def zeros(of: tvm.ir.Type) -> relay.Expr:
        if isinstance(of, relay.TupleType):
            return relay.Tuple([zeros(item) for item in of.fields])
        return relay.op.zeros(of.shape, of.dtype)

    return relay.Function(function.params, zeros(result), result, [], function.attrs)


def with_stubs(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with empty NPU functions: only their types matter to memory."""
    npu = {
        var: _stub(function)
        for var, function in mod.functions.items()
        if isinstance(function, relay.Function) and is_npu_function(function)
    }
    if not npu:
        return mod
    others = dict(mod.functions.items()) | npu
    return relay.transform.InferType()(tvm.IRModule(others, attrs=mod.attrs))


def call_site(call: CallReport) -> CallSite:
    """Return what a call leaves to an NPU function, by the tensors that others hold."""
    io = [tensor for tensor in call.live if tensor.role in (Role.INPUT, Role.OUTPUT)]
    return CallSite(
        call.used_memory_bytes,
        scratch_bytes=total_bytes(tensor for tensor in call.live if tensor.role is Role.SCRATCH),
        live_io_bytes=total_bytes(io),
        idle_io_bytes=total_bytes(call.idle_io),
        alignment_bytes=sum(
            tensor.aligned_bytes - tensor.size_bytes for tensor in (*call.live, *call.idle_io)
        ),
        ending=call.ending,
        ending_inputs=call.ending_inputs,
        made_outputs=call.made_outputs,
    )


def io_place() -> IoPlace:
    """Return where the pass context in force puts the network's inputs and outputs."""
    config = tvm.transform.PassContext.current().config
    in_pool = "tir.usmp.use_workspace_io" in config and bool(config["tir.usmp.use_workspace_io"])
    return IoPlace.IN_POOL if in_pool else IoPlace.BESIDE_POOL


def learn_call_sites(
    mod: tvm.IRModule, target: tvm.target.Target
) -> dict[str, tuple[CallSite, ...]]:
    """Return for each NPU function, by global symbol, the memory at each of its calls.

    ``target`` is what the CPU's part will be built for; its operators are fused accordingly.
    """
    sites: dict[str, tuple[CallSite, ...]] = {}
    for call in analyze_used_memory(mod, target=target).calls:
        if call.is_npu:
            sites[call.function] = (*sites.get(call.function, ()), call_site(call))
    return sites
