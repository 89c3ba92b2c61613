"""Every operation against the element-by-element version, over random shapes and settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.backend.sim import slow
from tests.backend.sim.assembler import (
    assemble,
    kernel_commands,
    ofm_shape,
)
from tests.backend.sim.cases import (
    BYTES,
    IFM2_AT,
    LAYOUTS,
    MEMORY,
    OFM_AT,
    PRECISIONS,
    conv_case,
    feature_map,
    ifm_size,
    window_registers,
    zero_point,
)
from tvm_ethosu.backend.sim import Accelerator, Region, decode, run
from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    Conv,
    Depthwise,
    Elementwise,
    ElementwiseMode,
    Pool,
    Upscale,
)

FEW = settings(max_examples=40, deadline=None)


def execute(
    commands: list[tuple[str, int]],
    constants: bytes,
    accelerator: Accelerator,
    seed: int,
    *,
    strict: bool = True,
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Run one operation on random memory; return it and the memory before and after."""
    stream = decode(assemble(commands), accelerator)
    before = np.random.default_rng(seed).integers(0, 256, MEMORY).astype(np.uint8)
    after = before.copy()
    blob = np.frombuffer(constants + bytes(16), np.uint8)
    run(stream, {0: Region(blob, read_only=True), 1: Region(after)}, strict=strict)
    return stream.operations[0], before, after


def check(op: BlockOperation, expected: slow.Values, before: np.ndarray, after: np.ndarray) -> None:
    """Compare the OFM, and that nothing else was written."""
    assert slow.stored(op.ofm, after) == expected
    own = np.zeros(MEMORY, bool)
    for place in expected:
        start = slow.address(op.ofm, *place)
        own[start : start + op.ofm.type.bits // 8] = True
    np.testing.assert_array_equal(before[~own], after[~own])


@FEW
@given(
    window=window_registers(),
    depths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    layouts=st.tuples(LAYOUTS, LAYOUTS),
    kind=st.sampled_from(["s8", "u8", "s16"]),
    part_kernel=st.booleans(),
    rounding=st.sampled_from([0, 2]),
    accelerator=st.sampled_from(Accelerator),
    seed=st.integers(0, 99),
)
def test_convolution(
    window: dict[str, int],
    depths: tuple[int, int],
    layouts: tuple[str, str],
    kind: str,
    part_kernel: bool,
    rounding: int,
    accelerator: Accelerator,
    seed: int,
) -> None:
    registers, weights, scales, constants = conv_case(
        window, depths, layouts, kind, rounding, accelerator, seed, part_kernel=part_kernel
    )
    commands = kernel_commands("CONV", **registers)
    op, before, after = execute(commands, constants, accelerator, seed)
    assert isinstance(op, Conv)
    check(op, slow.convolution(op, before, weights, scales), before, after)


@FEW
@given(
    window=window_registers(),
    depth=st.integers(1, 20),
    layouts=st.tuples(LAYOUTS, LAYOUTS),
    kind=st.sampled_from(["s8", "u8", "s16"]),
    rounding=st.sampled_from([0, 2]),
    accelerator=st.sampled_from(Accelerator),
    seed=st.integers(0, 99),
)
def test_depthwise(
    window: dict[str, int],
    depth: int,
    layouts: tuple[str, str],
    kind: str,
    rounding: int,
    accelerator: Accelerator,
    seed: int,
) -> None:
    registers, weights, scales, constants = conv_case(
        window, (depth, 1), layouts, kind, rounding, accelerator, seed, depthwise=True
    )
    commands = kernel_commands("DEPTHWISE", **registers)
    op, before, after = execute(commands, constants, accelerator, seed)
    assert isinstance(op, Depthwise)
    check(op, slow.convolution(op, before, weights, scales), before, after)


@FEW
@given(
    window=window_registers(upscales=(0, 1)),
    depth=st.integers(1, 20),
    layouts=st.tuples(LAYOUTS, LAYOUTS),
    kind=st.sampled_from(["s8", "u8", "s16"]),
    mode=st.sampled_from([0, 1]),
    seed=st.integers(0, 99),
)
def test_pool(
    window: dict[str, int], depth: int, layouts: tuple[str, str], kind: str, mode: int, seed: int
) -> None:
    registers = dict(window)
    registers |= feature_map("IFM", (*ifm_size(window), depth), 0, kind, layouts[0])
    shape = (window["OFM_HEIGHT_M1"] + 1, window["OFM_WIDTH_M1"] + 1, depth)
    registers |= feature_map("OFM", shape, OFM_AT, kind, layouts[1]) | ofm_shape(shape)
    registers |= {"IFM_ZERO_POINT": zero_point(kind, seed)}
    registers |= {"OFM_ZERO_POINT": zero_point(kind, 90 - seed)}
    for name in ("TOP", "BOTTOM", "LEFT", "RIGHT"):
        registers[f"IFM_PAD_{name}"] = min(registers[f"IFM_PAD_{name}"], 1)
    taps = registers["KERNEL_HEIGHT_M1"] + registers["KERNEL_WIDTH_M1"]
    if taps == 0 or registers["KERNEL_HEIGHT_M1"] == 0 or registers["KERNEL_WIDTH_M1"] == 0:
        registers |= {f"IFM_PAD_{name}": 0 for name in ("TOP", "BOTTOM", "LEFT", "RIGHT")}
    padded = any(registers[f"IFM_PAD_{name}"] for name in ("TOP", "BOTTOM", "LEFT", "RIGHT"))
    registers["OFM_SCALE"] = 1 if padded else (1 << 30) // (1 + seed) | 31 << 32
    commands = kernel_commands("POOL", mode, **registers)
    assume(every_window_has_input(commands))
    dilated = window["KERNEL_STRIDE"] >> 3 & 3 != 0  # a guess, as simulator.md says
    op, before, after = execute(commands, b"", Accelerator.U55_128, seed, strict=not dilated)
    assert isinstance(op, Pool)
    check(op, slow.pool(op, before), before, after)


def every_window_has_input(commands: list[tuple[str, int]]) -> bool:
    """Tell whether no kernel position lies in the padding (dilated taps can miss the input)."""
    op = decode(assemble(commands), Accelerator.U55_128).operations[0]
    assert isinstance(op, Pool)
    window = slow.taps(op, np.zeros(MEMORY, np.uint8))
    places = [(y, x) for y in range(op.ofm.shape.height) for x in range(op.ofm.shape.width)]
    return all(any(value is not None for value in window(y, x, 0)) for y, x in places)


@FEW
@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 40)),
    kind=st.sampled_from(["s8", "s16", "s32"]),
    seed=st.integers(0, 99),
)
def test_reduce_sum(size: tuple[int, int, int], kind: str, seed: int) -> None:
    shape = (size[0], size[1], 1)
    registers = feature_map("IFM", size, 0, kind, "NHWC")
    registers |= feature_map("OFM", shape, OFM_AT, "s16", "NHWC") | ofm_shape(shape)
    registers |= {"IFM_DEPTH_M1": size[2] - 1, "IFM_ZERO_POINT": zero_point(kind, seed)}
    registers["OFM_SCALE"] = 3 | 20 << 32
    registers |= {"ACTIVATION_MIN": -0x8000, "ACTIVATION_MAX": 0x7FFF}
    op, before, after = execute(
        kernel_commands("POOL", 2, **registers), b"", Accelerator.U55_256, seed
    )
    assert isinstance(op, Pool)
    check(op, slow.pool(op, before), before, after)


