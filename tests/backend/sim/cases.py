"""Random registers for kernel operations: feature maps, windows, convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.backend.sim.assembler import ofm_shape, scale_stream, weight_loops, weight_stream
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.sim.geometry import horizontal, vertical
from tvm_ethosu.backend.sim.operations import Kernel, Padding, Shape

OFM_AT = 1 << 18
IFM2_AT = 1 << 15
MEMORY = 1 << 19
PRECISIONS = {"s8": 1, "u8": 0, "s16": 1 | 1 << 2, "s32": 1 | 2 << 2}
ZERO_POINTS = {"s8": (-50, 49), "u8": (0, 99), "s16": (0, 0), "s32": (0, 0)}
"""Range of zero points that streams of Arm's compilers have, by type, cut to a hundred values."""
BYTES = {"s8": 1, "u8": 1, "s16": 2, "s32": 4}


def feature_map(
    prefix: str, shape: tuple[int, int, int], base: int, kind: str, layout: str
) -> dict[str, int]:
    """Return the registers of a feature map; ``tiles`` cuts an NHWC one in four."""
    height, width, depth = shape
    size = BYTES[kind]
    precision = PRECISIONS[kind]
    if prefix == "OFM":
        precision = (precision & 1) | (precision >> 2 & 3) << 1 | 1 << 8
    if layout == "NHCWB16":
        bricks = -(-depth // 16)
        return {
            f"{prefix}_BASE0": base,
            f"{prefix}_STRIDE_C": width * 16 * size,
            f"{prefix}_STRIDE_Y": width * 16 * size * bricks,
            f"{prefix}_STRIDE_X": 0,
            f"{prefix}_PRECISION": precision | 1 << 6,
        }
    pixel = depth * size + 16
    row = width * pixel
    registers = {
        f"{prefix}_BASE0": base,
        f"{prefix}_STRIDE_Y": row,
        f"{prefix}_STRIDE_X": pixel,
        f"{prefix}_PRECISION": precision,
    }
    if layout == "tiles" and height > 1 and width > 1:
        for tile in range(1, 4):
            registers[f"{prefix}_BASE{tile}"] = base + tile * (height * row + 16)
        registers[f"{prefix}_HEIGHT0_M1"] = 0
        registers[f"{prefix}_HEIGHT1_M1"] = max(height // 2 - 1, 0)
        registers[f"{prefix}_WIDTH0_M1"] = width // 2 - 1
    return registers


LAYOUTS = st.sampled_from(["NHWC", "NHCWB16", "tiles"])


def zero_point(kind: str, seed: int) -> int:
    """Return one of a type's zero points."""
    low, high = ZERO_POINTS[kind]
    return low + seed % (high - low + 1)


@st.composite
def window_registers(draw: st.DrawFn, upscales: tuple[int, ...] = (0, 1, 2)) -> dict[str, int]:
    """Draw kernel, stride, dilation, padding and OFM size."""
    taps = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    output = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    pads = [
        draw(st.integers(0, max(0, (t - 1) * d)))
        for t, d in zip(taps, dilation, strict=True)
        for _ in "ab"
    ]
    registers = {
        "KERNEL_HEIGHT_M1": (taps[0] - 1) * dilation[0],
        "KERNEL_WIDTH_M1": (taps[1] - 1) * dilation[1],
        "KERNEL_STRIDE": (stride[1] - 1 & 1)
        | (stride[0] - 1 & 1) << 1
        | (dilation[1] - 1) << 3
        | (dilation[0] - 1) << 4
        | (stride[1] - 1 >> 1) << 6
        | (stride[0] - 1 >> 1) << 9,
        "IFM_UPSCALE": draw(st.sampled_from(upscales)),
        "OFM_HEIGHT_M1": output[0] - 1,
        "OFM_WIDTH_M1": output[1] - 1,
    }
    kernel = Kernel(*taps, *stride, *dilation)
    shape = Shape(*output, 1)
    names = ("TOP", "BOTTOM", "LEFT", "RIGHT")
    padding = Padding(pads[0], pads[2], pads[1], pads[3])
    fits = vertical(shape, kernel, padding).inputs > 0 and (
        horizontal(shape, kernel, padding).inputs > 0
    )
    for name, pad in zip(names, pads, strict=True):
        registers[f"IFM_PAD_{name}"] = pad if fits else 0
    return registers


def ifm_size(registers: dict[str, int]) -> tuple[int, int]:
    """Return a size that is large enough for any window drawn above."""
    return 5 * 4 + 8, 5 * 3 + 8


def conv_case(
    window: dict[str, int],
    depths: tuple[int, int],
    layouts: tuple[str, str],
    kind: str,
    rounding: int,
    accelerator: Accelerator,
    seed: int,
    *,
    part_kernel: bool = False,
    depthwise: bool = False,
) -> tuple[dict[str, int], np.ndarray, list[tuple[int, int, int]], bytes]:
    """Return registers, OHWI weights, scales and the constant region of a convolution."""
    rng = np.random.default_rng(seed)
    outputs, inputs = depths
    dilation = (window["KERNEL_STRIDE"] >> 4 & 1) + 1, (window["KERNEL_STRIDE"] >> 3 & 1) + 1
    taps = (
        window["KERNEL_HEIGHT_M1"] // dilation[0] + 1,
        window["KERNEL_WIDTH_M1"] // dilation[1] + 1,
    )
    weights = rng.integers(-255, 256, (outputs, *taps, inputs)).astype(np.int16)
    scales = [
        (int(rng.integers(-(1 << 20), 1 << 20)), int(rng.integers(1 << 30, 1 << 31)), shift)
        for shift in rng.integers(36, 50, outputs).tolist()
    ]
    channels = outputs if depthwise else inputs
    registers = dict(window)
    registers |= feature_map("IFM", (*ifm_size(window), channels), 0, kind, layouts[0])
    shape = (window["OFM_HEIGHT_M1"] + 1, window["OFM_WIDTH_M1"] + 1, outputs)
    registers |= feature_map("OFM", shape, OFM_AT, kind, layouts[1])
    registers |= ofm_shape(shape)
    registers["OFM_PRECISION"] = registers["OFM_PRECISION"] & ~(1 << 8) | rounding << 14
    registers["IFM_DEPTH_M1"] = channels - 1
    registers["IFM_ZERO_POINT"] = zero_point(kind, int(rng.integers(100)))
    registers["OFM_ZERO_POINT"] = zero_point(kind, int(rng.integers(100)))
    registers["KERNEL_STRIDE"] |= part_kernel << 2
    registers["ACC_FORMAT"] = int(kind == "s16")
    registers |= {"ACTIVATION_MIN": -100, "ACTIVATION_MAX": 120}
    if accelerator.is_u65:
        registers["PARALLEL_MODE"] = accelerator.cores - 1
    ranges, constants = conv_constants(
        weights,
        scales,
        accelerator,
        part_kernel=part_kernel,
        depthwise=depthwise,
        wide_ifm=kind == "s16",
        dilation=dilation,
    )
    return registers | ranges, weights, scales, constants


def conv_constants(
    weights: np.ndarray,
    scales: list[tuple[int, int, int]],
    accelerator: Accelerator,
    **loop_options: Any,
) -> tuple[dict[str, int], bytes]:
    """Return the registers of weight and scale ranges, and the bytes they describe."""
    registers: dict[str, int] = {}
    constants = b""
    for core in range(min(accelerator.cores, len(scales))):
        loops = weight_loops(weights, accelerator, core, 16, **loop_options)
        for name, data in (
            ("SCALE", scale_stream(scales[core :: accelerator.cores])),
            ("WEIGHT", weight_stream(list(loops))),
        ):
            suffix = "1" if core else ""
            registers[f"{name}{suffix}_BASE"] = len(constants)
            registers[f"{name}{suffix}_LENGTH"] = len(data)
            constants += data
    return registers, constants
