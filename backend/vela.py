"""Everything that is asked of Arm's Vela: encoders, legal blocks, the register command stream.

This is the only module that imports it. What its API takes without a word and then gets wrong is
refused or mended here: weights outside of 9 bits (encoded as 0), biases outside of 40, types it
does not check, a block dependency computed from the wrong padding. Its messages to stdout are
swallowed.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ethosu.vela import api

from tvm_ethosu.scheduler.arch import (
    ALIGN_BYTES,
    BIAS_BITS,
    BRICK_CHANNELS,
    MAX_RESCALE_SHIFT,
    MAX_WEIGHT,
    MIN_WEIGHT,
    TABLE_BYTES,
    TABLE_SLOT_BYTES,
    Accelerator,
    Arch,
    Layout,
)
from tvm_ethosu.scheduler.engine import part_kernel_first
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.integers import round_up
from tvm_ethosu.scheduler.ir import (
    Add,
    Clamp,
    Conv2D,
    DepthwiseConv2D,
    DType,
    ElementKind,
    ElementWise,
    Kernel,
    Move,
    NpuOp,
    Operand,
    Padding,
    Pool,
    PoolKind,
    Requantize,
    Rescale,
    Rounding,
    Strides,
    SumChannels,
)
from tvm_ethosu.scheduler.ports import Block

_ACCELERATORS: Mapping[Accelerator, Any] = {
    Accelerator.U55_32: api.NpuAccelerator.Ethos_U55_32,
    Accelerator.U55_64: api.NpuAccelerator.Ethos_U55_64,
    Accelerator.U55_128: api.NpuAccelerator.Ethos_U55_128,
    Accelerator.U55_256: api.NpuAccelerator.Ethos_U55_256,
    Accelerator.U65_256: api.NpuAccelerator.Ethos_U65_256,
    Accelerator.U65_512: api.NpuAccelerator.Ethos_U65_512,
}
_DTYPES: Mapping[DType, Any] = {
    DType.U8: api.NpuDataType.UINT8,
    DType.I8: api.NpuDataType.INT8,
    DType.I16: api.NpuDataType.INT16,
    DType.I32: api.NpuDataType.INT32,
}
_ELEMENT_KINDS: Mapping[ElementKind, Any] = {
    ElementKind.ADD: api.NpuElementWiseOp.ADD,
    ElementKind.SUB: api.NpuElementWiseOp.SUB,
    ElementKind.MUL: api.NpuElementWiseOp.MUL,
    ElementKind.MIN: api.NpuElementWiseOp.MIN,
    ElementKind.MAX: api.NpuElementWiseOp.MAX,
    ElementKind.SHIFT_LEFT: api.NpuElementWiseOp.SHL,
    ElementKind.SHIFT_RIGHT: api.NpuElementWiseOp.SHR,
    ElementKind.LEADING_ZEROS: api.NpuElementWiseOp.CLZ,
    ElementKind.ABS: api.NpuElementWiseOp.ABS,
    ElementKind.LEAKY_RELU: api.NpuElementWiseOp.LRELU,
}
_ROUNDINGS: Mapping[Rounding, Any] = {
    Rounding.TWICE: api.NpuRoundingMode.TFL,
    Rounding.NATURAL: api.NpuRoundingMode.NATURAL,
}
# A channel's bias of 40 bits, multiplier and shift in the scale stream.
_SCALE_BYTES = 10
# Vela's number of the NPU's own memory, as the target of a transfer.
_SHARED_RAM_REGION = 0x103
_LAYOUTS: Mapping[Layout, Any] = {
    Layout.NHWC: api.NpuLayout.NHWC,
    Layout.NHCWB16: api.NpuLayout.NHCWB16,
}


@dataclass(frozen=True)
class Placement:
    """Where a tensor lies: which base pointer, at which offset, in which layout.

    ``rows`` is the number of rows that the memory holds: row r lies where row r - rows did.
    """

    region: int
    offset: int
    layout: Layout
    rows: int


@dataclass(frozen=True)
class Range:
    """Bytes of the constants: one core's share of weights or scales."""

    region: int
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class Operation:
    """One of our operators beside Vela's form of it; ``table`` is where its table lies, if any."""

    op: NpuOp
    vela: Any
    table: Range | None = None


