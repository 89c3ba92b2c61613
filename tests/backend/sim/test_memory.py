"""Faults of memory, LUTs, DMA, and what is ambiguous."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.backend.sim.assembler import (
    assemble,
    encode,
    kernel_commands,
    nhwc,
    ofm_shape,
    scale_stream,
    weight_stream,
)
from tvm_ethosu.backend.sim import (
    Accelerator,
    AmbiguousError,
    DecodeError,
    LimitError,
    MemoryFault,
    Region,
    SimulationError,
    decode,
    run,
)

U55 = Accelerator.U55_128
Commands = list[tuple[str, int]]
SHAPE = (2, 2, 4)
WAIT = ("DMA_WAIT", 0)


def absolute(**registers: int) -> Commands:
    """Return an ABS of 16 bytes at 0 to 32 of region 1."""
    maps = {**nhwc("IFM", SHAPE, 0), **nhwc("OFM", SHAPE, 32), **ofm_shape(SHAPE)}
    return kernel_commands("ELEMENTWISE", 6, **{**maps, **registers})


def dma(source: int, target: int, length: int, regions: tuple[int, int] = (0, 1)) -> Commands:
    return [
        ("DMA0_SRC_REGION", regions[0]),
        ("DMA0_DST_REGION", regions[1]),
        ("DMA0_SRC", source),
        ("DMA0_DST", target),
        ("DMA0_LEN", length),
        ("DMA_START", 0),
    ]


def execute(
    commands: Commands,
    accelerator: Accelerator = U55,
    *,
    size: int = 64,
    constants: bytes = bytes(range(64)),
    initialised: bool = True,
    written: tuple[tuple[int, int], ...] = (),
    strict: bool = True,
) -> np.ndarray:
    """Run commands on a region of ``size`` bytes 0, 1, 2 ...; return it."""
    memory = np.arange(size, dtype=np.int64).astype(np.uint8)
    regions = {
        0: Region(np.frombuffer(constants, np.uint8), read_only=True),
        1: Region(memory, initialised=initialised, written=written),
    }
    run(decode(assemble(commands), accelerator), regions, strict=strict)
    return memory


def test_result_lands_where_it_should() -> None:
    memory = execute(absolute(IFM_ZERO_POINT=8))
    assert memory[32:48].tolist() == [abs(value - 8) for value in range(16)]
    assert memory[48:].tolist() == list(range(48, 64))


@pytest.mark.parametrize(
    ("registers", "text"),
    [
        ({"OFM_BASE0": 49}, r"OFM spans bytes \[0x31, 0x41\) of region 1, which has 0x40"),
        ({"IFM_STRIDE_Y": 1 << 31}, "IFM spans bytes"),
        ({"IFM_STRIDE_Y": -8}, r"IFM spans bytes \[-0x8, 0x8\)"),
        ({"IFM_REGION": 5}, "IFM is in region 5, which was not given"),
        ({"OFM_REGION": 0}, "OFM writes to region 0, which is read-only"),
        ({"IFM_WIDTH0_M1": 0}, "IFM uses tile 1, whose base was never set"),
        ({"IFM_PRECISION": 5, "IFM_BASE0": 1}, "IFM base 0x1 in region 1 is not a multiple of 2"),
        ({"IFM_PRECISION": 5, "IFM_STRIDE_X": 7}, "IFM stride 0x7 is not a multiple of 2"),
        (
            {"IFM_PRECISION": 0x41, "IFM_BASE0": 8, "IFM_STRIDE_Y": 32},
            "IFM base 0x8 in region",
        ),
        ({"OFM_PRECISION": 0x141, "OFM_STRIDE_C": 8}, "OFM stride 0x8 is not a multiple of 16"),
    ],
)
def test_feature_map_faults(registers: dict[str, int], text: str) -> None:
    commands = absolute(**registers)
    with pytest.raises(MemoryFault, match=text) as caught:
        execute(commands)
    assert caught.value.operation == "ELEMENTWISE_ABS"
    assert caught.value.offset == len(assemble(commands)) - 2


def test_unwritten_bytes() -> None:
    with pytest.raises(MemoryFault, match="IFM reads byte 0xd of region 1, which nobody wrote"):
        execute(absolute(), initialised=False, written=((0, 13), (14, 16)))
    memory = execute(absolute(), initialised=False, written=((0, 16),))
    assert memory[32:48].tolist() == list(range(16))


def test_gap_between_rows_need_not_be_written() -> None:
    maps = {"IFM_STRIDE_Y": 16, **ofm_shape((2, 2, 4))}
    execute(absolute(**maps), initialised=False, written=((0, 8), (16, 24)))
    with pytest.raises(MemoryFault, match="byte 0x14 "):
        execute(absolute(**maps), initialised=False, written=((0, 8), (16, 20), (21, 24)))


def test_an_operation_makes_its_ofm_readable() -> None:
    again = [("IFM_BASE0", 32), ("OFM_BASE0", 48), ("ELEMENTWISE", 6)]
    execute(absolute() + again, initialised=False, written=((0, 16),))
    again[0] = ("IFM_BASE0", 33)
    with pytest.raises(MemoryFault, match="byte 0x30"):
        execute(absolute() + again, initialised=False, written=((0, 16),))


def test_mirrored_rows() -> None:
    memory = execute(absolute(IFM_BASE0=8, IFM_STRIDE_Y=-8))
    assert memory[32:48].tolist() == [*range(8, 16), *range(8)]


def test_two_elements_at_one_address() -> None:
    with pytest.raises(AmbiguousError, match="the same address"):
        execute(absolute(OFM_STRIDE_X=3))


@pytest.mark.parametrize(
    "region",
    [
        lambda: Region(np.zeros(4, np.int8)),
        lambda: Region(np.zeros((2, 2), np.uint8)),
        lambda: Region(np.zeros(8, np.uint8)[::2]),
        lambda: Region(np.frombuffer(b"abcd", np.uint8)),
        lambda: Region(np.zeros(4, np.uint8), written=((2, 5),)),
    ],
)
def test_unusable_regions(region: Callable[[], Region]) -> None:
    with pytest.raises(SimulationError):
        region()


def test_dma_copies() -> None:
    memory = execute(dma(16, 32, 16))
    assert memory[32:48].tolist() == list(range(16, 32))


@pytest.mark.parametrize(
    ("commands", "accelerator", "text"),
    [
        (dma(0, 8, 16), U55, "DMA destination 0x8 is not a multiple of 16"),
        (dma(8, 0, 16), U55, "DMA source 0x8 is not a multiple of 16"),
        (dma(0, 0, 8), U55, "DMA length 0x8 is not a multiple of 16"),
        (dma(0, 8, 16, (0, 0x103)), Accelerator.U65_256, "DMA destination 0x8 is not"),
        (dma(48, 0, 32), U55, r"DMA source spans bytes \[0x30, 0x50\) of region 0"),
        (dma(0, 48, 32), U55, r"DMA destination spans bytes \[0x30, 0x50\) of region 1"),
        (dma(0, 0, 16, (0, 0)), U55, "region 0, which is read-only"),
        (dma(0, 1 << 20, 16, (0, 0x103)), U55, "shared RAM, which has 0x6000"),
    ],
)
def test_dma_faults(commands: Commands, accelerator: Accelerator, text: str) -> None:
    with pytest.raises(MemoryFault, match=text):
        execute(commands, accelerator)


def test_u65_dma_needs_no_alignment_outside_shared_ram() -> None:
    memory = execute(dma(3, 5, 7), Accelerator.U65_256)
    assert memory[5:12].tolist() == list(range(3, 10))


def test_dma_passes_on_that_nobody_wrote() -> None:
    copy = [*dma(0, 16, 16, (1, 1)), WAIT]
    use = absolute(IFM_BASE0=16)
    execute([*copy, *use], initialised=False, written=((0, 16),))
    with pytest.raises(MemoryFault, match="IFM reads byte 0x1d of region 1, which nobody wrote"):
        execute([*copy, *use], initialised=False, written=((0, 13),))


def lut(slot: int = 0) -> Commands:
    """Upload 256 bytes (0 .. 63 repeated) to a slot."""
    address = U55.lut_address + 256 * slot
    commands = []
    for part in range(4):
        commands += dma(0, address + 64 * part, 64, (0, 0x103))
    return [*commands, WAIT]


def test_lut() -> None:
    memory = execute([*lut(2), *absolute(ACTIVATION=18)])
    assert memory[32:48].tolist() == [(value + 128) % 64 for value in range(16)]
    with pytest.raises(MemoryFault, match="LUT slot 1 reads byte 0x5900 of shared RAM"):
        execute([*lut(2), *absolute(ACTIVATION=17)])


def test_small_accelerators_lose_the_lut() -> None:
    """Without a LUT an operation uses the banks of the LUT as accumulators, on U55-32 and -64."""
    uses = [*absolute(ACTIVATION=16), ("ACTIVATION", 0), ("ELEMENTWISE", 6)]
    again = [("ACTIVATION", 16), ("ELEMENTWISE", 6)]
    execute([*lut(), *uses, *again])
    upload = [
        (name, 14 * 1024 + value - U55.lut_address if name == "DMA0_DST" else value)
        for name, value in lut()
    ]
    execute([*upload, *uses], Accelerator.U55_64)
    with pytest.raises(MemoryFault, match="LUT slot 0 reads byte 0x3800 of shared RAM"):
        execute([*upload, *uses, *again], Accelerator.U55_64)


@pytest.mark.parametrize(
    ("registers", "text"),
    [
        ({"OFM_PRECISION": 0x4101, "OFM_SCALE": 1 | 1 << 32}, "TRUNCATE"),
        ({"OFM_PRECISION": 0x102, "IFM_PRECISION": 1}, "OFM of type U16"),
        ({"IFM_UPSCALE": 1}, "with upscaling"),
        ({"ACC_FORMAT": 2}, "floating-point"),
        ({"OFM_PRECISION": 1}, "without a global OFM scale"),
        ({"ACTIVATION": 0x2000}, "clip range 2"),
        ({"ACTIVATION": 0x3}, "tanh with S8 OFM"),
    ],
)
def test_ambiguous(registers: dict[str, int], text: str) -> None:
    with pytest.raises(AmbiguousError, match=text):
        execute(absolute(**registers))
    execute(absolute(**registers), strict=False, size=128)


def strided(source: int, target: int, **registers: int) -> Commands:
    """Return a transfer of 4 bytes a row; ``source`` and ``target`` are stride modes."""
    commands = dma(0, 0, 4, (source << 9, 1 | target << 9))
    return [*commands[:-1], *registers.items(), ("DMA_START", 0)]


@pytest.mark.parametrize(
    ("mode", "registers", "places"),
    [
        (1, {"DMA0_SIZE0": 3, "DMA0_SKIP0": 12}, [0, 16, 32]),
        (1, {"DMA0_SIZE0": 1, "DMA0_SKIP0": 12}, [0]),
        (2, {"DMA0_SIZE0": 2, "DMA0_SKIP0": 0, "DMA0_SIZE1": 2, "DMA0_SKIP1": 8}, [0, 4, 16, 20]),
        (2, {"DMA0_SIZE0": 2, "DMA0_SKIP0": 4, "DMA0_SIZE1": 1, "DMA0_SKIP1": 9}, [0, 8]),
    ],
)
def test_dma_skips_bytes_at_its_destination(
    mode: int, registers: dict[str, int], places: list[int]
) -> None:
    """The header: SKIP0 after each inner transfer, SKIP1 after each 2-D one, sizes not minus 1."""
    memory = execute(strided(0, mode, **registers), Accelerator.U65_256)
    expected = list(range(64))
    for row, place in enumerate(places):
        expected[place : place + 4] = range(4 * row, 4 * row + 4)
    assert memory.tolist() == expected


def test_a_source_with_gaps_is_a_guess() -> None:
    commands = strided(1, 0, DMA0_SIZE0=3, DMA0_SKIP0=12)
    with pytest.raises(AmbiguousError, match="2-D or 3-D DMA with a source"):
        execute(commands, Accelerator.U65_256)
    memory = execute(commands, Accelerator.U65_256, strict=False)
    assert memory[:12].tolist() == [0, 1, 2, 3, 16, 17, 18, 19, 32, 33, 34, 35]


@pytest.mark.parametrize(
    ("commands", "accelerator", "text"),
    [
        (
            strided(0, 2, DMA0_SIZE0=2, DMA0_SKIP0=4, DMA0_SIZE1=2, DMA0_SKIP1=0),
            Accelerator.U65_256,
            "3-D DMA that skips bytes after rows",
        ),
        (strided(0, 1, DMA0_SIZE0=0, DMA0_SKIP0=0), Accelerator.U65_256, "no rows"),
        (dma(0, 46 * 1024, 16, (0, 0x101)), Accelerator.U65_512, r"some cores only \(mask 1\)"),
        (dma(0, U55.lut_address, 16, (0, 0x100)), U55, r"some cores only \(mask 0\)"),
        (dma(0, 0, 16, (0x100, 1)), U55, "out of the shared RAM"),
    ],
)
def test_ambiguous_transfers(commands: Commands, accelerator: Accelerator, text: str) -> None:
    with pytest.raises(AmbiguousError, match=text):
        execute(commands, accelerator)


def test_the_core_mask_of_a_lut_may_name_cores_that_are_not_there() -> None:
    """Both compilers write mask 3 on every accelerator."""
    for mask in (1, 3):
        execute(dma(0, U55.lut_address, 16, (0, 0x100 | mask)))


def test_a_transfer_of_too_many_rows() -> None:
    huge = strided(0, 2, DMA0_SIZE0=0xFFFF, DMA0_SKIP0=0, DMA0_SIZE1=0xFFFF, DMA0_SKIP1=0)
    with pytest.raises(LimitError, match="limit"):
        execute([("DMA0_LEN", 0), *(c for c in huge if c[0] != "DMA0_LEN")], Accelerator.U65_256)


def addition(scale_mode: int, rounding: int) -> Commands:
    """Return an ADD of bytes 0, 1, 2 ... to themselves, the first operand scaled by 1 / 4."""
    second = {"IFM2_REGION": 1, **nhwc("IFM2", SHAPE, 0), "IFM2_BROADCAST": 0, "IFM2_PRECISION": 1}
    sizes = {f"IFM2_{name}_M1": 63 for name in ("HEIGHT0", "HEIGHT1", "WIDTH0")}
    maps = {**nhwc("IFM", SHAPE, 0), **nhwc("OFM", SHAPE, 32), **ofm_shape(SHAPE)}
    scales = {"OPA_SCALE": 1 << 30 | 51 << 32, "OPB_SCALE": 1, "IFM2_ZERO_POINT": 0}
    if scale_mode == 0:
        scales["OPA_SCALE"] = 1
    precision = {"IFM_PRECISION": 1 | scale_mode << 8 | rounding << 14}
    registers = {**maps, **second, **sizes, **scales, **precision}
    return kernel_commands("ELEMENTWISE", 1, **registers)


def test_ifm_rounding_matters_for_32_bit_operand_scales_only() -> None:
    """Vela sets it on copies, and for a 16-bit scale of ADD, which is no fraction."""
    plain = execute(addition(0, 0))
    for rounding in (1, 2):
        assert execute(addition(0, rounding)).tolist() == plain.tolist()
        with pytest.raises(AmbiguousError, match="IFM rounding mode"):
            execute(addition(1, rounding))
    execute(addition(1, 0))


@pytest.mark.parametrize(
    ("registers", "text"),
    [
        ({"OPB_SCALE": None}, "OPB_SCALE was never set"),
        ({"OPA_SCALE": 1 << 16}, "OPA_SCALE 65536 has more than the 16 bits"),
    ],
)
def test_operand_scales_of_16_bits(registers: dict[str, int | None], text: str) -> None:
    commands = [(name, registers.get(name, value)) for name, value in addition(0, 0)]
    kept = [(name, value) for name, value in commands if value is not None]
    with pytest.raises(DecodeError, match=text):
        execute(kept)


def wide_scalar(code: int, **registers: int) -> Commands:
    """Return a 32-bit elementwise operation with a scalar."""
    word = {"IFM_PRECISION": 9, "OFM_PRECISION": 0x105}
    maps = {**nhwc("IFM", SHAPE, 0, 4), **nhwc("OFM", SHAPE, 64, 4), **ofm_shape(SHAPE)}
    scalar = {"IFM2_PRECISION": 9, "IFM2_ZERO_POINT": 0, "IFM2_BROADCAST": 0x80}
    scales = {"OPA_SCALE": 1, "OPB_SCALE": 1}
    return kernel_commands("ELEMENTWISE", code, **{**maps, **word, **scalar, **scales, **registers})


@pytest.mark.parametrize(
    ("code", "first", "text"), [(9, 0, "SHL"), (1, 64, "32-bit OFM"), (2, 128, "32-bit OFM")]
)
def test_32_bit_results_must_fit(code: int, first: int, text: str) -> None:
    """Bytes 0, 1, 2 ... make words of 0x43424140 at 64 and of 0x83828180 at 128."""
    second = {"IFM2_REGION": 1, **nhwc("IFM2", SHAPE, 64, 4), "IFM2_BROADCAST": 0}
    sizes = {f"IFM2_{name}_M1": 63 for name in ("HEIGHT0", "HEIGHT1", "WIDTH0")}
    registers = {"IFM_BASE0": first, "OFM_BASE0": 192}
    registers |= {"IFM2_SCALAR": 31} if code == 9 else {**second, **sizes}
    with pytest.raises(AmbiguousError, match=text):
        execute(wide_scalar(code, **registers), size=256)


def test_wide_products_saturate() -> None:
    """Vela's softmax needs this: it multiplies INT32_MIN by itself when a row has one value."""
    memory = execute(wide_scalar(0, IFM2_SCALAR=0x7FFF), size=128)
    words = memory[:64].view("<i4").astype(np.int64) * 0x7FFF
    expected = np.clip(words, -(1 << 31), (1 << 31) - 1)
    assert memory[64:128].view("<i4").tolist() == expected.tolist()
    assert (words != expected).any()


