"""Memory of small programs, worked out by hand, and equality with TVM's pass on many others."""

from __future__ import annotations

import dataclasses
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relay

from tests.partition.networks import partition, two_functions
from tests.partition.test_used_memory_upstream import (
    annotated_by_tvm,
    annotations,
    module,
    primitive,
)
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.build_context import collect_builds
from tvm_ethosu.partition import analyze_used_memory, annotate_used_memory
from tvm_ethosu.partition.liveness import Role
from tvm_ethosu.partition.memory_report import UsedMemoryReport
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.relay.prepare import prepare
from tvm_ethosu.partition.relay.quiet import quiet_tuning_logs
from tvm_ethosu.partition.tflite_file import load_tflite, parse_tflite
from tvm_ethosu.scheduler.errors import UserError

SHAPE = (1, 2, 2, 4)  # 16 bytes of int8


def _x() -> relay.Var:
    return relay.var("x", shape=SHAPE, dtype="int8")


def _unary() -> relay.Function:
    return primitive(SHAPE, compute=relay.nn.relu)


def _add() -> relay.Function:
    return primitive(SHAPE, SHAPE, compute=relay.add)


def _bytes(report: UsedMemoryReport) -> list[tuple[int, int, int]]:
    return [(call.before_bytes, call.during_bytes, call.after_bytes) for call in report.calls]


def test_linear_chain() -> None:
    x = _x()
    report = analyze_used_memory(module([x], _unary()(_unary()(_unary()(x)))))
    assert _bytes(report) == [(16, 32, 16), (16, 32, 16), (16, 32, 16)]
    assert report.io_used_memory_bytes == 16 + 16


def test_residual_keeps_its_input_until_it_is_added() -> None:
    x = _x()
    a = _unary()(x)
    b = _unary()(a)
    report = analyze_used_memory(module([x], _add()(a, b)))
    assert _bytes(report) == [(16, 32, 16), (16, 32, 32), (32, 48, 16)]
    assert report.peak_index == 2
    kept = next(t for t in report.calls[1].live if t.producer == "fused_relu" and t.size_bytes)
    assert kept.role is Role.INNER


def test_two_branches_and_their_concatenation() -> None:
    x = _x()
    concat = primitive(SHAPE, SHAPE, compute=lambda a, b: relay.concatenate([a, b], axis=3))
    report = analyze_used_memory(module([x], concat(_unary()(x), _unary()(x))))
    assert _bytes(report) == [(16, 32, 32), (32, 48, 32), (32, 64, 32)]


def test_three_towers_of_different_types() -> None:
    params = [
        relay.var(name, shape=SHAPE, dtype=dtype)
        for name, dtype in (("a", "int8"), ("b", "int16"), ("c", "int32"))
    ]
    towers = [
        primitive(SHAPE, compute=relay.nn.relu, dtype=str(p.type_annotation.dtype))(p)
        for p in params
    ]
    report = analyze_used_memory(module(params, relay.Tuple(towers)))
    # Inputs of 16, 32 and 64 bytes; each tower frees its input and makes as much again.
    during = [112 + 16, 112 + 32, 112 + 64]
    assert [call.during_bytes for call in report.calls] == during
    assert report.io_used_memory_bytes == 2 * (16 + 32 + 64)


@pytest.mark.parametrize(
    ("dtype", "size_bytes"),
    [("int8", 16), ("int16", 32), ("int32", 64), ("float32", 64), ("bool", 16)],
)
def test_element_types(dtype: str, size_bytes: int) -> None:
    x = relay.var("x", shape=SHAPE, dtype=dtype)
    copy = primitive(SHAPE, compute=relay.copy, dtype=dtype)
    report = analyze_used_memory(module([x], copy(x)))
    assert _bytes(report) == [(size_bytes, 2 * size_bytes, size_bytes)]


def test_fields_of_a_tuple_count_once_in_the_report_and_again_in_tvms_number() -> None:
    x = _x()
    split = primitive(SHAPE, compute=lambda p: relay.split(p, 2, axis=3).astuple())
    pair = split(x)
    halves = [relay.TupleGetItem(pair, i) for i in (0, 1)]
    small = (1, 2, 2, 2)
    add = primitive(small, small, compute=relay.add)
    report = analyze_used_memory(module([x], add(*halves)))
    assert _bytes(report) == [(16, 32, 16), (16, 24, 8)]
    assert [call.used_memory_bytes for call in report.calls] == [32, 24]


