"""The invariants of an NPU graph, checked where it passes from one package to the next.

- Every operand names a tensor of the graph, with the tensor's type and number of elements.
- Every extent of an operand is one that the NPU's registers can hold.
- Windows read all of the padding and leave no more of the input unread than a stride allows.
- Each channel of a tensor is written once, before it is read; inputs and constants are never.
- Every output is written by an operator; one that shares an input's memory, after its last use.
- Weights are OHWI and agree with kernel, IFM and OFM; there is one bias and rescale per channel.
- Element-wise operators have the operands and types that the NPU takes, and fitting factors.
- A table has 256 values of the OFM's type, or 512 pairs of 16 bits for int16.
- A curve of the NPU's own goes from int16 to int16.
- The parts of a Move stay inside of its tensors and write each element of the OFM once.
- Weights lie within 9 bits and biases within 40: the encoder drops the rest silently.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tvm_ethosu.scheduler.arch import (
    BIAS_BITS,
    MAX_DIM,
    MAX_RESCALE_SHIFT,
    MAX_WEIGHT,
    MIN_WEIGHT,
)
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import (
    Conv2D,
    DepthwiseConv2D,
    DType,
    ElementKind,
    ElementWise,
    Move,
    NpuGraph,
    NpuOp,
    Operand,
    Part,
    Pool,
    Requantize,
    Rescale,
    Shape,
    Strides,
    SumChannels,
    Tensor,
)
from tvm_ethosu.scheduler.liveness import can_share


def _require(condition: bool, graph: NpuGraph, where: str, what: str) -> None:
    if not condition:
        raise InternalError(f"{graph.name}, {where}: {what}")


def _verify_operand(graph: NpuGraph, op: NpuOp, operand: Operand) -> None:
    tensor = graph.tensors.get(operand.tensor)
    _require(tensor is not None, graph, op.name, f"no tensor {operand.tensor}")
    assert tensor is not None
    _require(tensor.dtype is operand.dtype, graph, op.name, f"type of {operand} differs")
    covers = tensor.shape.elements == operand.shape.elements or _is_inside(operand, tensor)
    _require(covers, graph, op.name, f"{operand} does not cover {tensor.shape}")
    _require(operand.shape.n == 1, graph, op.name, f"batch of {operand} is not 1")
    extents = (operand.shape.h, operand.shape.w, operand.shape.c)
    in_range = all(1 <= extent <= MAX_DIM for extent in extents)
    _require(in_range, graph, op.name, f"an extent of {operand} is not 1 to {MAX_DIM}")


def _is_inside(operand: Operand, tensor: Tensor) -> bool:
    """Return whether an operand is a slice of a tensor's channels."""
    plane = (operand.shape.h, operand.shape.w) == (tensor.shape.h, tensor.shape.w)
    last = operand.first_channel + operand.shape.c
    return plane and operand.first_channel >= 0 and last <= tensor.shape.c


def _verify_windows(graph: NpuGraph, op: Conv2D | DepthwiseConv2D | Pool) -> None:
    kernel, padding, ifm, ofm = op.kernel, op.padding, op.ifm.shape, op.ofm.shape
    rows = (ofm.h - 1) * kernel.stride_h + kernel.dilated_h - padding.top - padding.bottom
    columns = (ofm.w - 1) * kernel.stride_w + kernel.dilated_w - padding.left - padding.right
    for needed, extent, after in ((rows, ifm.h, padding.bottom), (columns, ifm.w, padding.right)):
        reads_padding = needed == extent if after else needed <= extent
        _require(reads_padding, graph, op.name, f"windows read {needed} of {extent} and {after}")