def convolution(**registers: int) -> tuple[Commands, bytes]:
    """Return a 1x1 convolution of 4 channels with constants: scales, then weights at 48."""
    scales = scale_stream([(0, 1 << 30, 30)] * 4)
    weights = weight_stream([1] * 256)
    ranges = {
        "SCALE_BASE": 0,
        "SCALE_LENGTH": len(scales),
        "WEIGHT_BASE": len(scales),
        "WEIGHT_LENGTH": len(weights),
        "IFM_DEPTH_M1": 3,
        "OFM_PRECISION": 1,
    }
    maps = {**nhwc("IFM", SHAPE, 0), **nhwc("OFM", SHAPE, 32), **ofm_shape(SHAPE)}
    return kernel_commands("CONV", **{**maps, **ranges, **registers}), scales + weights


def test_convolution_reads_its_constants() -> None:
    commands, constants = convolution()
    memory = execute(commands, constants=constants)
    assert memory[32:36].tolist() == [sum(range(4))] * 4


@pytest.mark.parametrize(
    ("registers", "text"),
    [
        ({"WEIGHT_BASE": 40}, "WEIGHT range at 0x28 .* not in units of 16"),
        ({"WEIGHT_LENGTH": 8}, "WEIGHT range .* of 8 bytes in region 0 is not in units of 16"),
        ({"SCALE_BASE": 1 << 20}, "SCALE range spans bytes"),
        ({"WEIGHT_REGION": 4}, "WEIGHT range is in region 4, which was not given"),
    ],
)
def test_constant_range_faults(registers: dict[str, int], text: str) -> None:
    commands, constants = convolution(**registers)
    with pytest.raises(MemoryFault, match=text):
        execute(commands, constants=constants)


