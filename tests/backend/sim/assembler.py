"""Write command streams register by register, for tests that need an exact one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ethosu import mlw_codec

from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.sim.registers import BY_NAME, Space, Width

KERNEL_DEFAULTS: Mapping[str, int] = {
    "IFM_REGION": 1,
    "IFM_BASE0": 0,
    "IFM_HEIGHT0_M1": 63,
    "IFM_HEIGHT1_M1": 63,
    "IFM_WIDTH0_M1": 63,
    "IFM_STRIDE_C": 0,
    "IFM_PRECISION": 1,
    "IFM_ZERO_POINT": 0,
    "IFM_UPSCALE": 0,
    "IFM_PAD_TOP": 0,
    "IFM_PAD_LEFT": 0,
    "IFM_PAD_BOTTOM": 0,
    "IFM_PAD_RIGHT": 0,
    "OFM_REGION": 1,
    "OFM_HEIGHT0_M1": 63,
    "OFM_HEIGHT1_M1": 63,
    "OFM_WIDTH0_M1": 63,
    "OFM_STRIDE_C": 0,
    "OFM_PRECISION": 0x101,
    "OFM_ZERO_POINT": 0,
    "OFM_SCALE": 1,
    "OFM_BLK_HEIGHT_M1": 7,
    "OFM_BLK_WIDTH_M1": 7,
    "OFM_BLK_DEPTH_M1": 15,
    "KERNEL_WIDTH_M1": 0,
    "KERNEL_HEIGHT_M1": 0,
    "KERNEL_STRIDE": 0,
    "ACC_FORMAT": 0,
    "ACTIVATION": 0,
    "ACTIVATION_MIN": -128,
    "ACTIVATION_MAX": 127,
    "WEIGHT_REGION": 0,
    "SCALE_REGION": 0,
    "BLOCKDEP": 0,
}


def encode(name: str, value: int) -> list[int]:
    """Return the words of one command."""
    register = BY_NAME[name]
    word = register.code | register.space.value << 14
    if register.space is Space.CMD0:
        return [word | (value & 0xFFFF) << 16]
    if register.width is Width.STRIDE:
        value &= (1 << 40) - 1
    return [word | (value >> 32 & 0xFFFF) << 16, value & 0xFFFFFFFF]


def assemble(commands: Sequence[tuple[str, int]]) -> list[int]:
    """Return the words of a sequence of commands, with a STOP at its end."""
    words: list[int] = []
    for name, value in commands:
        words += encode(name, value)
    return words + encode("STOP", 0xFFFF)


def kernel_commands(operation: str, parameter: int = 0, **registers: int) -> list[tuple[str, int]]:
    """Return the commands of one kernel operation: defaults, ``registers``, the operation."""
    depth = {"IFM_DEPTH_M1": registers.get("OFM_DEPTH_M1", 0)}
    values = {**KERNEL_DEFAULTS, **depth, **registers}
    return [*values.items(), (operation, parameter)]


def nhwc(prefix: str, shape: tuple[int, int, int], base: int, size: int = 1) -> dict[str, int]:
    """Return the registers of a dense NHWC feature map of ``size``-byte elements."""
    _, width, depth = shape
    return {
        f"{prefix}_BASE0": base,
        f"{prefix}_STRIDE_Y": width * depth * size,
        f"{prefix}_STRIDE_X": depth * size,
    }


def ofm_shape(shape: tuple[int, int, int]) -> dict[str, int]:
    """Return the registers of the OFM's size."""
    return {
        "OFM_HEIGHT_M1": shape[0] - 1,
        "OFM_WIDTH_M1": shape[1] - 1,
        "OFM_DEPTH_M1": shape[2] - 1,
    }


def scale_stream(rows: Sequence[tuple[int, int, int]]) -> bytes:
    """Return (bias, multiplier, shift) rows as a scale range, padded to 16 bytes."""
    data = b"".join(
        (bias & (1 << 40) - 1).to_bytes(5, "little")
        + multiplier.to_bytes(4, "little")
        + bytes([shift])
        for bias, multiplier, shift in rows
    )
    return data + bytes(-len(data) % 16)


def weight_stream(values: Sequence[int]) -> bytes:
    """Return weights, in stream order, as a weight range padded to 16 bytes."""
    data = bytes(mlw_codec.encode(list(values)))
    return data + b"\xff" * (-len(data) % 16)


@dataclass(frozen=True)
class WeightLoops:
    """The nested loops in which the hardware takes OHWI weights, for one core.

    Written as the description has them, to be compared with the vectorised inverse.
    """

    weights: np.ndarray
    block_depth: int
    lanes: int
    part_kernel: bool = False
    depthwise: bool = False
    wide_ifm: bool = False
    dilation: tuple[int, int] = (1, 1)

    def __iter__(self) -> Iterator[int]:
        outputs, height, width, depth = self.weights.shape
        step = 16 if self.part_kernel or self.wide_ifm else 32
        for ob in range(0, outputs, self.block_depth):
            for ib in range(0, 1 if self.depthwise else depth, step):
                for sy in range(0, height, 8 // self.dilation[0]):
                    for sx in range(0, width, 8 // self.dilation[1]):
                        yield from self._sub_kernel(ob, ib, sy, sx)

    def _sub_kernel(self, ob: int, ib: int, sy: int, sx: int) -> Iterator[int]:
        outputs, height, width, depth = self.weights.shape
        cod = min(self.block_depth, outputs - ob)
        step = 16 if self.part_kernel or self.wide_ifm else 32
        cid = min(step, depth - ib) if self.part_kernel else step
        size = (min(8 // self.dilation[0], height - sy), min(8 // self.dilation[1], width - sx))
        for outer in range(0, cid, 8) if self.part_kernel else [0]:
            for ou in range(0, cod, self.lanes):
                for e in range(self._rounded(size[0] * size[1])):
                    single = self.part_kernel or self.depthwise
                    for inner in [0] if single else range(0, cid, 8):
                        for oz in range(self.lanes):
                            place = (ob, ou + oz), ib + outer + inner
                            yield from self._lanes(*place, e, (sy, sx), size)

    def _rounded(self, elements: int) -> int:
        unit = 1
        if self.depthwise or self.part_kernel:
            unit = 2 if self.wide_ifm and not self.depthwise else 4
        return elements + -elements % unit

    def _lanes(
        self,
        output: tuple[int, int],
        channel: int,
        e: int,
        start: tuple[int, int],
        size: tuple[int, int],
    ) -> Iterator[int]:
        outputs, _, _, depth = self.weights.shape
        o = sum(output)
        inside = e < size[0] * size[1] and output[1] < self.block_depth and o < outputs
        for i in range(channel, channel + (1 if self.depthwise else 8)):
            if inside and i < depth:
                yield int(self.weights[o, start[0] + e // size[1], start[1] + e % size[1], i])
            else:
                yield 0


def weight_loops(
    weights: np.ndarray, accelerator: Accelerator, core: int, block_depth: int, **options: Any
) -> WeightLoops:
    """Return the loops of one core for the OHWI weights of all output channels."""
    if accelerator.cores == 2:
        block_depth = (block_depth + 1 - core) // 2
    lanes = 4 if accelerator is Accelerator.U55_32 else 8
    return WeightLoops(weights[core :: accelerator.cores], block_depth, lanes, **options)
