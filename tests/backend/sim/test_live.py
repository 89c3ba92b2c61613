"""Freed bytes: what reads or writes them is reported, with the tensor that was there before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.backend.sim.assembler import assemble
from tests.backend.sim.test_memory import Commands, absolute, dma
from tests.compiling import compile_graph
from tests.scheduler.builders import random_chain
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.host import Bytes, LoadedProgram, load_program, run_on
from tvm_ethosu.backend.program import FOR_EVER, SCRATCH_REGION, Program, ScratchTensor
from tvm_ethosu.backend.sim import (
    Accelerator,
    DecodeError,
    LiveTensor,
    MemoryFault,
    Region,
    RunReport,
    SimulationError,
    decode,
    run,
)
from tvm_ethosu.backend.sim.operations import BlockOperation
from tvm_ethosu.backend.vela_files import (
    Array,
    Core,
    Network,
    NpuOperator,
    VelaOptions,
    compile_with_vela,
    read_network,
    run_network,
)
from tvm_ethosu.scheduler.arch import find_arch
from tvm_ethosu.scheduler.search import Objective

U55 = Accelerator.U55_128
HAZARD_FREE = ("BLOCKDEP", 0)


def copies(*places: tuple[int, int]) -> Commands:
    """Return ABS of 16 bytes each from one place of region 1 to another."""
    return [
        command
        for source, target in places
        for command in (HAZARD_FREE, *absolute(IFM_BASE0=source, OFM_BASE0=target))
    ]


def execute(commands: Commands, *tensors: LiveTensor, inputs: int = 16) -> RunReport:
    data = np.zeros(96, np.uint8)
    regions = {
        0: Region(np.zeros(64, np.uint8), read_only=True),
        1: Region(data, initialised=False, written=((0, inputs),)),
    }
    return run(decode(assemble(commands), U55), regions, tensors=tensors)


def tensor(name: str, start: int, first: int, last: int, size: int = 16) -> LiveTensor:
    return LiveTensor(name, 1, start, start + size, first, last)


X = tensor("x", 0, -1, 0)


# --- by hand ------------------------------------------------------------------------------------


def test_reading_a_freed_byte_names_its_tensor_and_both_operations() -> None:
    commands = copies((0, 16), (16, 32), (16, 48))
    offsets = [op.offset for op in decode(assemble(commands), U55).operations]
    y, z, again = tensor("y", 16, 0, 1), tensor("z", 32, 1, 2), tensor("again", 48, 2, 2)
    with pytest.raises(MemoryFault) as caught:
        execute(commands, X, y, z, again)
    assert str(caught.value) == (
        f"word {offsets[2]} (ELEMENTWISE_ABS): IFM reads byte 0x10 of region 1, "
        f"which belonged to y until ELEMENTWISE_ABS at word {offsets[1]}"
    )
    assert execute(commands, X, replace(y, last=2), z, again)


def test_written_again_it_may_be_read_again() -> None:
    commands = copies((0, 16), (16, 32), (32, 0), (0, 48))
    tensors = [tensor("y", 16, 0, 1), tensor("z", 32, 1, 2), tensor("x2", 0, 2, 3)]
    assert execute(commands, X, *tensors, tensor("end", 48, 3, 3))


def test_an_input_is_freed_like_any_other() -> None:
    tensors = [tensor("y", 16, 0, 1), tensor("z", 32, 1, 1)]
    with pytest.raises(MemoryFault, match="which belonged to x until ELEMENTWISE_ABS at word"):
        execute(copies((0, 16), (0, 32)), X, *tensors)


def test_writing_where_nothing_lives_is_reported() -> None:
    commands = copies((0, 16), (16, 40))
    tensors = [tensor("y", 16, 0, 1), tensor("z", 32, 1, 1)]
    with pytest.raises(MemoryFault, match=r"OFM writes bytes \[0x28, 0x38\) of region 1, which"):
        execute(commands, X, *tensors)
    late = tensor("z", 40, 2, 3)
    with pytest.raises(MemoryFault, match="not those of a tensor that lives now"):
        execute(commands, X, tensors[0], late)


def test_a_tensor_that_grows_into_another_keeps_its_bytes() -> None:
    """Shared bytes belong to the younger tensor, the others of the older one are freed."""
    source, target = tensor("source", 0, -1, 0, 32), tensor("target", 16, 0, 2)
    end = tensor("end", 64, 1, 2)
    assert execute(copies((16, 16), (16, 64)), source, target, end, inputs=32)
    with pytest.raises(MemoryFault, match="which belonged to source until"):
        execute(copies((16, 16), (0, 64)), source, target, end, inputs=32)


def test_remains_of_what_ended_before_the_stream_are_named() -> None:
    gone = LiveTensor("gone", 1, 32, 48, -3, -2, last_use="operator 4 of the file")
    with pytest.raises(
        MemoryFault, match="0x20 of region 1, which belonged to gone until operator 4 of the file"
    ):
        execute(copies((32, 64)), gone)
    assert execute(copies((0, 64)), gone)


def test_a_transfer_makes_bytes_readable_again() -> None:
    commands = [*copies((0, 16)), ("KERNEL_WAIT", 0), *dma(0, 0, 16), ("DMA_WAIT", 0)]
    tensors = [tensor("y", 16, 0, 1), tensor("z", 32, 1, 1)]
    assert execute([*commands, *copies((0, 32))], X, *tensors)


@pytest.mark.parametrize(
    "wrong", [tensor("x", 80, 0, 0, 32), replace(X, region=0), replace(X, region=5)]
)
def test_a_map_that_does_not_fit_is_refused(wrong: LiveTensor) -> None:
    with pytest.raises(SimulationError, match=r"x (lies )?in "):
        execute(copies((0, 16)), wrong)


# --- mutations of our own programs --------------------------------------------------------------


def programs() -> Iterator[Program]:
    """Yield programs with whole tensors, and with cascades and tensors that grow into others."""
    for seed in range(12):
        graph = random_chain(seed)
        for objective in Objective:
            program = compile_graph(graph, find_arch("ethos-u55-128"), None, objective)
            if program.tensors:
                yield program


def inputs_of(program: Program) -> list[Bytes]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, i.size_bytes, np.uint8) for i in program.inputs]


def executed(loaded: LoadedProgram) -> None:
    run_on(loaded, inputs_of(loaded.program))


def with_tensor(program: Program, index: int, changed: ScratchTensor) -> Program:
    tensors = program.tensors
    return replace(program, tensors=(*tensors[:index], changed, *tensors[index + 1 :]))


def test_our_programs_stay_within_their_map_and_use_all_of_it() -> None:
    """No report with the map; one for each tensor that the map frees an operation too early."""
    count = 0
    for program in programs():
        executed(load_program(program))
        for index, held in enumerate(program.tensors):
            if held.last == FOR_EVER:  # an output, which outlives the program
                continue
            short = with_tensor(program, index, replace(held, last=held.last - 1))
            with pytest.raises(MemoryFault, match=f"belonged to {held.name} until|lives now"):
                executed(load_program(short))
            count += 1
    assert count >= 40


TOO_LATE = r"belonged to [\w ]+ until|lives now|weight"


def too_late(program: Program) -> Iterator[LoadedProgram]:
    """Yield the program with one of its operations, but the last, once more at the end.

    It finds what it reads freed, or writes where nothing lives any more.
    """
    loaded = load_program(program)
    (stream,) = loaded.streams
    kernels = [op for op in stream.operations if isinstance(op, BlockOperation)]
    for op in kernels[:-1]:
        if SCRATCH_REGION in (op.ifm.region, op.ofm.region):
            operations = (*stream.operations, replace(op, blockdep=0))
            yield replace(loaded, streams=(replace(stream, operations=operations, cache={}),))


def test_every_operation_that_comes_too_late_is_reported() -> None:
    count = 0
    for program in programs():
        for mutated in too_late(program):
            # Weights that have been overwritten can't be decoded any more.
            with pytest.raises((MemoryFault, DecodeError), match=TOO_LATE):
                executed(mutated)
            count += 1
    assert count >= 300


def test_what_lives_on_is_there_for_the_next_invocation() -> None:
    """Cut in two after any operation, a program runs as before, and is checked as before."""
    program = next(programs())
    stream = load_program(program).streams[0]
    offsets = [op.offset for op in stream.operations if isinstance(op, BlockOperation)]
    assert len(offsets) == 5
    whole = run_on(load_program(program), inputs_of(program))
    for offset in offsets[1:-1]:
        two = in_two(program, offset)
        for ours, theirs in zip(run_on(two, inputs_of(program)), whole, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for index, held in enumerate(program.tensors):
            if held.last == FOR_EVER:  # an output, which outlives the program
                continue
            short = with_tensor(program, index, replace(held, last=held.last - 1))
            with pytest.raises(MemoryFault, match=r"belonged to|lives now"):
                executed(replace(two, program=replace(two.program, tensors=short.tensors)))


def in_two(program: Program, offset: int) -> LoadedProgram:
    """Return the program as two invocations; the second has the operations after ``offset``."""
    loaded = load_program(program)
    (stream,) = loaded.streams
    parts = (
        tuple(op for op in stream.operations if op.offset <= offset),
        tuple(op for op in stream.operations if op.offset > offset),
    )
    streams = tuple(replace(stream, operations=part, cache={}) for part in parts)
    return replace(
        loaded, program=replace(program, invocations=program.invocations * 2), streams=streams
    )


# --- files of Vela, with CPU operators between NPU calls ----------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Network, list[Array]]:
    """Return a network whose operators are NPU, CPU, NPU, CPU, CPU, NPU, and inputs for it.

    The first one's result is read by the second and the fifth, so it lives across the third.
    """
    folder = tmp_path_factory.mktemp("mixed")
    net = NetBuilder("int8", seed=3)
    strided: dict[str, Any] = {"stride": (4, 4), "padding": "VALID"}  # more than the NPU takes
    a = net.conv2d(net.input((1, 16, 16, 8)), filters=8)
    b = net.max_pool(a, kernel=(2, 2), **strided)
    d = net.max_pool(net.conv2d(b, filters=4), kernel=(1, 1), **strided)
    net.output(net.add(net.max_pool(a, kernel=(2, 2), **strided), b), d)
    source = folder / "mixed.tflite"
    source.write_bytes(net.build())
    compiled = compile_with_vela(source, folder / "out", VelaOptions(U55, Core.LEGACY))
    network = read_network(compiled.read_bytes())
    kinds = [isinstance(operator, NpuOperator) for operator in network.operators]
    assert kinds == [True, False, True, False, False, True]
    return network, net.random_inputs()


def moved_tensor(network: Network, index: int, offset: int) -> Network:
    tensors = list(network.tensors)
    tensors[index] = replace(tensors[index], offset=offset)
    return replace(network, tensors=tuple(tensors))


def moved_map(network: Network, position: int, name: str, address: int) -> Network:
    """Return the network with another address of a feature map in the last kernel of a call."""
    operator = network.operators[position]
    assert isinstance(operator, NpuOperator)
    operations = list(operator.stream.operations)
    last = max(i for i, op in enumerate(operations) if isinstance(op, BlockOperation))
    fm = getattr(operations[last], name)
    moved = replace(fm, bases=(address, *fm.bases[1:]))
    operations[last] = replace(operations[last], **{name: moved})
    stream = replace(operator.stream, operations=tuple(operations), cache={})
    operators = list(network.operators)
    operators[position] = replace(operator, stream=stream)
    return replace(network, operators=tuple(operators))


def test_operators_leave_what_others_still_read(mixed: tuple[Network, list[Array]]) -> None:
    network, inputs = mixed
    assert run_network(network, inputs)
    (long_lived,) = network.operators[0].outputs
    place = network.tensors[long_lived].offset
    assert place is not None
    name = re.escape(network.tensors[long_lived].name)
    clobbered = f"byte 0x[01] of tensor {name}, which is used until operator 4"
    with pytest.raises(MemoryFault, match=f"operator 2 of the file overwrites {clobbered}"):
        run_network(moved_map(network, 2, "ofm", place), inputs)
    (result,) = network.operators[1].outputs
    with pytest.raises(MemoryFault, match=f"operator 1 of the file overwrites {clobbered}"):
        run_network(moved_tensor(network, result, place), inputs)


def test_remains_of_tensors_between_calls_are_named(mixed: tuple[Network, list[Array]]) -> None:
    network, inputs = mixed
    (gone,) = network.operators[2].outputs
    tensor = network.tensors[gone]
    assert tensor.offset is not None
    with pytest.raises(
        MemoryFault, match=f"belonged to {re.escape(tensor.name)} until operator 3 of the file"
    ):
        run_network(moved_map(network, 5, "ifm", tensor.offset), inputs)