def test_changed_weights_are_decoded_again() -> None:
    commands, constants = convolution(WEIGHT_REGION=1, SCALE_REGION=1, WEIGHT_BASE=112,
                                      SCALE_BASE=64)  # fmt: skip
    stream = decode(assemble(commands), U55)
    memory = np.zeros(256, np.uint8)
    memory[:16] = np.arange(16)
    results = []
    for weight in (1, 2, 1):
        data = constants[:48] + weight_stream([weight] * 256)
        memory[64 : 64 + len(data)] = np.frombuffer(data, np.uint8)
        run(stream, {1: Region(memory)})
        results.append(int(memory[32]))
    assert results == [6, 12, 6]


def test_too_much_work() -> None:
    huge = {"OFM_HEIGHT_M1": 0xFFFF, "OFM_WIDTH_M1": 0xFFFF, "IFM_STRIDE_Y": 0, "IFM_STRIDE_X": 0}
    with pytest.raises(LimitError, match="limit"):
        execute(absolute(**huge))


def wide_map(name: str, side: int, base: int, depth: int = 1) -> dict[str, int]:
    """Return the registers of a map of ``side`` x ``side`` elements in one tile."""
    tiles = {f"{name}_{part}_M1": 0xFFFF for part in ("HEIGHT0", "HEIGHT1", "WIDTH0")}
    return {**nhwc(name, (side, side, depth), base), **tiles}


