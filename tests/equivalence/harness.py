"""Runs a TFLite network on the simulated NPU without a build, and beside it in TFLite Micro.

``run_on_npu`` walks the partitioned main function itself: network inputs go to NPU functions as
they are, so nothing but the compiler's bytes takes part. An operator left to the CPU is an error
there; networks that mix both go through ``tvm_ethosu.backend.check`` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tvm import relay

from tests import compiling
from tvm_ethosu.backend.host import LoadedProgram, load_program, run_program
from tvm_ethosu.backend.network import partition_file
from tvm_ethosu.backend.reference import Reference
from tvm_ethosu.partition import EthosUOptions, explain_partition
from tvm_ethosu.partition.relay.legalize import to_npu_graph
from tvm_ethosu.partition.relay.parse import call_name
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.tflite_file import parse_tflite
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import ARCHS, Arch, find_arch
from tvm_ethosu.scheduler.ir import NpuGraph
from tvm_ethosu.scheduler.search import Objective

Array = npt.NDArray[Any]
Inputs = Sequence[Array]
Plan = Callable[[NpuGraph, Arch], Allocation]

_RESHAPES = ("reshape", "squeeze", "expand_dims")
ACCELERATORS = tuple(arch.accelerator.value for arch in ARCHS)


def _settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def examples_of(
    cases: st.SearchStrategy[Any], check: Callable[[Any], None], quick: int = 20
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return a test of ``quick`` examples, and one of 200 that is marked slow."""

    def over(examples: int) -> Callable[..., None]:
        @_settings(examples)
        @given(cases)
        def test(case: Any) -> None:
            check(case)

        return test

    return over(quick), pytest.mark.slow(over(200))


# --- compiling and running ------------------------------------------------------------------------


@dataclass(frozen=True)
class NpuNetwork:
    """A partitioned network; ``graphs`` by the name of the NPU function.

    ``inputs`` names the network's inputs: the importer orders the parameters by first use, and
    leaves out those that nothing uses.
    """

    module: tvm.IRModule
    graphs: Mapping[str, NpuGraph]
    inputs: tuple[str, ...]

    @property
    def cpu_reasons(self) -> dict[str, str]:
        """Return why operators are not on the NPU, by their calls in Relay; not idle reshapes."""
        return {
            decision.operator: decision.reason
            for decision in explain_partition(self.module)
            if not decision.on_npu and "only rearranges memory" not in decision.reason
        }


def partition(data: bytes, accelerator: str = "ethos-u55-256") -> NpuNetwork:
    """Partition a TFLite file."""
    file = parse_tflite(data)
    names = tuple(file.tensors[index].name for index in file.inputs)
    return network_of(partition_file(file, EthosUOptions(accelerator)), names)


def network_of(module: tvm.IRModule, inputs: Sequence[str] = ()) -> NpuNetwork:
    """Return the graphs of a partitioned module; by default in the order of its parameters."""
    graphs = {
        name: to_npu_graph(function, name, with_scratch=True)
        for name, function in npu_functions(module).items()
    }
    names = tuple(inputs) or tuple(str(param.name_hint) for param in module["main"].params)
    return NpuNetwork(module, graphs, names)


def plan_for_speed(graph: NpuGraph, arch: Arch) -> Allocation:
    """Plan without a limit."""
    return compiling.plan(graph, arch)


def plan_for_size(graph: NpuGraph, arch: Arch) -> Allocation:
    """Plan for the least memory."""
    return compiling.plan(graph, arch, None, Objective.SIZE)


