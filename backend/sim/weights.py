"""Weight and scale streams: compressed bytes to arrays.

A weight range decodes to a flat list in the order in which the hardware consumes it; zeros fill
incomplete blocks. This module puts the values back into (O, KH, KW, I). Two cores take the even and
the odd output channels. Source: EMIT, confirmed by a round trip through ``mlw_codec.encode``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from ethosu import mlw_codec

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.errors import DecodeError
from tvm_ethosu.backend.sim.geometry import ifm_block_depth, sub_kernels
from tvm_ethosu.backend.sim.limits import check_elements
from tvm_ethosu.backend.sim.memory import Array
from tvm_ethosu.backend.sim.operations import Kernel
from tvm_ethosu.backend.sim.weight_stream import check_complete

_IFM_MICROBLOCK: Final = 8
_SCALE_BYTES: Final = 10
_LARGEST_WEIGHT: Final = 255


@dataclass(frozen=True)
class WeightOrder:
    """What determines the order of one core's weight stream."""

    ofm_depth: int
    ifm_depth: int
    kernel: Kernel
    block_depth: int
    ofm_microblock: int
    depthwise: bool
    wide_ifm: bool


@dataclass(frozen=True)
class Weights:
    """Weights (O, KH, KW, I); I is 1 for depthwise."""

    values: Array

    @cached_property
    def largest_sum(self) -> int:
        """Return the largest sum of absolute weights of an output channel."""
        if not self.values.size:
            return 0
        return int(np.abs(self.values.astype(np.int64)).sum(axis=(1, 2, 3)).max())

    @cached_property
    def single(self) -> Array:
        """Return the weights as a (KH*KW*I, O) float32 matrix."""
        return self._matrix(np.float32)

    @cached_property
    def double(self) -> Array:
        """Return the weights as a (KH*KW*I, O) float64 matrix."""
        return self._matrix(np.float64)

    @cached_property
    def integer(self) -> Array:
        """Return the weights as a (KH*KW*I, O) int64 matrix."""
        return self._matrix(np.int64)

    @cached_property
    def taps(self) -> Array:
        """Return depthwise weights as (KH, KW, C) int32."""
        return np.ascontiguousarray(self.values[..., 0].transpose(1, 2, 0).astype(np.int32))

    def _matrix(self, dtype: type) -> Array:
        outputs = self.values.shape[0]
        return np.ascontiguousarray(self.values.reshape(outputs, -1).T.astype(dtype))


@dataclass(frozen=True)
class Scales:
    """Bias, multiplier and shift per output channel (int64)."""

    bias: Array
    multiplier: Array
    shift: Array

    @cached_property
    def largest_bias(self) -> int:
        """Return the largest absolute bias."""
        return int(np.abs(self.bias).max()) if self.bias.size else 0


def core_order(
    accelerator: Accelerator,
    core: int,
    *,
    shape: tuple[int, int],
    kernel: Kernel,
    block_depth: int,
    depthwise: bool,
    wide_ifm: bool,
) -> WeightOrder:
    """Return the weight order of one core; ``shape`` is (output channels, input channels)."""
    cores = accelerator.cores
    return WeightOrder(
        ofm_depth=len(range(core, shape[0], cores)),
        ifm_depth=shape[1],
        kernel=kernel,
        block_depth=block_depth if cores == 1 else (block_depth + 1 - core) // 2,
        ofm_microblock=accelerator.ofm_microblock_depth,
        depthwise=depthwise,
        wide_ifm=wide_ifm,
    )


def decode_weights(data: bytes, order: WeightOrder) -> Array:
    """Return the weights (O, KH, KW, I) of one core as int16.

    Raises DecodeError when the stream does not hold the number of weights the order needs.
    """
    depth = 1 if order.depthwise else order.ifm_depth
    check_elements("the weights", order.ofm_depth * order.kernel.taps * depth)
    if order.block_depth < 1:
        raise DecodeError("OFM_BLK_DEPTH leaves this core no channels")
    check_complete(data)
    flat = np.array(mlw_codec.decode(bytearray(data)), np.int16)
    if flat.size and max(int(flat.max()), -int(flat.min())) > _LARGEST_WEIGHT:
        raise DecodeError("the weight stream holds a weight of more than 9 bits")
    return _reorder(flat, order)


