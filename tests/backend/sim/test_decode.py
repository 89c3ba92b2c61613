"""Words, registers and typed operations."""

from __future__ import annotations

import pytest
from ethosu.vela.ethos_u55_regs.ethos_u55_regs import cmd0, cmd1

from tests.backend.sim.assembler import (
    KERNEL_DEFAULTS,
    assemble,
    encode,
    kernel_commands,
    nhwc,
    ofm_shape,
)
from tvm_ethosu.backend.sim import Accelerator, DecodeError, decode, payload_words
from tvm_ethosu.backend.sim.operations import (
    Conv,
    DmaWait,
    ElementType,
    Elementwise,
    Irq,
    Kernel,
    KernelWait,
    Layout,
    PmuMask,
    Pool,
    Rounding,
    Scale,
    Shape,
    Stop,
    Upscale,
)
from tvm_ethosu.backend.sim.registers import REGISTERS, Space
from tvm_ethosu.backend.sim.words import payload_accelerator

U55 = Accelerator.U55_128
U65 = Accelerator.U65_512
STOP = 0xFFFF0000


def elementwise(**registers: int) -> list[tuple[str, int]]:
    shape = (2, 3, 4)
    maps = {**nhwc("IFM", shape, 0), **nhwc("OFM", shape, 64), **ofm_shape(shape)}
    return kernel_commands("ELEMENTWISE", 6, **{**maps, **registers})


def test_table_has_the_codes_of_arms_header() -> None:
    theirs = {(0, code.value): code.name for code in cmd0}
    theirs |= {(1, code.value): code.name for code in cmd1}
    ours = {(row.space.value, row.code): row.name for row in REGISTERS}
    assert ours.keys() == theirs.keys()
    for key, name in ours.items():
        assert theirs[key] in {f"NPU_SET_{name}", f"NPU_OP_{name}"}


def test_fields_of_a_register_do_not_overlap() -> None:
    for row in REGISTERS:
        assert sum(field.mask for field in row.fields) == row.used_bits < 1 << 16
        if row.space is Space.CMD1:
            assert not row.fields


NARROW = {
    **dict.fromkeys(("IFM_PAD_TOP", "IFM_PAD_LEFT", "OFM_BLK_DEPTH_M1"), 7),
    **dict.fromkeys(("IFM_PAD_RIGHT", "IFM_PAD_BOTTOM"), 8),
    **dict.fromkeys(("IFM_IB_END", "IFM2_IB_START", "AB_START", "OFM_BLK_WIDTH_M1"), 6),
    "OFM_BLK_HEIGHT_M1": 5,
    "DMA_WAIT": 4,
    **dict.fromkeys(("IFM_UPSCALE", "ACC_FORMAT", "BLOCKDEP", "KERNEL_WAIT"), 2),
    **dict.fromkeys(("IFM_REGION", "OFM_REGION", "IFM2_REGION"), 3),
    **dict.fromkeys(("WEIGHT_REGION", "SCALE_REGION"), 3),
    **dict.fromkeys(("PARALLEL_MODE", "PMU_MASK"), 1),
}
"""Bits of the parameter of registers with one narrow field, from Arm's two headers."""
FIELDS = {
    "IFM_PRECISION": 0b1100_0011_1100_1101,
    "IFM2_PRECISION": 0b0000_0000_1100_1101,
    "OFM_PRECISION": 0b1100_0001_1100_0111,
    "KERNEL_STRIDE": 0b0000_0010_0111_1111,
    "IFM2_BROADCAST": 0b1100_0111,
    "DMA0_SRC_REGION": 0b111_0000_0111,
    "DMA0_DST_REGION": 0b111_0000_0111,
    **dict.fromkeys(("CONV", "DEPTHWISE", "DMA_START"), 0),
}
"""Bits that are not reserved of registers with several fields."""
CHECKED_BY_VALUE = {"POOL", "ELEMENTWISE", "ACTIVATION"}


def test_parameters_have_the_bits_of_arms_header() -> None:
    for row in REGISTERS:
        if row.space is Space.CMD0 and row.name not in CHECKED_BY_VALUE:
            expected = FIELDS.get(row.name, (1 << NARROW.get(row.name, 16)) - 1)
            assert row.used_bits == expected, row.name


def test_payloads_have_the_bits_of_arms_header() -> None:
    narrow = {"SCALE_LENGTH": 20, "SCALE1_LENGTH": 20, "OPB_SCALE": 16}
    for row in REGISTERS:
        assert row.payload_bits == narrow.get(row.name, 32), row.name