def plan_between(graph: NpuGraph, arch: Arch) -> Allocation:
    """Plan for half of what there is to save."""
    most = plan_for_speed(graph, arch).scratch_bytes
    least = plan_for_size(graph, arch).scratch_bytes
    return compiling.plan(graph, arch, (most + least) // 2)


def load(
    network: NpuNetwork, accelerator: str, plan: Plan = plan_for_speed
) -> dict[str, LoadedProgram]:
    """Schedule and emit every NPU function for one accelerator."""
    arch = find_arch(accelerator)
    return {
        name: load_program(compiling.emit(plan(graph, arch), arch))
        for name, graph in network.graphs.items()
    }


def _bytes(data: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def _call(loaded: LoadedProgram, arguments: Inputs, result: relay.TupleType) -> list[Array]:
    """Run one NPU function; memory that it must not rely on is filled with a pattern."""
    results = [np.full([int(dim) for dim in of.shape], 0x55, str(of.dtype)) for of in result.fields]
    # The function was partitioned for one accelerator; another one's plan has its own scratch.
    results[-1] = np.full(max(loaded.program.scratch_bytes, 1), 0x55, np.int8)
    inputs = [_bytes(argument.copy()) for argument in arguments]
    outputs = [_bytes(array) for array in results]
    run_program(loaded, [*inputs, *outputs])
    for given_bytes, argument in zip(inputs, arguments, strict=True):
        np.testing.assert_array_equal(given_bytes, _bytes(argument), "an input was written to")
    return results


def run_on_npu(
    network: NpuNetwork, programs: Mapping[str, LoadedProgram], inputs: Inputs
) -> list[Array]:
    """Return the outputs of a network that is on the NPU as a whole."""
    main = network.module["main"]
    named = dict(zip(network.inputs, inputs, strict=True))
    values: dict[relay.Expr, Any] = {param: named[param.name_hint] for param in main.params}

    def value(expr: relay.Expr) -> Any:
        if expr not in values:
            values[expr] = compute(expr)
        return values[expr]

    def compute(expr: relay.Expr) -> Any:
        match expr:
            case relay.Constant():
                return expr.data.numpy()
            case relay.Tuple():
                return [value(field) for field in expr.fields]
            case relay.TupleGetItem():
                return value(expr.tuple_value)[expr.index]
            case relay.Call() if call_name(expr) == "annotation.stop_fusion":
                return value(expr.args[0])
            case relay.Call() if call_name(expr) in _RESHAPES:
                return value(expr.args[0]).reshape([int(dim) for dim in expr.checked_type.shape])
            case relay.Call() if isinstance(expr.op, relay.GlobalVar):
                arguments = [value(argument) for argument in expr.args]
                return _call(programs[expr.op.name_hint], arguments, expr.checked_type)
        raise AssertionError(f"left to the CPU: {network.cpu_reasons}")

    result = value(main.body)
    return result if isinstance(result, list) else [result]


# --- comparing ------------------------------------------------------------------------------------


def input_sets(data: bytes, seed: int, count: int = 2) -> list[list[Array]]:
    """Return random inputs over the whole range of their types, then the ends of the range."""
    file = parse_tflite(data)
    rng = np.random.default_rng(seed)
    shapes = [(file.tensors[i].shape, np.iinfo(file.tensors[i].dtype)) for i in file.inputs]

    def constant(which: str) -> list[Array]:
        return [np.full(shape, getattr(info, which), info.dtype) for shape, info in shapes]

    random = [
        [
            rng.integers(info.min, info.max, shape, info.dtype, endpoint=True)
            for shape, info in shapes
        ]
        for _ in range(count)
    ]
    return [*random, constant("min"), constant("max")]


def assert_equal(actual: Inputs, expected: Inputs, what: str) -> None:
    """Compare outputs byte for byte."""
    assert len(actual) == len(expected), what
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        assert ours.dtype == theirs.dtype, f"{what}: type of output {index}"
        np.testing.assert_array_equal(ours, theirs.reshape(ours.shape), f"{what}: output {index}")


def assert_exact(
    data: bytes,
    accelerators: Sequence[str] = ("ethos-u55-128",),
    seed: int = 0,
    inputs: Sequence[Inputs] | None = None,
    plans: Sequence[Plan] = (plan_for_speed,),
    unless: str = "",
) -> NpuNetwork:
    """Check that the whole network is on the NPU and equals TFLite Micro; return it.

    An example that stays on the CPU for the reason ``unless`` is none.
    """
    network = partition(data, accelerators[0])
    if unless:
        assume(all(unless not in reason for reason in network.cpu_reasons.values()))
    assert not network.cpu_reasons
    reference = Reference(data)
    sets = input_sets(data, seed) if inputs is None else inputs
    expected = [reference.run(each) for each in sets]
    for accelerator, plan in product(accelerators, plans):
        programs = load(network, accelerator, plan)
        for index, each in enumerate(sets):
            actual = run_on_npu(network, programs, each)
            what = f"{accelerator}, {plan.__name__}, inputs {index}"
            assert_equal(actual, expected[index], what)
    return network