def decode_scales(data: Array, channels: int) -> Scales:
    """Return the scales of the first ``channels`` channels of a scale range.

    Ten bytes a channel: bias (int40), multiplier (uint32), shift (6 bits), little endian.
    """
    needed = channels * _SCALE_BYTES
    if data.size < needed:
        raise DecodeError(
            f"the scale range has {data.size} bytes, {channels} channels take {needed}"
        )
    rows = data[:needed].reshape(channels, _SCALE_BYTES).astype(np.int64)
    powers = np.left_shift(np.int64(1), 8 * np.arange(5, dtype=np.int64))
    bias = (rows[:, :5] * powers).sum(axis=1)
    bias -= (bias >> 39) << 40
    multiplier = (rows[:, 5:9] * powers[:4]).sum(axis=1)
    if (rows[:, 9] > 63).any():
        raise DecodeError(f"scale entry {int(np.argmax(rows[:, 9] > 63))} has reserved bits set")
    return Scales(bias, multiplier, rows[:, 9])


@dataclass(frozen=True)
class _Chunk:
    """A run of the stream with one (output block, input block, sub-kernel)."""

    outputs: tuple[int, int]
    inputs: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]
    stream_shape: tuple[int, ...]


def _ifm_block_depth(order: WeightOrder) -> int:
    bits = 16 if order.wide_ifm else 8
    return ifm_block_depth(bits, part_kernel_first=order.kernel.part_kernel_first)


def _chunks(order: WeightOrder) -> list[_Chunk]:
    ifm_block = _ifm_block_depth(order)
    depth = 1 if order.depthwise else order.ifm_depth
    result = []
    for ob in range(0, order.ofm_depth, order.block_depth):
        outputs = (ob, min(ob + order.block_depth, order.ofm_depth))
        for ib in range(0, depth, ifm_block):
            inputs = (ib, min(ib + ifm_block, depth))
            for rows, columns in sub_kernels(order.kernel):
                taps = (rows[1] - rows[0]) * (columns[1] - columns[0])
                shape = _stream_shape(order, outputs, inputs, taps)
                result.append(_Chunk(outputs, inputs, rows, columns, shape))
    return result


def _stream_shape(
    order: WeightOrder, outputs: tuple[int, int], inputs: tuple[int, int], taps: int
) -> tuple[int, ...]:
    """Return (input outer, output blocks, taps, input inner, output lanes, input lanes)."""
    lanes = order.ofm_microblock
    output_blocks = -(-(outputs[1] - outputs[0]) // lanes)
    if order.depthwise:
        return (1, output_blocks, -(-taps // 4) * 4, 1, lanes, 1)
    if order.kernel.part_kernel_first:
        unit = 2 if order.wide_ifm else 4
        outer = -(-(inputs[1] - inputs[0]) // _IFM_MICROBLOCK)
        return (outer, output_blocks, -(-taps // unit) * unit, 1, lanes, _IFM_MICROBLOCK)
    inner = _ifm_block_depth(order) // _IFM_MICROBLOCK
    return (1, output_blocks, taps, inner, lanes, _IFM_MICROBLOCK)


def _reorder(flat: Array, order: WeightOrder) -> Array:
    kernel = order.kernel
    depth = 1 if order.depthwise else order.ifm_depth
    chunks = _chunks(order)
    expected = sum(int(np.prod(chunk.stream_shape)) for chunk in chunks)
    if flat.size != expected:
        raise DecodeError(f"the weight stream holds {flat.size} weights, expected {expected}")
    result = np.zeros((order.ofm_depth, kernel.height, kernel.width, depth), np.int16)
    position = 0
    for chunk in chunks:
        size = int(np.prod(chunk.stream_shape))
        _place(result, flat[position : position + size].reshape(chunk.stream_shape), chunk)
        position += size
    return result


def _place(result: Array, stream: Array, chunk: _Chunk) -> None:
    outer, blocks, taps, inner, lanes, width = stream.shape
    values = stream.transpose(1, 4, 2, 0, 3, 5).reshape(blocks * lanes, taps, outer * inner * width)
    (o0, o1), (i0, i1) = chunk.outputs, chunk.inputs
    (y0, y1), (x0, x1) = chunk.rows, chunk.columns
    part = values[: o1 - o0, : (y1 - y0) * (x1 - x0), : i1 - i0]
    result[o0:o1, y0:y1, x0:x1, i0:i1] = part.reshape(o1 - o0, y1 - y0, x1 - x0, i1 - i0)