@dataclass(frozen=True)
class Copy:
    """A transfer between two memories, in Vela's form."""

    vela: Any


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _traversal(op: NpuOp) -> Any:
    if isinstance(op, Conv2D) and part_kernel_first(op):
        return api.NpuBlockTraversal.PART_KERNEL_FIRST
    return api.NpuBlockTraversal.DEPTH_FIRST


@dataclass(frozen=True)
class View:
    """Rows of a placed tensor, from ``first_row`` on, as many as the operand has.

    With ``strides`` the operand is a box within the tensor, which is in memory as a whole; its
    first row is where they say.
    """

    placement: Placement
    first_row: int
    strides: Strides | None = None


def _tiles(operand: Operand, view: View) -> Any:
    """Return the tiles of rows in a rolling buffer: up to its end, and on from its begin."""
    shape, placement = operand.shape, view.placement
    if view.strides is not None:
        start = placement.offset + view.strides.start * operand.dtype.size_bytes
        return api.NpuTileBox(shape.h, 0, shape.w, [start, 0, 0, 0])
    in_bricks = placement.layout is Layout.NHCWB16
    channels = round_up(shape.c, BRICK_CHANNELS) if in_bricks else shape.c
    row_bytes = shape.w * channels * operand.dtype.size_bytes
    slot = view.first_row % placement.rows
    upper = min(shape.h, placement.rows - slot)
    first = placement.offset + slot * row_bytes
    wrapped = placement.offset if upper < shape.h else 0
    return api.NpuTileBox(upper, 0, shape.w, [first, 0, wrapped, 0])


def _feature_map(operand: Operand, view: View) -> Any:
    feature_map = api.NpuFeatureMap()
    shape = operand.shape
    feature_map.data_type = _DTYPES[operand.dtype]
    feature_map.region = view.placement.region
    feature_map.shape = api.NpuShape3D(shape.h, shape.w, shape.c)
    feature_map.tiles = _tiles(operand, view)
    if view.strides is not None:
        size = operand.dtype.size_bytes
        row, column = view.strides.row * size, view.strides.column * size
        in_bricks = view.placement.layout is Layout.NHCWB16
        brick = shape.w * BRICK_CHANNELS * size if in_bricks else size
        feature_map.strides = api.NpuShape3D(height=row, width=column, depth=brick)
    feature_map.layout = _LAYOUTS[view.placement.layout]
    feature_map.quantization = api.NpuQuantization(operand.quant.scale, operand.quant.zero_point)
    feature_map.name = operand.tensor
    return feature_map


def _with_scale(operand: Operand, scale: float) -> Operand:
    quant = type(operand.quant)(scale, operand.quant.zero_point)
    return Operand(operand.tensor, operand.shape, operand.dtype, quant)


def _scale_unit(op: NpuOp) -> float | None:
    """Return the power of two by which an operator's scales are divided; None where none matter.

    Only the ratios of scales matter, and Vela turns limits into reals of float32, which very large
    scales would overflow.
    """
    if isinstance(op, Requantize) and op.curve:
        return 1.0  # the curve's argument is a real number
    by_scales = isinstance(op, ElementWise) and op.rescale is None
    if not (by_scales or isinstance(op, Add | Requantize)):
        return None
    return math.ldexp(1.0, math.frexp(op.ofm.quant.scale)[1])


def _scaled(operand: Operand, unit: float | None) -> Operand:
    """Return the operand in units of scale; with scale 1 where a scale stream has the factors."""
    return _with_scale(operand, 1.0 if unit is None else operand.quant.scale / unit)


def _scaled_ofm(op: NpuOp, unit: float | None) -> Operand:
    """Return the OFM in units of scale; for ABS and LRELU Vela takes its scale for the factor."""
    if isinstance(op, ElementWise) and op.rescale is not None and op.ifm2 is None:
        return _with_scale(op.ofm, math.ldexp(op.rescale.multiplier, -op.rescale.shift))
    return _scaled(op.ofm, unit)


def _kernel(kernel: Kernel) -> Any:
    return api.NpuKernel(
        kernel.w,
        kernel.h,
        kernel.stride_w,
        kernel.stride_h,
        kernel.dilation_w,
        kernel.dilation_h,
    )


def make_copy(source: Range, destination: Range) -> Copy:
    """Return a transfer of a range to another of the same size."""
    ends = (api.NpuAddressRange(r.region, r.offset, r.size_bytes) for r in (source, destination))
    return Copy(api.NpuDmaOperation(*ends))