def test_a_late_used_field_of_a_split_stays_alive() -> None:
    x = _x()
    split = primitive(SHAPE, compute=lambda p: relay.split(p, 2, axis=3).astuple())
    pair = split(x)
    small = (1, 2, 2, 2)
    relu = primitive(small, compute=relay.nn.relu)
    add = primitive(small, small, compute=relay.add)
    first = relu(relu(relay.TupleGetItem(pair, 0)))
    report = analyze_used_memory(module([x], add(first, relay.TupleGetItem(pair, 1))))
    # split: 16 + 16; relu: half, half and its result; relu: the same; add: two halves, result.
    assert [call.during_bytes for call in report.calls] == [32, 24, 24, 24]


def test_the_same_function_at_two_sites_has_two_numbers() -> None:
    x = _x()
    f = _unary()
    a = f(x)
    report = analyze_used_memory(module([x], _add()(a, f(a))))
    assert [call.during_bytes for call in report.calls] == [32, 32, 48]
    assert report.used_memory()["fused_relu"] == (32, 32)


def test_an_input_returned_directly_lives_all_the_time() -> None:
    x = _x()
    report = analyze_used_memory(module([x], relay.Tuple([x, _unary()(_unary()(x))])))
    assert _bytes(report) == [(16, 32, 32), (32, 48, 32)]
    (kept,) = [t for t in report.calls[1].live if t.producer == "network input"]
    assert kept.last_consumer == "network output"


def test_an_unused_result_takes_memory_only_while_it_is_made() -> None:
    x, unused, out = _x(), relay.var("unused"), relay.var("out")
    body = relay.Let(unused, _unary()(x), relay.Let(out, _unary()(x), out))
    report = analyze_used_memory(module([x], body))
    assert _bytes(report) == [(16, 32, 16), (16, 32, 16)]


def test_constants_are_not_memory() -> None:
    x = _x()
    weights = relay.const(np.ones(SHAPE, np.int8))
    report = analyze_used_memory(module([x], _add()(x, weights)))
    assert _bytes(report) == [(16, 32, 16)]
    assert report.calls[0].used_memory_bytes == 48
    assert all(tensor.role is not Role.CONSTANT for tensor in report.calls[0].live)


def test_a_reshape_is_another_name_for_its_input() -> None:
    x = _x()
    reshape = relay.Function(
        [p := relay.var("p", shape=SHAPE, dtype="int8")], relay.reshape(p, (1, 16))
    )
    reshape = reshape.with_attr({"Primitive": 1, "relay.reshape_only": 1})
    flat = primitive((1, 16), compute=relay.nn.relu)
    report = analyze_used_memory(module([x], flat(reshape(_unary()(x)))))
    assert [call.during_bytes for call in report.calls] == [32, 32]


def _endings(report: UsedMemoryReport) -> list[tuple[set[int], set[int]]]:
    return [(set(call.ending), set(call.ending_inputs)) for call in report.calls]


def test_an_argument_ends_at_its_last_reader() -> None:
    x = _x()
    inner = _unary()(x)
    report = analyze_used_memory(module([x], _add()(_unary()(inner), inner)))
    assert _endings(report) == [({0}, {0}), (set(), set()), ({0, 1}, set())]


def test_an_argument_read_under_another_name_does_not_end() -> None:
    x = _x()
    reshape = relay.Function(
        [p := relay.var("p", shape=SHAPE, dtype="int8")], relay.reshape(p, (1, 16))
    )
    reshape = reshape.with_attr({"Primitive": 1, "relay.reshape_only": 1})
    flat = primitive((1, 16), compute=relay.nn.relu)
    body = relay.Tuple([_unary()(x), flat(reshape(x))])
    assert _endings(analyze_used_memory(module([x], body)))[0] == (set(), set())


def test_an_argument_given_twice_does_not_end() -> None:
    x = _x()
    assert _endings(analyze_used_memory(module([x], _add()(x, x)))) == [(set(), set())]


def test_constants_and_network_outputs_never_end() -> None:
    x = _x()
    inner = _add()(x, relay.const(np.ones(SHAPE, np.int8)))
    report = analyze_used_memory(module([x], relay.Tuple([inner, _unary()(inner)])))
    assert _endings(report) == [({0}, {0}), (set(), set())]


def test_a_tensor_across_an_npu_function_is_seen_with_its_owner() -> None:
    report = analyze_used_memory(partition(two_functions()), target="c")
    npu = [call for call in report.calls if call.is_npu]
    assert [call.function for call in npu] == [
        "tvmgen_default_ethos_u_main_0",
        "tvmgen_default_ethos_u_main_1",
    ]
    first = {(t.shape, t.producer) for t in npu[0].live}
    assert ((1, 8, 8, 16), "network input") in first
    assert ((1, 8, 8, 32), "tvmgen_default_ethos_u_main_0") in first
    assert [t.name for t in npu[0].idle_io] != []


