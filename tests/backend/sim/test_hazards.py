"""Races: what nothing orders is reported, what Arm's compilers order is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.sim import slow
from tests.backend.sim.assembler import assemble, nhwc, ofm_shape
from tests.backend.sim.cases import LAYOUTS, feature_map
from tests.backend.sim.test_memory import Commands, absolute, dma, lut
from tests.backend.sim.test_networks import NetBuilder, build_small
from tvm_ethosu.backend.sim import Accelerator, HazardError, Region, Stream, decode, run
from tvm_ethosu.backend.sim.addressing import Window, boxes_within
from tvm_ethosu.backend.sim.hazards import HazardChecker
from tvm_ethosu.backend.sim.operations import (
    AnyOperation,
    BlockOperation,
    Conv,
    DmaWait,
    Elementwise,
    Kernel,
    KernelWait,
    Pool,
    PoolMode,
    Upscale,
)
from tvm_ethosu.backend.vela_files import Core, VelaOptions, compile_with_vela, read_network

U55 = Accelerator.U55_128
U65 = Accelerator.U65_256
DMA_WAIT, KERNEL_WAIT = "DMA_WAIT", "KERNEL_WAIT"


def first_hazard(stream: Stream) -> HazardError | None:
    """Return what the checker says about a stream, without running it."""
    checker = HazardChecker(stream.accelerator)
    try:
        for op in stream.operations:
            checker.check(op)
    except HazardError as error:
        return error
    return None


def hazard_of(commands: Commands, accelerator: Accelerator = U55) -> str:
    found = first_hazard(decode(assemble(commands), accelerator))
    return "" if found is None else str(found)


@pytest.mark.parametrize(
    ("transfer", "text"),
    [
        (dma(0, 0, 16), "IFM and DMA destination share bytes [0x0, 0x10) of region 1"),
        (dma(0, 32, 16), "OFM and DMA destination share bytes [0x20, 0x30) of region 1"),
        (dma(32, 64, 16, (1, 1)), "OFM and DMA source share bytes [0x20, 0x30) of region 1"),
        (dma(0, 16, 16), ""),
        (dma(0, 48, 16), ""),
        (dma(0, 64, 16, (1, 1)), ""),
        (dma(0, 0, 16, (0, 2)), ""),
    ],
)
def test_transfer_and_kernel(transfer: Commands, text: str) -> None:
    """Both orders conflict without a wait, and neither does with one."""
    found = hazard_of([*transfer, *absolute()])
    assert text in found
    assert bool(found) == bool(text)
    assert not text or "no DMA_WAIT orders them" in found
    found = hazard_of([*absolute(), *transfer])
    assert text in found
    assert not text or "no KERNEL_WAIT orders them" in found
    assert not hazard_of([*transfer, (DMA_WAIT, 0), *absolute(), (KERNEL_WAIT, 0), *transfer])


def test_report_names_both_operations() -> None:
    transfer = dma(0, 0, 16)
    stream = decode(assemble([*transfer, *absolute()]), U55)
    regions = {
        0: Region(np.zeros(64, np.uint8), read_only=True),
        1: Region(np.zeros(64, np.uint8)),
    }
    with pytest.raises(HazardError) as caught:
        run(stream, regions)
    kernel, copy = stream.operations[1], stream.operations[0]
    assert caught.value.offset == kernel.offset
    assert caught.value.operation == "ELEMENTWISE_ABS"
    assert f"DMA at word {copy.offset}" in str(caught.value)


@pytest.mark.parametrize(("accelerator", "in_flight"), [(U55, 1), (U65, 2)])
def test_transfers_in_flight(accelerator: Accelerator, in_flight: int) -> None:
    """Starting one transfer more waits for the oldest; DMA_WAIT k leaves k in flight."""
    harmless = [dma(0, 256 + 16 * index, 16) for index in range(3)]

    def after(count: int) -> Commands:
        return [command for transfer in harmless[:count] for command in transfer]

    for count in range(4):
        commands = [*dma(0, 0, 16), *after(count), *absolute()]
        assert bool(hazard_of(commands, accelerator)) == (count < in_flight)
        for left in range(3):
            commands = [*dma(0, 0, 16), *after(count), (DMA_WAIT, left), *absolute()]
            expected = count < min(in_flight, left)
            assert bool(hazard_of(commands, accelerator)) == expected


def test_kernels_in_flight() -> None:
    """Two kernels are in flight: a third, or KERNEL_WAIT, waits for the older ones."""
    other = absolute(IFM_BASE0=512, OFM_BASE0=1024)
    for count in range(4):
        commands = [*absolute(), *other * count, *dma(0, 0, 16)]
        assert bool(hazard_of(commands)) == (count < 2)
        for left in range(3):
            commands = [*absolute(), *other * count, (KERNEL_WAIT, left), *dma(0, 0, 16)]
            assert bool(hazard_of(commands)) == (count < min(2, left))


def chain(blockdep: int, **second: int) -> Commands:
    """Return two ABS of 8x1x4 in blocks of 1x1x4; the second reads what the first writes."""
    shape = (8, 1, 4)
    block = {"OFM_BLK_HEIGHT_M1": 0, "OFM_BLK_WIDTH_M1": 0, "OFM_BLK_DEPTH_M1": 3}
    first = {**nhwc("IFM", shape, 0), **nhwc("OFM", shape, 64), **ofm_shape(shape), **block}
    again = {**nhwc("IFM", shape, 64), **nhwc("OFM", shape, 128), "BLOCKDEP": blockdep}
    return [*absolute(**first), *{**again, **second}.items(), ("ELEMENTWISE", 6)]


@pytest.mark.parametrize(
    ("start", "limit"),
    [
        (64, None),
        (64 + 4 * 4, None),
        (64 + 5 * 4, 2),
        (64 + 6 * 4, 1),
        (64 + 7 * 4, 0),
        (64 + 8 * 4, None),
    ],
)
def test_blockdep(start: int, limit: int | None) -> None:
    """Reading k rows later makes the first job need block k: 7 - k blocks may be unfinished."""
    for blockdep in range(4):
        found = hazard_of(chain(blockdep, IFM_BASE0=start))
        assert bool(found) == (limit is not None and blockdep > limit)
        if found:
            assert f"BLOCKDEP {blockdep} lets them overlap (limit {limit})" in found


def test_blockdep_counts_jobs_of_the_second_operation() -> None:
    """Job f meets the block f + 1 from the end; blocks in the order of rows and columns."""
    found = hazard_of(chain(3, IFM_BASE0=64 + 7 * 4, IFM_STRIDE_Y=-4))
    assert "(limit 0)" in found
    assert not hazard_of(chain(3, IFM_BASE0=64 + 3 * 4, IFM_STRIDE_Y=-4, OFM_HEIGHT_M1=3))


def test_kernel_wait_ends_blockdep() -> None:
    commands = chain(3, IFM_BASE0=64 + 7 * 4)
    assert hazard_of(commands)
    assert not hazard_of([*commands[:-1], (KERNEL_WAIT, 0), commands[-1]])


def test_in_place() -> None:
    """A kernel may write over its input once it is read, never before."""
    assert not hazard_of(absolute(OFM_BASE0=0))
    rows = {"OFM_BLK_HEIGHT_M1": 0, "OFM_BLK_WIDTH_M1": 1}
    assert not hazard_of(absolute(**rows, IFM_BASE0=8, OFM_BASE0=0))
    found = hazard_of(absolute(**rows, IFM_BASE0=0, OFM_BASE0=8))
    assert "block 1 reads IFM bytes [0x8, 0x10) of region 1 in which an earlier block" in found
    assert hazard_of(absolute(**rows, OFM_BASE0=8, OFM_STRIDE_Y=-8))


def test_lut_banks_of_small_accelerators() -> None:
    """The next operation's accumulators overwrite a LUT that is still in use."""
    commands = [*absolute(ACTIVATION=16), ("ACTIVATION", 0), ("IFM_BASE0", 512)]
    commands += [("OFM_BASE0", 1024), ("BLOCKDEP", 3), ("ELEMENTWISE", 6)]
    text = hazard_of(commands, Accelerator.U55_64)
    assert "accumulators overwrite the LUT, bytes [0x3800, 0x4000) of shared RAM" in text
    assert "which ELEMENTWISE_ABS at word" in text
    assert not hazard_of(commands, U55)
    commands[-2] = ("BLOCKDEP", 0)
    assert not hazard_of(commands, Accelerator.U55_64)


