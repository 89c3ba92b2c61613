"""Bilinear resizing: each element repeated by a move, then one depthwise convolution that blends.

Enlarged k times to the nearest neighbour, with the edges repeated, a row's elements blend by a
window of ones (k wide) or, where pixels have their centres at halves, of 1 2 .. 2 1 (k + 1 wide).
TFLite's kernel (kernels/internal/reference/resize_bilinear.h) counts in units of 2**-10; the window
is used where it gives exactly the weights that follow from that. For uint8 TFLite calculates in
float32, exactly with these weights; its halves go upwards, which is the same without negative sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ethosu.partition.constraints import (
    Constraint,
    batch_is_one,
    dims_fit,
    is_quantized,
    types_are_activations,
    types_are_equal,
)
from tvm_ethosu.partition.lower import Lowered, stored_shape, to_shape
from tvm_ethosu.partition.moves import MAX_PARTS, MoveParams, Segment, lower_move, mapped, whole
from tvm_ethosu.partition.params import OpParams, TensorType
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.scheduler.arch import MAX_DIM
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    DepthwiseConv2D,
    DType,
    Kernel,
    Operand,
    Padding,
    Rescale,
    Tensor,
)

_UNIT = 1 << 10
_FACTORS = (1, 2, 4, 8)


@dataclass(frozen=True)
class BilinearParams(OpParams):
    """A resize to ``ofm``; ``mode`` is Relay's coordinate transformation, ``layout`` the data's."""

    mode: str
    layout: str
    same_quant: bool


@dataclass(frozen=True)
class _Axis:
    """How one dimension is enlarged: the element for each step of a window, and the window."""

    segments: tuple[Segment, ...]
    extent: int
    window: tuple[int, ...]

    @property
    def copies(self) -> int:
        """Return how many copies repeat the elements; edges are repeated one by one."""
        return sum(1 if s.read_step else s.extent for s in self.segments)


def _weights(size: int, out: int, mode: str) -> list[dict[int, int]]:
    """Return for each output the input elements with their weights, in units of 2**-10."""
    aligned = mode == "align_corners" and out > 1
    numerator, denominator = (size - 1, out - 1) if aligned else (size, out)
    step = (_UNIT * numerator + denominator // 2) // denominator
    offset = step // 2 - _UNIT // 2 if mode == "half_pixel" else 0
    result = []
    for index in range(out):
        position = index * step + offset
        # C rounds towards zero, which matters below the first element only.
        lower = max(position // _UNIT, 0)
        upper = min(max(-(-position // _UNIT), 0), size - 1)
        weights = {lower: 0, upper: 0}
        weights[lower] += _UNIT - (position - lower * _UNIT)
        weights[upper] += position - lower * _UNIT
        result.append({element: weight for element, weight in weights.items() if weight})
    return result


def _enlarged(size: int, factor: int, edge: int) -> tuple[Segment, ...]:
    """Return each element ``factor`` times, the first and the last one ``edge`` times more."""
    inner = [Segment(size, 0, edge + step, 1, factor) for step in range(factor)]
    last = Segment(edge, size - 1, edge + size * factor, 0)
    return (*inner, Segment(edge, 0, 0, 0), last) if edge else tuple(inner)


def _gives(axis: _Axis, expected: Sequence[dict[int, int]]) -> bool:
    """Return whether the window gives the weights."""
    table = [0] * axis.extent
    for s in axis.segments:
        for index in range(s.extent):
            table[s.write + index * s.write_step] = s.read + index * s.read_step
    total = sum(axis.window)
    if len(table) < len(expected) + len(axis.window) - 1:
        return False
    for start, weights in enumerate(expected):
        found: dict[int, int] = {}
        for tap, weight in enumerate(axis.window):
            element = table[start + tap]
            found[element] = found.get(element, 0) + weight * _UNIT
        if found != {element: weight * total for element, weight in weights.items()}:
            return False
    return True


def _axis(size: int, out: int, mode: str) -> _Axis | None:
    """Return how a dimension is enlarged, or None where no window gives TFLite's weights."""
    expected = _weights(size, out, mode)
    if size == out and expected == [{index: _UNIT} for index in range(out)]:
        return _Axis((Segment(size),), size, (1,))
    for factor in _FACTORS:
        half = (1, *(2,) * (factor - 1), 1)
        for window, edge in ((half, factor // 2), ((1,) * factor, factor - 1)):
            axis = _Axis(_enlarged(size, factor, edge), size * factor + 2 * edge, window)
            shifted = _without_front(axis, edge) if window is not half else axis
            if _gives(shifted, expected):
                return shifted
    return None


def _without_front(axis: _Axis, edge: int) -> _Axis:
    """Return the axis without the repeated first element."""
    kept = [s for s in axis.segments if not (edge and s.write == 0 and s.read_step == 0)]
    moved = tuple(
        Segment(s.extent, s.read, s.write - edge, s.read_step, s.write_step) for s in kept
    )
    return _Axis(moved, axis.extent - edge, axis.window)


def _axes(params: BilinearParams) -> tuple[_Axis | None, _Axis | None]:
    _, height, width, _ = params.ifm.dims
    _, out_height, out_width, _ = params.ofm.dims
    return _axis(height, out_height, params.mode), _axis(width, out_width, params.mode)


def _repeated(
    params: BilinearParams, name: str, ifm: str, axes: tuple[_Axis, _Axis]
) -> tuple[Lowered, ...]:
    """Return the moves that repeat the elements; rows, then columns, if that takes fewer copies."""
    rows, columns = axes
    _, _, width, channels = params.ifm.dims
    tall = (1, rows.extent, width, channels)
    large = (1, rows.extent, columns.extent, channels)
    in_rows, in_both = whole(tall), whole(large)
    in_rows[1] = list(rows.segments)
    in_both[2] = list(columns.segments)
    steps = [(params.ifm.dims, tall, in_rows), (tall, large, in_both)]
    if rows.copies * columns.copies <= MAX_PARTS // 2:
        in_both[1] = list(rows.segments)
        steps = [(params.ifm.dims, large, in_both)]
    moves, source = [], ifm
    for index, (reads, writes, maps) in enumerate(steps):
        of = TensorType(reads, params.ifm.dtype), TensorType(writes, params.ifm.dtype)
        boxes = mapped(0, reads, writes, maps)
        move = MoveParams(params.origin, *of, (of[0],), boxes)
        target = f"{name}_repeated{index}"
        lowered = lower_move(move, f"{name}_move{index}", [source], target)
        tensor = Tensor(target, stored_shape(writes), DType(params.ifm.dtype))
        moves.append(Lowered(lowered.op, (), (), (tensor,)))
        source = target
    return tuple(moves)


def lower_bilinear(params: OpParams, name: str, ifms: Sequence[str], ofm: str) -> Lowered:
    """Return the repeated elements and the convolution that blends them."""
    assert isinstance(params, BilinearParams)
    rows, columns = _axes(params)
    if rows is None or columns is None:
        raise InternalError(f"{params.origin}: a resize passed the constraints wrongly")
    moves = _repeated(params, name, ifms[0], (rows, columns))
    dtype, channels = DType(params.ifm.dtype), params.ifm.dims[3]
    window = np.outer(rows.window, columns.window)
    # Twice the weights, and 2**30 as multiplier: the sum itself is rounded, halves away from zero.
    weights = np.broadcast_to(2 * window[None, :, :, None], (channels, *window.shape, 1))
    rescale = Rescale(1 << 30, 31 + int(window.sum()).bit_length() - 1)
    constants = (
        Constant(f"{name}_weights", np.ascontiguousarray(weights, np.int16)),
        Constant(f"{name}_bias", np.zeros(channels, np.int64)),
    )
    repeated = moves[-1].tensors[0]
    op = DepthwiseConv2D(
        name,
        Operand(repeated.name, repeated.shape, dtype),
        Operand(ofm, to_shape(params.ofm.dims), dtype),
        Clamp(dtype.minimum, dtype.maximum),
        constants[0].name,
        constants[1].name,
        Kernel(*window.shape),
        Padding(),
        (rescale,) * channels,
        origin=params.origin,
    )
    tensors = tuple(tensor for move in moves for tensor in move.tensors)
    return Lowered(op, constants, tuple(move.op for move in moves), tensors)


# --- limits ---------------------------------------------------------------------------------------


def resize_form_fits(params: OpParams) -> Rejection | None:
    """Inputs and outputs are in layout NHWC, with four dimensions."""
    assert isinstance(params, BilinearParams)
    for name, of in (("input", params.ifm), ("output", params.ofm)):
        if len(of.dims) != 4:
            return Rejection(f"{name} rank", str(len(of.dims)), "4 dimensions")
    if params.layout != "NHWC":
        return Rejection("layout", params.layout, "NHWC")
    return None


def resize_keeps_quantization(params: OpParams) -> Rejection | None:
    """A resize has the scale and zero point of its input."""
    assert isinstance(params, BilinearParams)
    if not params.same_quant:
        return Rejection("scales and zero points", "different", "those of the input")
    return None


def resize_factors_fit(params: OpParams) -> Rejection | None:
    """Height and width become 1, 2, 4 or 8 times as large, corners aligned or not."""
    assert isinstance(params, BilinearParams)
    for index, (what, axis) in enumerate(zip(("height", "width"), _axes(params), strict=True), 1):
        if axis is None:
            value = f"from {params.ifm.dims[index]} to {params.ofm.dims[index]}, {params.mode}"
            return Rejection(f"resize in {what}", value, "1, 2, 4 or 8 times as large")
        if axis.extent > MAX_DIM:
            return Rejection(f"enlarged {what}", str(axis.extent), f"up to {MAX_DIM}")
    return None


BILINEAR_CONSTRAINTS: tuple[Constraint, ...] = (
    is_quantized,
    dims_fit,
    types_are_activations,
    types_are_equal,
    resize_form_fits,
    batch_is_one,
    resize_keeps_quantization,
    resize_factors_fit,
)