def test_control_flow_is_refused_by_name() -> None:
    x, flag = _x(), relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.nn.relu(x), relay.abs(x))
    with pytest.raises(UserError, match=r"control flow .* If"):
        analyze_used_memory(module([x, flag], body))


def test_recursion_is_refused_by_name() -> None:
    x = _x()
    loop = relay.GlobalVar("loop")
    mod = tvm.IRModule({loop: relay.Function([x], loop(x), relay.TensorType(SHAPE, "int8"))})
    y = _x()
    mod["main"] = relay.Function([y], loop(y))
    with pytest.raises(UserError, match="@loop"):
        analyze_used_memory(mod)


def test_a_module_is_analysed_at_any_stage_with_the_same_numbers() -> None:
    x = _x()
    raw = module([x], relay.add(relay.nn.max_pool2d(x, (1, 1), layout="NHWC"), x))
    fused = relay.transform.FuseOps(2)(raw)
    # ToANormalForm changes the module that it is given.
    anf = relay.transform.ToANormalForm()(relay.transform.FuseOps(2)(raw))
    numbers = [analyze_used_memory(mod).used_memory() for mod in (raw, fused, anf)]
    assert numbers[0] == numbers[1] == numbers[2]
    assert "ToANormalForm" not in analyze_used_memory(anf).prepared_by
    assert "ToANormalForm" in analyze_used_memory(fused).prepared_by


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation of a random program: which function, on which earlier values."""

    kind: str
    operands: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Program:
    """A random DAG: inputs of several types, tuples, shared functions, unused results."""

    inputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    results: int

    def function(self, operation: Operation, source: str) -> relay.Function:
        of = operation.dtype
        match operation.kind:
            case "add":
                return primitive(SHAPE, SHAPE, compute=relay.add, dtype=of)
            case "cast":
                return primitive(SHAPE, compute=lambda p: relay.cast(p, of), dtype=source)
            case "pair":
                split = lambda p: relay.split(p, 1, axis=3).astuple()  # noqa: E731
                return primitive(SHAPE, compute=split, dtype=of)
            case _:
                return primitive(SHAPE, compute=relay.nn.relu, dtype=of)

    def module(self, *, share: bool) -> tvm.IRModule:
        """The program in Relay; with ``share`` all calls of the kind 'shared' use one function."""
        params = [relay.var(f"x{i}", shape=SHAPE, dtype=d) for i, d in enumerate(self.inputs)]
        values: list[relay.Expr] = list(params)
        dtypes = list(self.inputs)
        shared: dict[str, relay.Function] = {}
        for operation in self.operations:
            function = self.function(operation, dtypes[operation.operands[0]])
            if share and operation.kind == "shared":
                function = shared.setdefault(operation.dtype, function)
            call = function(*(values[index] for index in operation.operands))
            values.append(relay.TupleGetItem(call, 0) if operation.kind == "pair" else call)
            dtypes.append(operation.dtype)
        results = values[-self.results :]
        return module(params, relay.Tuple(results) if len(results) > 1 else results[0])


@st.composite
def _programs(draw: st.DrawFn) -> Program:
    types = st.sampled_from(["int8", "int16", "float32", "bool"])
    inputs = tuple(draw(st.lists(types, min_size=1, max_size=3)))
    dtypes = list(inputs)
    operations = []
    for _ in range(draw(st.integers(1, 9))):
        first = draw(st.integers(0, len(dtypes) - 1))
        kind = draw(st.sampled_from(["shared", "own", "add", "cast", "pair"]))
        dtype = draw(types) if kind == "cast" else dtypes[first]
        same = [index for index, of in enumerate(dtypes) if of == dtypes[first]]
        second = (draw(st.sampled_from(same)),) if kind == "add" else ()
        operations.append(Operation(kind, (first, *second), dtype))
        dtypes.append(dtype)
    return Program(inputs, tuple(operations), draw(st.integers(1, 3)))


@pytest.mark.slow
@given(_programs())
@settings(derandomize=True, deadline=None, max_examples=500)
def test_500_random_programs_have_the_numbers_of_tvms_pass(program: Program) -> None:
    _check_numbers(program)


@given(_programs())
@settings(derandomize=True, deadline=None, max_examples=60)
def test_random_programs_have_the_numbers_of_tvms_pass(program: Program) -> None:
    _check_numbers(program)


def _check_numbers(program: Program) -> None:
    alone = program.module(share=False)
    expected = annotations(annotated_by_tvm(program.module(share=False)))
    assert annotations(annotate_used_memory(alone)) == expected
    # TVM's own pass stops at a function that is called again after another one; its numbers
    # are those of the calls with functions of their own.
    report = analyze_used_memory(program.module(share=True))
    assert sorted(c.used_memory_bytes for c in report.calls) == sorted(
        chain.from_iterable(expected[0])
    )


@given(_programs())
@settings(derandomize=True, deadline=None, max_examples=30)
def test_the_analysis_changes_nothing(program: Program) -> None:
    mod = program.module(share=True)
    before = str(mod)
    analyze_used_memory(mod)
    annotate_used_memory(mod)
    assert str(mod) == before


def _annotated_by_tvm_like_aot(mod: tvm.IRModule, params: object) -> tvm.IRModule:
    """TVM's pass on the module that the AOT executor would give it."""
    prepared = prepare(mod, tvm.target.Target("llvm"), params).mod
    annotate = tvm.get_global_func("relay._transform.AnnotateUsedMemory")()
    return annotate(prepared)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50", "mobilenet"])