def test_lut_overwritten_while_in_use() -> None:
    commands = [*lut(1), *absolute(ACTIVATION=17)]
    assert "LUT and DMA destination" in hazard_of([*commands, *lut(1)])
    assert not hazard_of([*commands, *lut(2)])
    assert not hazard_of([*commands, (KERNEL_WAIT, 0), *lut(1)])


@settings(max_examples=100, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 40)),
    layout=LAYOUTS,
    kind=st.sampled_from(["s8", "s16", "s32"]),
    corner=st.tuples(*[st.integers(0, 40)] * 6),
)
def test_boxes_within(
    shape: tuple[int, int, int], layout: str, kind: str, corner: Sequence[int]
) -> None:
    """The bytes of the boxes are the addresses of the elements, each once."""
    registers = feature_map("IFM", shape, 0, kind, layout) | ofm_shape(shape)
    op = decode(assemble(absolute(**registers)), U55).operations[0]
    assert isinstance(op, Elementwise)
    window = Window(*(value for pair in zip(corner[::2], corner[1::2], strict=True)
                      for value in sorted(pair)))  # fmt: skip
    expected = sorted(addresses(op.ifm, window))
    found: list[int] = []
    for box in boxes_within(op.ifm, window):
        steps = [np.arange(n) * s for n, s in zip(box.view_shape, box.view_strides, strict=True)]
        grid = np.add.outer(np.add.outer(np.add.outer(steps[0], steps[1]), steps[2]), steps[3])
        found += (grid.ravel() + box.address).tolist()
    assert sorted(found) == expected