def _padding(padding: Padding) -> Any:
    return api.NpuPadding(padding.top, padding.left, padding.bottom, padding.right)


def _activation_kind(op: NpuOp) -> str:
    """Return Vela's name of what is done to an operator's results."""
    if isinstance(op, Requantize) and op.curve:
        return op.curve.name
    return "TABLE_LOOKUP" if op.table else "NONE_OR_RELU"


def _activation(clamp: Clamp, ofm: Operand, kind: str) -> Any:
    """Return the limits as the reals that Vela turns back into exactly these integers."""
    activation = api.NpuActivation(api.NpuActivationOp[kind])
    scale, zero_point = ofm.quant.scale, ofm.quant.zero_point
    activation.min = (clamp.minimum - zero_point) * scale
    activation.max = (clamp.maximum - zero_point) * scale
    return activation


def _bare_operation(op: NpuOp) -> tuple[Any, Kernel, Padding]:
    match op:
        case Conv2D():
            operation = api.NpuConv2DOperation()
            operation.block_traversal = _traversal(op)
            operation.rounding_mode = _ROUNDINGS[op.rounding]
            return operation, op.kernel, op.padding
        case DepthwiseConv2D():
            operation = api.NpuConvDepthWiseOperation()
            operation.rounding_mode = _ROUNDINGS[op.rounding]
            return operation, op.kernel, op.padding
        case Pool():
            kinds = {
                PoolKind.MAX: api.NpuPoolingOp.MAX,
                PoolKind.AVERAGE: api.NpuPoolingOp.AVERAGE,
            }
            operation = api.NpuPoolingOperation(kinds[op.kind])
            if op.kind is PoolKind.AVERAGE and not op.padding.any:
                # Vela's factor for 1/n is rounded up, which is right for a single rounding only.
                operation.rounding_mode = api.NpuRoundingMode.NATURAL
            return operation, op.kernel, op.padding
        case Move():
            raise InternalError(f"{op.name}: parts of a move are operations of their own")
        case Add() | ElementWise() | Requantize() | SumChannels():
            return _bare_pointwise(op), Kernel(1, 1), Padding()


def _bare_pointwise(op: Add | ElementWise | Requantize | SumChannels) -> Any:
    match op:
        case Add():
            return api.NpuElementWiseOperation(api.NpuElementWiseOp.ADD)
        case ElementWise():
            operation = api.NpuElementWiseOperation(_ELEMENT_KINDS[op.kind])
            operation.reversed_operands = op.swapped
            operation.rounding_mode = _ROUNDINGS[op.rounding]
            if op.rescale is not None:
                operation.rescale = (op.rescale.multiplier, op.rescale.shift)
            return operation
        case Requantize():
            operation = api.NpuPoolingOperation(api.NpuPoolingOp.AVERAGE)
            operation.fused_quantize = True
            return operation
        case SumChannels():
            return api.NpuPoolingOperation(api.NpuPoolingOp.REDUCE_SUM)


def make_operation(op: NpuOp, views: Mapping[str, View]) -> Operation:
    """Return Vela's form of an operator whose tensors are seen through ``views``."""
    operation, kernel, padding = _bare_operation(op)
    unit = _scale_unit(op)
    ifm, ofm = _scaled(op.ifm, unit), _scaled_ofm(op, unit)
    operation.ifm = _feature_map(ifm, views[ifm.tensor])
    operation.ofm = _feature_map(ofm, views[ofm.tensor])
    if isinstance(op, Add | ElementWise) and op.ifm2 is not None:
        operation.ifm2 = _feature_map(_scaled(op.ifm2, unit), views[op.ifm2.tensor])
    if isinstance(op, SumChannels):
        # Without scales Vela's factor is exactly 1.
        for feature_map in (operation.ifm, operation.ofm):
            zero_point = feature_map.quantization.zero_point
            feature_map.quantization = api.NpuQuantization(None, zero_point)
    operation.kernel = _kernel(kernel)
    operation.padding = _padding(padding)
    operation.activation = _activation(op.clamp, ofm, _activation_kind(op))
    operation.name = op.name
    return Operation(op, operation)


def set_block(operation: Operation, block: Block) -> None:
    """Fix the block config; the weights must be encoded for the same depth."""
    operation.vela.block_config = api.NpuShape3D(block.h, block.w, block.c)