def test_relay_testing_networks_have_the_numbers_of_tvms_pass(name: str) -> None:
    from tvm.relay import testing

    if name == "mobilenet":
        mod, params = testing.mobilenet.get_workload()
    else:
        mod, params = testing.resnet.get_workload(num_layers=int(name.split("-")[1]))
    ours = annotations(annotate_used_memory(mod, params))
    assert ours == annotations(_annotated_by_tvm_like_aot(mod, params))
    assert len(ours[0]) > 20


@pytest.mark.slow
def test_resnet_is_analysed_and_then_built_for_the_graph_executor() -> None:
    from tvm.contrib import graph_executor
    from tvm.relay import testing

    mod, params = testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
    data = np.random.default_rng(4).standard_normal((1, 3, 32, 32)).astype("float32")

    def run() -> np.ndarray:
        with quiet_tuning_logs():
            built = relay.build(mod, target="llvm", params=params)
        executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
        executor.set_input("data", data)
        executor.run()
        return executor.get_output(0).numpy()

    before = run()
    report = analyze_used_memory(mod, params)
    np.testing.assert_array_equal(run(), before)
    assert report.calls[report.peak_index].during_bytes == report.peak_bytes


@pytest.mark.parametrize("inside_main", [True, False])
def test_partitioned_modules_have_the_numbers_that_relay_build_writes(inside_main: bool) -> None:
    module = partition(two_functions(), accelerator_config="ethos-u55-128")
    options = {"interface-api": "c", "unpacked-api": True}
    with collect_builds() as builds:
        relay.build(
            module,
            target=tvm.target.Target("ethos-u/ethos-u55-128"),
            executor=relay.backend.Executor("aot", options),
            runtime=relay.backend.Runtime("crt"),
        )
    expected = {f.attrs.name: f.attrs.used_memory for f in builds[0].compiled}
    target = tvm.target.Target("ethos-u/ethos-u55-128")
    if inside_main:
        report = analyze_used_memory(module, target=target)
        found = report.used_memory()
    else:
        body, found = annotate_used_memory(module, target=target)["main"].body, {}
        while isinstance(body, relay.Let):
            attrs = dict(getattr(body.value, "attrs", None) or {})
            if "global_symbol" in attrs:
                found[str(attrs["global_symbol"])] = tuple(map(int, attrs["used_memory"]))
            body = body.body
    assert {name: found[name] for name in expected} == expected


def test_a_cpu_tensor_that_lives_across_an_npu_call_is_held_during_it() -> None:
    net = NetBuilder("int8", seed=4)
    kept = net.log_softmax(net.input((1, 4, 4, 8)))
    after = net.log_softmax(net.conv2d(net.input((1, 4, 4, 3)), filters=8))
    net.output(net.add(kept, after))
    module = partition(parse_tflite(net.build()), accelerator_config="ethos-u55-128")
    report = analyze_used_memory(module, target="ethos-u/ethos-u55-128")
    during = next(call for call in report.calls if call.is_npu)
    # Read: 48 bytes; written: 128; across: 128; no inner tensor, so a byte of scratch.
    assert sorted(tensor.size_bytes for tensor in during.live) == [1, 48, 128, 128]
    (across,) = [t for t in during.live if during.function not in (t.producer, t.last_consumer)]
    assert across.size_bytes == 128
    assert across.last_consumer.startswith("tvmgen_default_ethos_u_main")


@pytest.mark.slow
def test_all_networks_that_tvm_imports_have_the_numbers_of_tvms_pass(shared: Path) -> None:
    compared = 0
    for path in sorted((shared / "models").rglob("*.tflite")):
        try:
            mod, params = to_relay(load_tflite(path))
        except UserError:
            continue
        prepared = prepare(mod, tvm.target.Target("c"), params).mod
        ours = annotations(annotate_used_memory(prepared))
        annotate = tvm.get_global_func("relay._transform.AnnotateUsedMemory")()
        assert ours == annotations(annotate(prepared)), path.name
        compared += 1
    assert compared >= 8