def _verify_weights(graph: NpuGraph, op: Conv2D | DepthwiseConv2D) -> None:
    weights = graph.constants[op.weights].data
    bias = graph.constants[op.bias].data.astype(np.int64)
    channels = op.ofm.shape.c
    depth = op.ifm.shape.c if isinstance(op, Conv2D) else 1
    expected = (channels, op.kernel.h, op.kernel.w, depth)
    _require(weights.shape == expected, graph, op.name, f"weights {weights.shape} != {expected}")
    _require(bias.shape == (channels,), graph, op.name, f"bias {bias.shape} != ({channels},)")
    _require(len(op.rescale) == channels, graph, op.name, "one rescale per channel is needed")
    low, high = int(np.min(weights)), int(np.max(weights))
    inside = low >= MIN_WEIGHT and high <= MAX_WEIGHT
    _require(inside, graph, op.name, f"weights {low}..{high} leave {MIN_WEIGHT}..{MAX_WEIGHT}")
    limit = 1 << (BIAS_BITS - 1)
    in_bits = bool(np.all((bias >= -limit) & (bias < limit)))
    _require(in_bits, graph, op.name, f"a bias needs more than {BIAS_BITS} bits")
    for rescale in op.rescale:
        fits = 0 <= rescale.shift <= MAX_RESCALE_SHIFT and 0 <= rescale.multiplier < 1 << 32
        _require(fits, graph, op.name, f"{rescale} does not fit the scale stream")


_WORDS_ONLY = (ElementKind.SHIFT_LEFT, ElementKind.SHIFT_RIGHT, ElementKind.LEADING_ZEROS)
_UNSCALED = (ElementKind.MIN, ElementKind.MAX, *_WORDS_ONLY)


def _verify_elements(graph: NpuGraph, op: ElementWise) -> None:
    unary = op.ifm2 is None
    _require(op.kind.is_unary == unary, graph, op.name, f"{op.kind.value} with a wrong arity")
    types = {operand.dtype for operand in op.inputs}
    _require(len(types) == 1, graph, op.name, "operands of different types")
    words = op.ifm.dtype is DType.I32
    _require(words or op.kind not in _WORDS_ONLY, graph, op.name, f"{op.kind.value} needs int32")
    _require(op.ifm.shape == op.ofm.shape, graph, op.name, f"{op.ifm} is broadcast to {op.ofm}")
    if op.ifm2 is not None:
        first, second = op.ifm.shape, op.ifm2.shape
        pairs = ((second.h, first.h), (second.w, first.w), (second.c, first.c))
        fits = all(extent in (1, whole) for extent, whole in pairs)
        _require(fits, graph, op.name, f"{op.ifm2} can't be broadcast to {op.ifm}")
    if op.kind in (ElementKind.ABS, ElementKind.LEAKY_RELU):
        short = not words and op.rescale is not None and op.rescale.multiplier > 0
        _require(short, graph, op.name, f"{op.kind.value} of {op.ifm} with {op.rescale}")
    _verify_factor(graph, op)


def _verify_factor(graph: NpuGraph, op: ElementWise) -> None:
    rescale, kind = op.rescale, op.kind
    if rescale is None:
        by_scales = kind in (ElementKind.ADD, ElementKind.SUB) and op.ifm.dtype.size_bytes <= 2
        _require(by_scales, graph, op.name, f"{kind.value} of {op.ifm} needs a factor")
        return
    fits = 0 <= rescale.shift <= MAX_RESCALE_SHIFT and 0 <= rescale.multiplier < 1 << 32
    _require(fits, graph, op.name, f"{rescale} does not fit its register")
    unscaled = rescale == Rescale(1, 0)
    _require(unscaled or kind not in _UNSCALED, graph, op.name, f"{kind.value} has a factor")


def _verify_sum(graph: NpuGraph, op: SumChannels) -> None:
    ifm, ofm = op.ifm, op.ofm
    expected = Shape(1, ifm.shape.h, ifm.shape.w, 1)
    _require(ofm.shape == expected, graph, op.name, f"the sum of {ifm} is not {ofm}")
    wide = ifm.dtype in (DType.I16, DType.I32) and ofm.dtype is DType.I32
    _require(wide, graph, op.name, "sums are made of int16 or int32")


# Entries of a table and their type, by the type of the OFM.
_TABLES = {
    DType.U8: (256, "uint8"),
    DType.I8: (256, "int8"),
    DType.I16: (512, "uint32"),
    DType.I32: (256, "int32"),
}


def _verify_table(graph: NpuGraph, op: NpuOp) -> None:
    constant = graph.constants.get(op.table)
    _require(constant is not None, graph, op.name, f"no table {op.table}")
    assert constant is not None
    expected = _TABLES.get(op.ofm.dtype)
    fits = expected == (constant.data.size, constant.data.dtype.name) and constant.data.ndim == 1
    what = f"table of {constant.data.size} {constant.data.dtype} for {op.ofm}"
    _require(fits, graph, op.name, what)


