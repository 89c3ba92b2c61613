"""Values that no stream of Arm's compilers has: an error in strict mode, a guess otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backend.sim.assembler import assemble, kernel_commands, nhwc, ofm_shape
from tests.backend.sim.cases import conv_case
from tvm_ethosu.backend.sim import Accelerator, AmbiguousError, Region, decode, run

POOL_MAX, POOL_AVERAGE, REDUCE_SUM, ADD, ABS = 0, 1, 2, 1, 6
SHAPE = (4, 4, 8)


def execute(operation: str, mode: int, *, strict: bool, **registers: int) -> None:
    maps = {**nhwc("IFM", SHAPE, 0), **nhwc("OFM", SHAPE, 2048), **ofm_shape(SHAPE)}
    words = assemble(kernel_commands(operation, mode, **{**maps, **registers}))
    regions = {1: Region(np.arange(4096, dtype=np.int64).astype(np.uint8))}
    run(decode(words, Accelerator.U55_128), regions, strict=strict)


IFM2 = {
    **nhwc("IFM2", SHAPE, 1024),
    **{"IFM2_REGION": 1, "IFM2_HEIGHT0_M1": 63, "IFM2_HEIGHT1_M1": 63, "IFM2_WIDTH0_M1": 63},
    **{"IFM2_PRECISION": 1, "IFM2_ZERO_POINT": 0, "IFM2_BROADCAST": 0},
    **{"OPA_SCALE": 1, "OPB_SCALE": 1},
}
SCALAR = {**IFM2, "IFM2_BROADCAST": 1 << 7, "IFM2_SCALAR": 1}
WIDE_OFM = {"OFM_PRECISION": 3, **nhwc("OFM", SHAPE, 2048, 2)}
NINE = {"KERNEL_WIDTH_M1": 8}
SUM_OF_BRICKS = {
    **{"IFM_PRECISION": 1 | 2 << 2 | 1 << 6, "IFM_STRIDE_Y": 256, "IFM_STRIDE_C": 256},
    **{"IFM_DEPTH_M1": 7, "OFM_DEPTH_M1": 0, "OFM_PRECISION": 0x105, "IFM_BASE0": 0},
}


@pytest.mark.parametrize(
    ("operation", "mode", "registers", "text"),
    [
        ("ELEMENTWISE", ABS, {"IFM_DEPTH_M1": 3}, "an IFM of 4 channels for an OFM of 8"),
        ("POOL", POOL_MAX, {"IFM_DEPTH_M1": 8}, "an IFM of 9 channels for an OFM of 8"),
        ("ELEMENTWISE", ADD, {**IFM2, "IFM2_PRECISION": 0}, "IFM of type S8 with another IFM2"),
        ("ELEMENTWISE", ADD, {**SCALAR, "IFM2_PRECISION": 5}, "with another IFM2"),
        ("ELEMENTWISE", ADD, {**IFM2, "IFM2_ZERO_POINT": 128}, "IFM2 zero point 128 of type S8"),
        ("ELEMENTWISE", ADD, {**SCALAR, "IFM2_ZERO_POINT": -129}, "IFM2 zero point -129"),
        ("ELEMENTWISE", ABS, {"IFM_ZERO_POINT": 128}, "IFM zero point 128 of type S8"),
        ("ELEMENTWISE", ABS, {"OFM_ZERO_POINT": -129}, "OFM zero point -129 of type S8"),
        ("ELEMENTWISE", ABS, {"IFM_PRECISION": 0, "IFM_ZERO_POINT": -1}, "IFM zero point -1"),
        ("ELEMENTWISE", ABS, {"IFM_PRECISION": 5, "IFM_ZERO_POINT": 1}, "1 of type S16"),
        ("ELEMENTWISE", ABS, {**WIDE_OFM, "OFM_ZERO_POINT": 1}, "OFM zero point 1 of type S16"),
        ("ELEMENTWISE", ABS, {"ACTIVATION_MIN": 5, "ACTIVATION_MAX": 4}, "MIN 5 above"),
        ("ELEMENTWISE", ABS, {"ACTIVATION_MIN": 128, "ACTIVATION_MAX": 255}, "MIN 128 above"),
        ("POOL", POOL_MAX, {"KERNEL_STRIDE": 1 | 1 << 6}, r"a stride of 1x4 \(limit 3\)"),
        ("POOL", POOL_AVERAGE, {**NINE, "IFM_PAD_LEFT": 1}, "average of 1x9 with padding"),
        ("POOL", POOL_MAX, {"KERNEL_STRIDE": 8}, "pooling with dilation"),
        ("POOL", POOL_MAX, {"KERNEL_STRIDE": 4}, "part-kernel-first order for POOL_MAX"),
        ("POOL", POOL_MAX, {"KERNEL_STRIDE": 32}, "decomposition"),
        ("POOL", REDUCE_SUM, {**ofm_shape((4, 4, 1)), **SUM_OF_BRICKS}, "32-bit NHCWB16"),
    ],
)
def test_values_without_evidence(
    operation: str, mode: int, registers: dict[str, int], text: str
) -> None:
    with pytest.raises(AmbiguousError, match=text):
        execute(operation, mode, strict=True, **registers)
    execute(operation, mode, strict=False, **registers)


@pytest.mark.parametrize(
    ("height", "padding", "text"),
    [
        (64, 0, None),
        (65, 0, r"a kernel of 65x1 \(limit 64 high, 4096 elements\)"),
        (2, 1, None),
        (2, 2, r"padding 2, 0, 0, 0 \(top, left, bottom, right\) in which a kernel of 2x1 can lie"),
    ],
)
def test_kernels_of_convolutions(height: int, padding: int, text: str | None) -> None:
    window = {
        **{"KERNEL_HEIGHT_M1": height - 1, "KERNEL_WIDTH_M1": 0, "KERNEL_STRIDE": 0},
        **{"OFM_HEIGHT_M1": 2, "OFM_WIDTH_M1": 0, "IFM_PAD_TOP": padding, "IFM_PAD_LEFT": 0},
        **{"IFM_PAD_BOTTOM": 0, "IFM_PAD_RIGHT": 0, "IFM_UPSCALE": 0},
    }
    registers, _, _, constants = conv_case(
        window, (2, 3), ("NHWC", "NHWC"), "s8", 0, Accelerator.U55_128, 1
    )
    registers["IFM_HEIGHT0_M1"] = 99
    stream = decode(assemble(kernel_commands("CONV", **registers)), Accelerator.U55_128)
    regions = {
        0: Region(np.frombuffer(constants + bytes(16), np.uint8), read_only=True),
        1: Region(np.zeros(1 << 19, np.uint8)),
    }
    run(stream, regions, strict=False)
    if text is None:
        run(stream, regions)
    else:
        with pytest.raises(AmbiguousError, match=text):
            run(stream, regions)


def test_a_zero_point_that_is_left_over_from_another_ofm_has_no_effect() -> None:
    """Vela's Python core does not set it where an OFM has 32 bits."""
    registers = {"OFM_PRECISION": 0x105, **nhwc("OFM", SHAPE, 2048, 4), "OFM_ZERO_POINT": -7}
    execute("ELEMENTWISE", ABS, strict=True, **registers)