def with_table(operation: Operation, table: Range) -> Operation:
    """Return the operation with the place of its table."""
    return Operation(operation.op, operation.vela, table)


def set_constants(operation: Operation, scales: Sequence[Range], weights: Sequence[Range]) -> None:
    """Tell where scales and weights lie, one range per core."""

    def addresses(ranges: Sequence[Range]) -> list[Any]:
        return [api.NpuAddressRange(r.region, r.offset, r.size_bytes) for r in ranges]

    operation.vela.biases = addresses(scales)
    operation.vela.weights = addresses(weights)


def encode_weights(
    op: Conv2D | DepthwiseConv2D, arch: Arch, weights: npt.NDArray[np.int16], depth: int
) -> tuple[bytes, ...]:
    """Return the weight stream of each core for OHWI weights and blocks of ``depth`` channels.

    Cores take every other channel.

    Raises:
        InternalError: a weight lies outside of -255..255, which would be encoded as 0.
    """
    low, high = int(weights.min()), int(weights.max())
    if low < MIN_WEIGHT or high > MAX_WEIGHT:
        raise InternalError(f"{op.name}: weights {low}..{high} leave {MIN_WEIGHT}..{MAX_WEIGHT}")
    streams = []
    for core in range(min(arch.cores, weights.shape[0])):
        with _quiet():
            encoded = api.npu_encode_weights(
                _ACCELERATORS[arch.accelerator],
                np.ascontiguousarray(weights[core :: arch.cores], dtype=np.int16),
                (op.kernel.dilation_w, op.kernel.dilation_h),
                op.ifm.dtype.size_bytes * 8,
                (depth + arch.cores - 1 - core) // arch.cores,
                isinstance(op, DepthwiseConv2D),
                _traversal(op),
            )
        streams.append(bytes(encoded))
    return tuple(streams)


def scale_stream_bytes(arch: Arch, channels: int) -> tuple[int, ...]:
    """Return the bytes of the scale stream of each core, see ``encode_scales``."""
    cores = range(min(arch.cores, channels))
    return tuple(
        round_up(len(range(core, channels, arch.cores)) * _SCALE_BYTES, ALIGN_BYTES)
        for core in cores
    )


def encode_scales(
    arch: Arch, biases: npt.NDArray[np.int64], rescales: Sequence[Rescale]
) -> tuple[bytes, ...]:
    """Return the scale stream of each core, padded to 16 bytes.

    Raises:
        InternalError: a bias needs more than 40 bits, or a rescale more than its field.
    """
    limit = 1 << (BIAS_BITS - 1)
    streams = []
    for core in range(min(arch.cores, len(rescales))):
        packed = bytearray()
        for bias, rescale in list(zip(biases, rescales, strict=True))[core :: arch.cores]:
            in_range = -limit <= int(bias) < limit and 0 <= rescale.shift <= MAX_RESCALE_SHIFT
            if not (in_range and 0 <= rescale.multiplier < 1 << 32):
                raise InternalError(f"bias {bias} with {rescale} does not fit the scale stream")
            packed += api.npu_encode_bias(np.int64(bias), rescale.multiplier, rescale.shift)
        packed += bytes(-len(packed) % ALIGN_BYTES)
        streams.append(bytes(packed))
    return tuple(streams)


def command_stream(operations: Sequence[Operation | Copy], arch: Arch) -> tuple[int, ...]:
    """Return the register command stream, as 32-bit words, of operations in this order."""
    with _quiet():
        words = api.npu_generate_register_command_stream(
            _with_table_transfers(operations, arch), _ACCELERATORS[arch.accelerator]
        )
    kernels = [operation for operation in operations if isinstance(operation, Operation)]
    unsafe = [
        _block_dependency_is_unsafe(operation.op) or _meet_in_a_box(before, operation)
        for before, operation in zip((None, *kernels), kernels, strict=False)
    ]
    return _wait_for_previous(tuple(int(word) for word in words), unsafe)