@pytest.mark.parametrize(
    ("words", "offset", "text"),
    [
        ([], None, "does not end with STOP"),
        ([0x00000111], None, "does not end with STOP"),
        ([STOP, 0], 1, "follow STOP"),
        ([0x000000FF, STOP], 0, "unknown CMD0 code 0x0ff"),
        ([0x0000407F, 0, STOP], 0, "unknown CMD1 code"),
        ([0x00008000, STOP], 0, "announces 2 payload words"),
        ([0x00000511, STOP], 0, "reserved bits 13:10"),
        ([0x00004000], 0, "payload of IFM_BASE0 is missing"),
        ([0x00014000, 0, STOP], 0, "IFM_BASE0 has reserved bits"),
        ([0x0001412F, STOP], 0, "unknown"),
        ([0x0004012F, STOP], 0, "BLOCKDEP has reserved bits"),
        ([0x000C0105, STOP], 0, "IFM_PRECISION.bits has no value 3"),
        ([0x00050125, STOP], 0, "ACTIVATION.function has no value 5"),
        ([0x00010123, STOP], 0, "PARALLEL_MODE does not exist on ethos-u55-128"),
        ([0x00404024, 1, STOP], 0, "OFM_SCALE has reserved bits"),
        ([0x00004026, 1 << 16, STOP], 1, "OPB_SCALE has reserved bits set in its payload"),
        ([0x00004023, 1 << 20, STOP], 1, "SCALE_LENGTH has reserved bits set in its payload"),
        ([0x00800122, STOP], 0, "KERNEL_STRIDE has reserved bits"),
        ([0x40000185, STOP], 0, "IFM2_PRECISION has reserved bits"),
        ([0x00400115, STOP], 0, "OFM_BLK_WIDTH_M1 has reserved bits"),
        ([1 << 32, STOP], 0, "not a 32-bit word"),
        (["x"], None, "must be integers"),
        ([0x00000002, STOP], 0, "was never set"),
    ],
)
def test_bad_words_name_their_offset(words: list[int], offset: int | None, text: str) -> None:
    with pytest.raises(DecodeError, match=text) as caught:
        decode(words, U55)
    assert caught.value.offset == offset


def test_offset_counts_words_not_commands() -> None:
    words = encode("IFM_BASE0", 16) + encode("IFM_BASE1", 16) + [0x000000FF, STOP]
    with pytest.raises(DecodeError, match="word 4: unknown") as caught:
        decode(words, U55)
    assert caught.value.offset == 4


def test_feature_map_and_sticky_registers() -> None:
    commands = elementwise(IFM_ZERO_POINT=-3, OFM_PRECISION=0x4143, OFM_SCALE=7 | 9 << 32)
    commands += [("OFM_ZERO_POINT", 5), ("ELEMENTWISE", 6)]
    first, second, stop = decode(assemble(commands), U55).operations
    assert isinstance(first, Elementwise)
    assert isinstance(second, Elementwise)
    assert isinstance(stop, Stop)
    assert first.ifm.shape == Shape(2, 3, 4)
    assert (first.ifm.stride_y, first.ifm.stride_x, first.ifm.zero_point) == (12, 4, -3)
    assert (first.ofm.type, first.ofm.layout) == (ElementType.S16, Layout.NHCWB16)
    assert (first.rounding, first.global_scale) == (Rounding.TRUNCATE, Scale(7, 9))
    assert (first.ofm.zero_point, second.ofm.zero_point) == (0, 5)
    assert first.registers["OFM_ZERO_POINT"] == 0
    assert second.offset == first.offset + 2
    assert first.kind == "ELEMENTWISE_ABS"


