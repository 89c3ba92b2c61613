from __future__ import annotations

import pytest

from tests.backend.test_vela import many_outputs
from tests.compiling import compile_graph, plan
from tests.scheduler.builders import chain, residual
from tvm_ethosu.backend.emit import Kernel, split_invocations
from tvm_ethosu.backend.program import Program, Source, from_bytes, to_bytes
from tvm_ethosu.scheduler.arch import ARCHS, Arch, find_arch
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import NpuGraph, Shape


def _program(graph: NpuGraph, accelerator: str = "ethos-u55-128") -> Program:
    return compile_graph(graph, find_arch(accelerator))


@pytest.mark.parametrize("arch", ARCHS, ids=lambda arch: arch.accelerator.value)
def test_a_program_survives_being_written_as_bytes(arch: Arch) -> None:
    program = _program(residual(Shape(1, 4, 4, 16)), arch.accelerator.value)
    assert from_bytes(to_bytes(program)) == program


@pytest.mark.parametrize("data", [b"", b"{}", b"\n", b"[]\nabc", b"\xff\xfe\n"])
def test_bytes_that_are_no_program_are_refused(data: bytes) -> None:
    with pytest.raises(InternalError, match="NPU program"):
        from_bytes(data)


def test_a_program_cut_short_is_refused() -> None:
    data = to_bytes(_program(residual(Shape(1, 4, 4, 16))))
    with pytest.raises(InternalError, match="another size"):
        from_bytes(data[:-1])


def test_the_same_graph_gives_the_same_bytes() -> None:
    first, second = (to_bytes(_program(chain([Shape(1, 6, 5, 19)] * 4))) for _ in range(2))
    assert first == second


def test_base_pointers_are_constants_scratch_and_arguments() -> None:
    (invocation,) = _program(residual(Shape(1, 4, 4, 16))).invocations
    described = [(b.region, b.source, b.argument, b.read_only) for b in invocation.bindings]
    assert described == [
        (0, Source.CONSTANTS, -1, True),
        (1, Source.SCRATCH, -1, False),
        (2, Source.ARGUMENT, 0, True),
        (3, Source.ARGUMENT, 1, False),
    ]


def test_more_inputs_and_outputs_than_base_pointers_make_several_invocations() -> None:
    graph = many_outputs(13)
    runs = split_invocations(plan(graph, find_arch("ethos-u55-128")).schedule)
    assert [len(run) for run in runs] == [5, 5, 3]
    assert [c.step.op for run in runs for c in run if isinstance(c, Kernel)] == list(range(13))
    program = _program(graph)
    assert all(len(invocation.bindings) <= 8 for invocation in program.invocations)
    written = [b.argument for i in program.invocations for b in i.bindings if not b.read_only]
    assert sorted(argument for argument in written if argument >= 0) == list(range(1, 14))