class _Tables:
    """Which tables the shared RAM holds, from which slot on."""

    def __init__(self) -> None:
        self.slots: dict[Range, int] = {}
        self.end = 0

    def forget(self) -> None:
        self.slots.clear()
        self.end = 0

    def load(self, upcoming: Iterable[Range]) -> list[Range]:
        """Give slots to tables in the order of their use, and return those that got one.

        If there is no room for the first one, all that are there make room; the last ones may get
        none.
        """
        loaded: list[Range] = []
        for table in upcoming:
            start = round_up(self.end, table.size_bytes)
            if start + table.size_bytes > TABLE_BYTES:
                if loaded:
                    break
                self.forget()
                start = 0
            self.end = start + table.size_bytes
            self.slots[table] = start // TABLE_SLOT_BYTES
            loaded.append(table)
        return loaded


def _with_table_transfers(operations: Sequence[Operation | Copy], arch: Arch) -> list[Any]:
    """Return Vela's operations, each table copied to the shared RAM before it is first used.

    As many as there is room for are copied together, before what else is copied there: transfers
    follow one another, so that a table would wait for weights that are needed much later.
    """
    tables = _Tables()
    result: list[Any] = []
    behind_kernel = 0
    for index, operation in enumerate(operations):
        if isinstance(operation, Copy):
            result.append(operation.vela)
            continue
        table = operation.table
        if table is None:
            if not arch.tables_are_kept:
                tables.forget()
        else:
            if table not in tables.slots:
                loaded = tables.load(_upcoming(operations[index:], tables, arch))
                result[behind_kernel:behind_kernel] = [
                    _table_transfer(one, tables.slots[one], arch) for one in loaded
                ]
            operation.vela.activation.lookup_table_index = tables.slots[table]
        result.append(operation.vela)
        behind_kernel = len(result)
    return result


def _upcoming(operations: Sequence[Operation | Copy], tables: _Tables, arch: Arch) -> list[Range]:
    """Return the tables that operations use from here on, as long as the shared RAM keeps them."""
    found: dict[Range, None] = {}
    for operation in operations:
        if isinstance(operation, Copy):
            continue
        if operation.table is not None and operation.table not in tables.slots:
            found[operation.table] = None
        elif operation.table is None and not arch.tables_are_kept:
            break
    return list(found)


def _table_transfer(table: Range, slot: int, arch: Arch) -> Any:
    address = arch.table_address + slot * TABLE_SLOT_BYTES
    return api.NpuDmaOperation(
        api.NpuAddressRange(table.region, table.offset, table.size_bytes),
        api.NpuAddressRange(_SHARED_RAM_REGION, address, table.size_bytes),
    )


def _block_dependency_is_unsafe(op: NpuOp) -> bool:
    """Return whether Vela assumes other rows than the operator's first blocks read.

    Its block dependency takes the padding at the right for the padding at the top: where they
    differ, the rows that it looks at begin or end too early.
    """
    match op:
        case Conv2D() | DepthwiseConv2D() | Pool():
            return op.padding.top != op.padding.right
        case _:
            return False


def _meet_in_a_box(before: Operation | None, operation: Operation) -> bool:
    """Return whether an operator reads what the one before wrote, and one of them sees a box of it.

    Vela compares their coordinates, which count from different elements then.
    """
    if before is None or before.op.ofm.tensor not in {o.tensor for o in operation.op.inputs}:
        return False
    return before.vela.ofm.strides is not None or operation.vela.ifm.strides is not None


_SET_BLOCKDEP = 0x12F
_LAST_OPERATION_CODE = 0x06
_FIRST_BLOCK_OPERATION_CODE = 0x02


def _commands(words: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield each command with its payload word, if it has one (bit 14 of the first word)."""
    index = 0
    while index < len(words):
        length = 2 if words[index] & (1 << 14) else 1
        yield tuple(words[index : index + length])
        index += length


def _wait_for_previous(words: tuple[int, ...], wait: Sequence[bool]) -> tuple[int, ...]:
    """Return the stream with BLOCKDEP 0 where ``wait`` says so, unchanged elsewhere."""
    if not any(wait):
        return words
    result: list[int] = []
    intended = current = None
    position = 0
    for command in _commands(words):
        code, has_payload = command[0] & 0x3FF, len(command) == 2
        if code == _SET_BLOCKDEP and not has_payload:
            intended = command[0] >> 16
            continue
        starts = not has_payload and _FIRST_BLOCK_OPERATION_CODE <= code <= _LAST_OPERATION_CODE
        if starts:
            wanted = 0 if wait[position] else intended
            if wanted is not None and wanted != current:
                result.append(_SET_BLOCKDEP | wanted << 16)
                current = wanted
            position += 1
        result += command
    return tuple(result)