def test_kernel_fields() -> None:
    shape = (4, 4, 8)
    stride = 1 | 1 << 2 | 1 << 3 | 1 << 9
    commands = kernel_commands(
        "POOL",
        0,
        **nhwc("IFM", shape, 0),
        **nhwc("OFM", shape, 512),
        **ofm_shape(shape),
        KERNEL_STRIDE=stride,
        KERNEL_WIDTH_M1=4,
        KERNEL_HEIGHT_M1=1,
        IFM_PAD_TOP=1,
        IFM_UPSCALE=1,
    )
    op = decode(assemble(commands), U55).operations[0]
    assert isinstance(op, Pool)
    assert op.kernel == Kernel(2, 3, 3, 2, 1, 2, part_kernel_first=True)
    assert op.upscale is Upscale.NEAREST
    assert op.ifm.shape == Shape((3 * 3 + 1 + 1 - 1) // 2, (3 * 2 + 2 * 2 + 1 + 1) // 2, 8)


@pytest.mark.parametrize(
    ("registers", "text"),
    [
        ({"KERNEL_WIDTH_M1": 3, "KERNEL_STRIDE": 8}, "does not fit dilation"),
        ({"IFM_PAD_TOP": 9}, "leaves no input"),
    ],
)
def test_impossible_kernels(registers: dict[str, int], text: str) -> None:
    shape = (1, 1, 8)
    maps = {**nhwc("IFM", shape, 0), **nhwc("OFM", shape, 64), **ofm_shape(shape)}
    with pytest.raises(DecodeError, match=text):
        decode(assemble(kernel_commands("POOL", 0, **maps, **registers)), U55)


def test_addresses_and_strides_of_u65() -> None:
    words = assemble(elementwise(IFM_BASE0=0x12_3456_7890, IFM_STRIDE_Y=-12))
    op = decode(words, Accelerator.U65_256).operations[0]
    assert isinstance(op, Elementwise)
    assert op.ifm.bases[0] == 0x12_3456_7890
    assert op.ifm.stride_y == -12
    with pytest.raises(DecodeError, match="IFM_BASE0 has reserved bits"):
        decode(words, U55)


@pytest.mark.parametrize(
    ("parameter", "payload", "value"),
    [(0, 12, 12), (0xFFFF, 0xFFFFFFF4, -12), (0xFF, 0xFFFFFFF4, -12)],
)
def test_negative_strides_as_both_compilers_write_them(
    parameter: int, payload: int, value: int
) -> None:
    for accelerator in (U55, Accelerator.U65_256):
        words = assemble(elementwise())
        at = words.index(encode("IFM_STRIDE_Y", 12)[0])
        words[at] |= parameter << 16
        words[at + 1] = payload
        op = decode(words, accelerator).operations[0]
        assert isinstance(op, Elementwise)
        assert op.ifm.stride_y == value


def test_two_cores_have_two_ranges() -> None:
    shape = (1, 1, 8)
    registers = {
        **nhwc("IFM", shape, 0),
        **nhwc("OFM", shape, 64),
        **ofm_shape(shape),
        "IFM_DEPTH_M1": 7,
        "OFM_PRECISION": 1,
        "WEIGHT_BASE": 16,
        "WEIGHT_LENGTH": 32,
        "SCALE_BASE": 0,
        "SCALE_LENGTH": 16,
        "WEIGHT1_BASE": 64,
        "WEIGHT1_LENGTH": 48,
        "SCALE1_BASE": 112,
        "SCALE1_LENGTH": 16,
        "PARALLEL_MODE": 1,
    }
    op = decode(assemble(kernel_commands("CONV", **registers)), U65).operations[0]
    assert isinstance(op, Conv)
    assert [(core.weights.start, core.weights.stop) for core in op.parameters] == [
        (16, 48),
        (64, 112),
    ]
    registers["PARALLEL_MODE"] = 0
    with pytest.raises(DecodeError, match="PARALLEL_MODE asks for 1"):
        decode(assemble(kernel_commands("CONV", **registers)), U65)


def test_operations_without_registers() -> None:
    words = assemble([("IRQ", 3), ("PMU_MASK", 1), ("DMA_WAIT", 1), ("KERNEL_WAIT", 2)])
    ops = decode(words, U55).operations
    assert [type(op) for op in ops] == [Irq, PmuMask, DmaWait, KernelWait, Stop]
    assert [op.kind for op in ops] == ["IRQ", "PMU_MASK", "DMA_WAIT", "KERNEL_WAIT", "STOP"]


def test_every_default_register_is_needed() -> None:
    optional = {
        "IFM_STRIDE_C",
        "OFM_STRIDE_C",
        "OFM_SCALE",
        "WEIGHT_REGION",
        "SCALE_REGION",
        *(name for name in KERNEL_DEFAULTS if name.startswith(("KERNEL", "IFM_PAD"))),
    }
    for name in (*(KERNEL_DEFAULTS.keys() - optional), "IFM_DEPTH_M1"):
        commands = [command for command in elementwise() if command[0] != name]
        with pytest.raises(DecodeError, match=f"{name} was never set"):
            decode(assemble(commands), U55)


def test_driver_payload() -> None:
    config = 7 | 24 << 8
    head = [0x31504F43, 0x00100001, config, 0x10104201, 5, 5, 5, 2 << 16 | 2]
    words = [*head, 0x0000012F, STOP]
    payload = b"".join(word.to_bytes(4, "little") for word in words)
    assert payload_words(payload) == (0x0000012F, STOP)
    assert payload_accelerator(payload) is U55
    for damaged in (payload[:-4], payload[4:], payload[:6], payload[:28]):
        with pytest.raises(DecodeError):
            payload_words(damaged)