def addresses(fm: slow.FeatureMap, window: Window) -> Iterator[int]:
    for y in range(window.y0, min(window.y1, fm.shape.height)):
        for x in range(window.x0, min(window.x1, fm.shape.width)):
            for c in range(window.c0, min(window.c1, fm.shape.depth)):
                yield slow.address(fm, y, x, c)


# --- mutations of streams that Arm's compilers made ---------------------------------------------


def build_convolutions() -> bytes:
    """Return a network whose 3x3 convolutions of 24 channels Vela makes part-kernel-first."""
    net = NetBuilder("int8", seed=3)
    y = net.conv2d(net.input((1, 10, 10, 8)), filters=24)
    y = net.conv2d(y, filters=24, stride=(2, 2))
    for _ in range(5):
        y = net.conv2d(y, filters=24)
    net.output(y)
    return net.build()


def compiled_by_vela(source: Path, data: bytes, options: VelaOptions) -> Stream:
    source.write_bytes(data)
    compiled = compile_with_vela(source, source.parent, options)
    return read_network(compiled.read_bytes()).streams[0]


@pytest.fixture(scope="module", params=[(a, c) for a in (Accelerator.U55_32, U55) for c in Core])
def vela_stream(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    source = tmp_path_factory.mktemp("vela") / "small.tflite"
    return compiled_by_vela(source, build_small("int8"), VelaOptions(*request.param, "Size"))


def without(stream: Stream, index: int, *instead: AnyOperation) -> Stream:
    operations = stream.operations
    return replace(stream, operations=(*operations[:index], *instead, *operations[index + 1 :]))


def test_no_report_on_the_compilers_streams(vela_stream: Stream) -> None:
    assert first_hazard(vela_stream) is None


def test_every_dropped_wait_is_caught(vela_stream: Stream) -> None:
    waits = [
        index
        for index, op in enumerate(vela_stream.operations)
        if isinstance(op, DmaWait | KernelWait)
    ]
    assert waits
    for index in waits:
        assert first_hazard(without(vela_stream, index)) is not None


def test_blockdep_verdicts_equal_the_slow_ones(vela_stream: Stream) -> None:
    """Whatever BLOCKDEP lets overlap, the checker finds what element sets find."""
    assert caught_like_the_slow_ones(vela_stream) >= 15


@pytest.mark.parametrize("accelerator", [Accelerator.U55_32, U55])
def test_no_report_where_regor_counts_jobs_of_16_channels(
    tmp_path: Path, accelerator: Accelerator
) -> None:
    """It lets part-kernel-first convolutions overlap more than jobs of 32 channels would."""
    options = VelaOptions(accelerator, Core.REGOR, "Performance")
    stream = compiled_by_vela(tmp_path / "net.tflite", build_convolutions(), options)
    convolutions = [op for op in stream.operations if isinstance(op, Conv)]
    assert any(op.kernel.part_kernel_first and op.ifm.shape.depth == 24 for op in convolutions)
    assert first_hazard(stream) is None


def test_verdicts_on_part_kernel_first_convolutions_equal_the_slow_ones(tmp_path: Path) -> None:
    options = VelaOptions(U55, Core.REGOR, "Performance")
    stream = compiled_by_vela(tmp_path / "net.tflite", build_convolutions(), options)
    assert caught_like_the_slow_ones(stream) >= 5


def caught_like_the_slow_ones(stream: Stream) -> int:
    """Return how many hazards BLOCKDEP 1, 2 and 3 make, each kernel in turn.

    Every verdict must be that of the sets of elements.
    """
    caught = 0
    for index, (before, op) in enumerate(pairwise(stream.operations), start=1):
        if not isinstance(before, BlockOperation) or not isinstance(op, BlockOperation):
            continue
        for blockdep in (1, 2, 3):
            found = first_hazard(without(stream, index, replace(op, blockdep=blockdep)))
            expected = any(
                slow_conflict(before, op, f, j)
                for f in range(blockdep)
                for j in range(blockdep - f)
            )
            assert (found is not None) == expected
            caught += expected
    return caught


def slow_conflict(first: BlockOperation, second: BlockOperation, job: int, back: int) -> bool:
    """Tell whether job ``job`` reads an element that the block ``back`` from the end writes."""
    blocks = list(slow_blocks(first))
    read = next(islice(slow_jobs(second), job, None), None)
    if back >= len(blocks) or read is None:
        return False
    return bool({slow.address(first.ofm, *place) for place in blocks[-1 - back]} & read)


def slow_blocks(op: BlockOperation) -> Iterator[list[tuple[int, int, int]]]:
    """Yield the OFM elements of each block."""
    shape, block = op.ofm.shape, op.block
    for y in range(0, shape.height, block.height):
        for x in range(0, shape.width, block.width):
            for c in range(0, shape.depth, block.depth):
                yield [
                    (j, i, k)
                    for j in range(y, min(y + block.height, shape.height))
                    for i in range(x, min(x + block.width, shape.width))
                    for k in range(c, min(c + block.depth, shape.depth))
                ]


def slow_jobs(op: BlockOperation) -> Iterator[set[int]]:
    """Yield the addresses each job reads; kernels here are at most 8x8, so one part each."""
    assert op.upscale is Upscale.NONE
    assert max(op.kernel.height, op.kernel.width) <= 8
    summed = isinstance(op, Conv) or (isinstance(op, Pool) and op.mode is PoolMode.REDUCE_SUM)
    most = 16 if op.kernel.part_kernel_first else 32
    group = min(256 // op.ifm.type.bits, most) if summed else op.ifm.shape.depth
    for places in slow_blocks(op):
        windows = {(y, x): list(slow_taps(op.kernel, op, y, x)) for y, x, _ in places}
        for c0 in range(0, op.ifm.shape.depth, group):
            if summed:
                channels = range(c0, min(c0 + group, op.ifm.shape.depth))
                rows = {tap for taps in windows.values() for tap in taps}
                elements = {(*tap, k) for tap in rows for k in channels}
            else:
                elements = {(*tap, c) for y, x, c in places for tap in windows[y, x]}
            read = {slow.address(op.ifm, *element) for element in elements}
            if isinstance(op, Elementwise) and op.ifm2 is not None:
                most = op.ifm2.shape.height - 1, op.ifm2.shape.width - 1, op.ifm2.shape.depth - 1
                read |= {slow.address(op.ifm2, *map(min, place, most)) for place in places}
            yield read


def slow_taps(kernel: Kernel, op: BlockOperation, y: int, x: int) -> Iterator[tuple[int, int]]:
    for ky in range(kernel.height):
        for kx in range(kernel.width):
            row = y * kernel.stride_y + ky * kernel.dilation_y - op.padding.top
            column = x * kernel.stride_x + kx * kernel.dilation_x - op.padding.left
            if 0 <= row < op.ifm.shape.height and 0 <= column < op.ifm.shape.width:
                yield row, column


@pytest.mark.slow
@pytest.mark.parametrize("optimise", ["Performance", "Size"])
@pytest.mark.parametrize("core", Core)
@pytest.mark.parametrize("accelerator", Accelerator)
def test_tiny_networks(
    shared: Path, tmp_path: Path, accelerator: Accelerator, core: Core, optimise: str
) -> None:
    """No report on any stream of the MLPerf Tiny networks; every dropped wait is reported."""
    for source in sorted((shared / "models/mlperf_tiny").glob("*.tflite")):
        options = VelaOptions(accelerator, core, optimise)
        compiled = compile_with_vela(source, tmp_path, options).read_bytes()
        for stream in read_network(compiled).streams:
            assert first_hazard(stream) is None
            for index, op in enumerate(stream.operations):
                if isinstance(op, DmaWait | KernelWait):
                    assert first_hazard(without(stream, index)) is not None