TYPES = {
    ElementwiseMode.CLZ: ["s32"],
    ElementwiseMode.SHR: ["s32"],
    ElementwiseMode.LRELU: ["s8", "u8", "s16"],
    ElementwiseMode.ABS: ["s8", "u8", "s16"],
}
WITHOUT_SHL = [mode for mode in ElementwiseMode if mode is not ElementwiseMode.SHL]


@settings(max_examples=150, deadline=None)
@given(
    mode=st.sampled_from(WITHOUT_SHL),
    data=st.data(),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 20)),
    layouts=st.tuples(LAYOUTS, LAYOUTS, LAYOUTS),
    broadcast=st.integers(0, 7),
    is_reversed=st.booleans(),
    scalar=st.booleans(),
    seed=st.integers(0, 99),
)
def test_elementwise(
    mode: ElementwiseMode,
    data: st.DataObject,
    shape: tuple[int, int, int],
    layouts: tuple[str, str, str],
    broadcast: int,
    is_reversed: bool,
    scalar: bool,
    seed: int,
) -> None:
    kind = data.draw(st.sampled_from(TYPES.get(mode, ["s8", "u8", "s16", "s32"])))
    registers = feature_map("IFM", shape, 0, kind, layouts[0])
    registers |= feature_map("OFM", shape, OFM_AT, "s32" if kind == "s32" else kind, layouts[2])
    registers |= ofm_shape(shape)
    scales, scale_mode = elementwise_scales(mode, kind, data)
    registers |= scales
    registers["IFM_PRECISION"] |= scale_mode << 8
    registers |= {"IFM_ZERO_POINT": zero_point(kind, seed)}
    registers |= {"OFM_ZERO_POINT": zero_point(kind, 99 - seed)}
    registers |= {"ACTIVATION_MIN": -0x8000, "ACTIVATION_MAX": 0x7FFF}
    if not mode.is_unary:
        shifting = mode is ElementwiseMode.SHR
        use_scalar = scalar or shifting
        sizes = [1 if broadcast >> axis & 1 else size for axis, size in enumerate(shape)]
        second = feature_map("IFM2", (sizes[0], sizes[1], sizes[2]), IFM2_AT, kind, layouts[1])
        defaults = {"IFM2_HEIGHT0_M1": 63, "IFM2_HEIGHT1_M1": 63, "IFM2_WIDTH0_M1": 63}
        registers |= {
            **defaults,
            "IFM2_REGION": 1,
            **second,
            "IFM2_ZERO_POINT": zero_point(kind, seed // 2),
        }
        flags = broadcast | (is_reversed and not shifting) << 6 | use_scalar << 7
        value = seed % 32 if shifting or kind == "u8" else seed - 50
        registers |= {"IFM2_BROADCAST": flags, "IFM2_SCALAR": value}
        registers["IFM2_ZERO_POINT"] = 0 if shifting else zero_point(kind, seed // 2)
    commands = kernel_commands("ELEMENTWISE", mode.value, **registers)
    op, before, after = execute(commands, b"", Accelerator.U55_128, seed)
    assert isinstance(op, Elementwise)
    check(op, slow.elementwise(op, before), before, after)


def elementwise_scales(mode: ElementwiseMode, kind: str, data: st.DataObject) -> dict[str, int]:
    """Draw scales that keep results within their type."""
    if kind == "s32":
        shift = {ElementwiseMode.MUL: 33}.get(mode, 2)
        return {"OFM_SCALE": 1 << 30 | shift << 32, "OPA_SCALE": 1, "OPB_SCALE": 1}, 0
    multiplier = data.draw(st.integers(1 << 30, (1 << 31) - 1))
    additive = mode in (ElementwiseMode.ADD, ElementwiseMode.SUB)
    scale_mode = data.draw(st.integers(0, 2)) if additive else 0
    extra = 0
    if additive:
        extra = 15 if scale_mode == 0 else {1: 19, 2: 14}[BYTES[kind]]
    elif mode is ElementwiseMode.MUL:
        extra = 8 * BYTES[kind]
    shift = 31 + extra + data.draw(st.integers(0, 3))
    registers = {"OFM_SCALE": multiplier | shift << 32}
    if not additive:
        return registers, 0
    wide = scale_mode != 0
    operand = data.draw(st.integers(1, (1 << 31) - 1 if wide else (1 << 15) - 1))
    registers |= {"OPA_SCALE": operand | (12 << 32 if wide else 0)}
    registers |= {"OPB_SCALE": 0 if wide else operand // 2}
    return registers, scale_mode


@pytest.mark.parametrize(("value", "amount"), [(5, 3), (-5, 3), (1, 30), (-1, 31), (0, 31)])
def test_shift_left(value: int, amount: int) -> None:
    shape = (1, 1, 4)
    registers = feature_map("IFM", shape, 0, "s32", "NHWC")
    registers |= feature_map("OFM", shape, OFM_AT, "s32", "NHWC") | ofm_shape(shape)
    registers |= {"IFM2_PRECISION": PRECISIONS["s32"], "IFM2_ZERO_POINT": 0}
    registers |= {"IFM2_BROADCAST": 0x80, "IFM2_SCALAR": amount}
    memory = np.zeros(MEMORY, np.uint8)
    memory[:16].view("<i4")[:] = value
    stream = decode(assemble(kernel_commands("ELEMENTWISE", 9, **registers)), Accelerator.U55_64)
    run(stream, {1: Region(memory)})
    assert memory[OFM_AT : OFM_AT + 16].view("<i4").tolist() == [value << amount] * 4


def test_upscale_registers_are_read() -> None:
    """The three upscale modes give three different results on the same input."""
    results = []
    for mode in Upscale:
        window = {
            "KERNEL_HEIGHT_M1": 1,
            "KERNEL_WIDTH_M1": 1,
            "KERNEL_STRIDE": 0,
            "IFM_UPSCALE": mode.value,
            "OFM_HEIGHT_M1": 2,
            "OFM_WIDTH_M1": 2,
        }
        case = conv_case(window, (4, 4), ("NHWC", "NHWC"), "s8", 0, Accelerator.U55_128, 5)
        commands = kernel_commands("CONV", **case[0])
        op, _, after = execute(commands, case[3], Accelerator.U55_128, 5)
        results.append(tuple(slow.stored(op.ofm, after).values()))
    assert len(set(results)) == 3