def _verify_curve(graph: NpuGraph, op: Requantize) -> None:
    ends = (op.ifm, op.ofm)
    fits = all(end.dtype is DType.I16 and end.quant.zero_point == 0 for end in ends)
    _require(fits and not op.table, graph, op.name, f"a curve of {op.ifm} as {op.ofm}")


def _last_element(part: Part, strides: Strides) -> int:
    shape = part.shape
    rows, columns = (shape.h - 1) * strides.row, (shape.w - 1) * strides.column
    return strides.start + rows + columns + shape.c - 1


def _verify_parts(graph: NpuGraph, op: Move) -> None:
    written = np.zeros(op.ofm.shape.elements, np.int8)
    for part in op.parts:
        source = op.inputs[part.source]
        for strides, operand in ((part.read, source), (part.write, op.ofm)):
            steps = (strides.start, strides.row, strides.column)
            inside = min(steps) >= 0 and _last_element(part, strides) < operand.shape.elements
            _require(inside, graph, op.name, f"{part} leaves {operand}")
        _require(source.dtype is op.ofm.dtype, graph, op.name, f"{source} has another type")
        in_range = all(1 <= n <= MAX_DIM for n in (part.shape.h, part.shape.w, part.shape.c))
        _require(in_range, graph, op.name, f"an extent of {part} is not 1 to {MAX_DIM}")
        at = part.write
        shape = (part.shape.h, part.shape.w, part.shape.c)
        np.lib.stride_tricks.as_strided(written[at.start :], shape, (at.row, at.column, 1))[:] += 1
    _require(bool(np.all(written == 1)), graph, op.name, "not every element is written once")


def _verify_kind(graph: NpuGraph, op: NpuOp) -> None:
    if isinstance(op, Conv2D | DepthwiseConv2D):
        _verify_weights(graph, op)
    if isinstance(op, Conv2D | DepthwiseConv2D | Pool):
        _verify_windows(graph, op)
    if isinstance(op, ElementWise):
        _verify_elements(graph, op)
    if isinstance(op, SumChannels):
        _verify_sum(graph, op)
    if isinstance(op, Move):
        _verify_parts(graph, op)
    if isinstance(op, Requantize) and op.curve:
        _verify_curve(graph, op)
    if op.table:
        _verify_table(graph, op)


def _channels(
    graph: NpuGraph, operand: Operand, written: Mapping[str, npt.NDArray[np.bool_]]
) -> npt.NDArray[np.bool_]:
    """Return the part of a tensor's channels that an operand sees."""
    channels = written[operand.tensor]
    if not graph.is_slice(operand):
        return channels
    return channels[operand.first_channel : operand.first_channel + operand.shape.c]


def verify_graph(graph: NpuGraph) -> NpuGraph:
    """Check the invariants above and return the graph.

    Raises:
        InternalError: the first that is broken, with the operator's name.
    """
    given = {*graph.inputs, *graph.constants}
    # Channel by channel, whether an operator has written a tensor.
    written = {n: np.full(t.shape.c, n in given) for n, t in graph.tensors.items()}
    for name, tensor in graph.tensors.items():
        _require(tensor.shape.n == 1, graph, name, f"a batch of {tensor.shape.n}, not rows")
    for op in graph.ops:
        for operand in (*op.inputs, op.ofm):
            _verify_operand(graph, op, operand)
        for operand in op.inputs:
            there = bool(_channels(graph, operand, written).all())
            _require(there, graph, op.name, f"{operand} read before written")
        made = _channels(graph, op.ofm, written)
        _require(not made.any(), graph, op.name, f"{op.ofm} is written twice")
        made[:] = True
        _verify_kind(graph, op)
    computed = {op.ofm.tensor for op in graph.ops}
    for name in graph.outputs:
        whole = name in computed and bool(written[name].all())
        _require(whole, graph, name, "an output that no operator writes")
    if graph.shared is not None:
        apart = can_share(graph, graph.shared)
        _require(apart, graph, graph.shared.output, f"written while {graph.shared.input} is read")
    return graph
