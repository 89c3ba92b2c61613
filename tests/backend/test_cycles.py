"""Cycles that a plan is chosen for are those that the simulator finds in its stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import compiling
from tests.compiling import emit, plan
from tests.scheduler.builders import chain, operand, random_chain
from tvm_ethosu.backend import sim
from tvm_ethosu.backend.emit import Kernel, commands
from tvm_ethosu.backend.program import Program
from tvm_ethosu.scheduler import hardware
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import ARCHS, Arch
from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    DType,
    ElementKind,
    ElementWise,
    Operand,
    Rescale,
    Shape,
    Tensor,
)
from tvm_ethosu.scheduler.search import Objective


def _reports(program: Program, arch: Arch) -> list[sim.CycleReport]:
    accelerator = sim.Accelerator(arch.accelerator.value)
    system = sim.SYSTEM_CONFIGS[arch.default_system_config]
    return [
        sim.estimate(sim.decode(i.words, accelerator), system, sim.MemoryMode.SHARED_SRAM)
        for i in program.invocations
    ]


def _planned_cycles(allocation: Allocation, arch: Arch) -> list[float]:
    """What the plan counts for each command, one after the other."""
    schedule = allocation.schedule
    estimator = Estimator(schedule.layouts, compiling.hardware(arch))
    timed = iter(schedule.timed)
    return [
        next(timed).cycles if isinstance(c, Kernel) else estimator.transfer_cycles(c.size_bytes)
        for c in commands(schedule)
    ]


@given(st.integers(0, 100_000), st.sampled_from(ARCHS), st.sampled_from(Objective))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_each_operation_takes_what_it_was_planned_for(
    seed: int, arch: Arch, objective: Objective
) -> None:
    allocation = plan(random_chain(seed), arch, None, objective)
    found = [op.total for r in _reports(emit(allocation, arch), arch) for op in r.operations]
    assert found == pytest.approx(_planned_cycles(allocation, arch), rel=1e-9)


@given(st.integers(0, 100_000), st.sampled_from(ARCHS))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_a_stream_takes_no_longer_than_its_plan(seed: int, arch: Arch) -> None:
    # The plan lets each transfer wait for the kernels before it, the stream only where it must.
    allocation = plan(random_chain(seed), arch)
    total = sum(report.total for report in _reports(emit(allocation, arch), arch))
    kernels = sum(timed.cycles for timed in allocation.schedule.timed)
    assert kernels * (1 - 1e-9) <= total <= allocation.schedule.cycles * (1 + 1e-9)


def test_figures_are_those_of_the_simulator() -> None:
    for target in (hardware.make_target(arch, None) for arch in ARCHS):
        theirs = sim.hardware.TIMINGS[sim.Accelerator(target.arch.accelerator.value)]
        block = theirs.microblock
        assert target.timing.microblock == (block.height, block.width, block.depth)
        assert target.timing.port_bytes == theirs.port_bytes
        assert vars(target.timing.output) == vars(theirs.output)
        assert (target.timing.lookup, target.timing.clamp) == (theirs.lookup, theirs.clamp)
    assert {s.name for s in hardware.SYSTEM_CONFIGS} == set(sim.SYSTEM_CONFIGS)
    for system in hardware.SYSTEM_CONFIGS:
        other = sim.SYSTEM_CONFIGS[system.name]
        for ours, theirs_memory in ((system.sram, other.sram), (system.second, other.second)):
            assert ours.share == theirs_memory.bandwidth_share
            assert ours.burst_bytes == theirs_memory.burst_bytes
            assert ours.read_latency == theirs_memory.read_latency
            assert ours.write_latency == theirs_memory.write_latency


@pytest.mark.parametrize("arch", ARCHS, ids=lambda arch: arch.accelerator.value)
@pytest.mark.parametrize("first", [False, True], ids=["second operand", "first operand"])
def test_a_constant_operand_is_read_from_where_constants_lie(arch: Arch, first: bool) -> None:
    graph = chain([Shape(1, 12, 9, 32)] * 2)
    shape, (conv,) = graph.ops[0].ofm.shape, graph.ops
    made, result = operand("t1", shape), operand("t2", shape)
    factors = Operand("k", shape, DType.I8)
    product = ElementWise(
        "product",
        factors if first else made,
        result,
        Clamp(-128, 127),
        ElementKind.MUL,
        made if first else factors,
        Rescale(1 << 30, 38),
    )
    data = np.ones((1, shape.h, shape.w, shape.c), np.int8)
    with_product = replace(
        graph,
        ops=(conv, product),
        tensors={n: Tensor(n, shape, DType.I8, n) for n in ("t0", "t1", "t2", "k")},
        constants={**graph.constants, "k": Constant("k", data)},
        outputs=("t2",),
    )
    allocation = plan(with_product, arch)
    found = [op.total for r in _reports(emit(allocation, arch), arch) for op in r.operations]
    assert found == pytest.approx(_planned_cycles(allocation, arch), rel=1e-9)