def test_too_many_operations() -> None:
    words = assemble(absolute())[:-1] + [encode("DMA_WAIT", 0)[0]] * (1 << 16)
    with pytest.raises(LimitError, match="operations or more, limit 65536"):
        decode([*words, *encode("STOP", 0xFFFF)], U55)


def test_too_much_work_in_all() -> None:
    """Each operation is within its limit, a thousand of them would take hours."""
    side = {"OFM_HEIGHT_M1": 4095, "OFM_WIDTH_M1": 4095, "OFM_DEPTH_M1": 0}
    kernel = {"KERNEL_WIDTH_M1": 15, "KERNEL_HEIGHT_M1": 15}
    maps = {**wide_map("IFM", 4096, 0), **wide_map("OFM", 4096, 0)}
    commands = kernel_commands("POOL", 0, **{**maps, **side, **kernel})
    with pytest.raises(LimitError, match=f"the stream takes {9 << 35} steps, limit {1 << 38}"):
        execute([*commands, *[("POOL", 0)] * 8])


def test_an_ofm_much_larger_than_its_ifm() -> None:
    """A convolution of one channel to many: 2 ** 32 elements would not fit anywhere."""
    commands, constants = convolution(
        OFM_HEIGHT_M1=1023, OFM_WIDTH_M1=1023, OFM_DEPTH_M1=4095, IFM_DEPTH_M1=0
    )
    with pytest.raises(LimitError, match=f"OFM has {1 << 32} elements"):
        execute(commands, constants=constants)


def test_too_many_blocks_to_compare() -> None:
    blocks = {f"OFM_BLK_{name}_M1": 0 for name in ("HEIGHT", "WIDTH", "DEPTH")}
    side = {"OFM_HEIGHT_M1": 511, "OFM_WIDTH_M1": 511, "OFM_DEPTH_M1": 0}
    maps = {**wide_map("IFM", 512, 0), **wide_map("OFM", 512, 0)}
    with pytest.raises(LimitError, match=f"in place, the operation has {1 << 18} blocks"):
        execute(absolute(**{**maps, **side, **blocks}), size=1 << 18)


def test_bytes_behind_the_last_channel_of_a_brick_are_lost() -> None:
    """The hardware may write whole bricks; nothing that is used later may lie there."""
    bricks = {"OFM_PRECISION": 0x141, "OFM_STRIDE_C": 32, "OFM_STRIDE_Y": 32, "OFM_BASE0": 0}
    shape = {**ofm_shape((1, 2, 4)), "IFM_BASE0": 64}
    first = absolute(**bricks, **shape)
    behind = {**nhwc("IFM", (1, 1, 4), 20), **nhwc("OFM", (1, 1, 4), 48), **ofm_shape((1, 1, 4))}
    second = kernel_commands("ELEMENTWISE", 6, **behind)
    written = ((16, 32), (64, 72))
    execute(second, initialised=False, written=written, size=80)
    with pytest.raises(MemoryFault, match="IFM reads byte 0x14 of region 1, which may be overwr"):
        execute([*first, *second], initialised=False, written=written, size=80)
    beside = {**behind, "IFM_BASE0": 16}
    result = execute(
        [*first, *kernel_commands("ELEMENTWISE", 6, **beside)],
        initialised=False,
        written=written,
        size=80,
    )
    assert list(result[48:52]) == [68, 69, 70, 71]
    again = {**behind, **nhwc("OFM", (1, 1, 4), 20), "IFM_BASE0": 16}
    repaired = kernel_commands("ELEMENTWISE", 6, **again)
    execute([*first, *repaired, *second], initialised=False, written=written, size=80)
