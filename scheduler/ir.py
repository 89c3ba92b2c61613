"""The NPU graph: what the NPU computes, in integers, before any decision about memory or time.

The graph owns everything the scheduler and the code generator need; nothing of TVM is inside.
Operators stand in execution order. A reshape is no operator: an operand names a tensor and the
shape under which it is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt


class DType(Enum):
    """Element types of feature maps and biases; values are numpy's names."""

    U8 = "uint8"
    I8 = "int8"
    I16 = "int16"
    I32 = "int32"

    @property
    def size_bytes(self) -> int:
        """Return the size of one element."""
        return np.dtype(self.value).itemsize

    @property
    def minimum(self) -> int:
        """Return the smallest value."""
        return int(np.iinfo(self.value).min)

    @property
    def maximum(self) -> int:
        """Return the largest value."""
        return int(np.iinfo(self.value).max)


@dataclass(frozen=True)
class Shape:
    """A feature map's extent; the NPU works on one batch, so ``n`` is 1 in every operand."""

    n: int
    h: int
    w: int
    c: int

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return self.n * self.h * self.w * self.c

    def __str__(self) -> str:
        return f"{self.n}x{self.h}x{self.w}x{self.c}"


@dataclass(frozen=True)
class Tensor:
    """A piece of memory that holds one feature map; ``origin`` is its name in the model."""

    name: str
    shape: Shape
    dtype: DType
    origin: str = ""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the dense NHWC form."""
        return self.shape.elements * self.dtype.size_bytes


@dataclass(frozen=True, eq=False)
class Constant:
    """Data known at compile time: OHWI weights (zero point taken off), biases, feature maps."""

    name: str
    data: npt.NDArray[np.generic]


@dataclass(frozen=True)
class Quant:
    """Per-tensor quantisation of an operand: ``real = scale * (value - zero_point)``."""

    scale: float = 1.0
    zero_point: int = 0


@dataclass(frozen=True)
class Operand:
    """A tensor as an operator sees it: under which shape, with which quantisation.

    With fewer elements than the tensor it is a slice: channels from ``first_channel`` on.
    """

    tensor: str
    shape: Shape
    dtype: DType
    quant: Quant = Quant()
    first_channel: int = 0

    def __str__(self) -> str:
        text = f"%{self.tensor}[{self.shape} {self.dtype.value}"
        text += f" from channel {self.first_channel}" if self.first_channel else ""
        return text + (f" zp={self.quant.zero_point}]" if self.quant.zero_point else "]")


@dataclass(frozen=True)
class Kernel:
    """A window over the IFM."""

    h: int
    w: int
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1

    @property
    def elements(self) -> int:
        """Return how many positions the window reads."""
        return self.h * self.w

    @property
    def dilated_h(self) -> int:
        """Return the rows that the window spans."""
        return (self.h - 1) * self.dilation_h + 1

    @property
    def dilated_w(self) -> int:
        """Return the columns that the window spans."""
        return (self.w - 1) * self.dilation_w + 1

    def __str__(self) -> str:
        text = f"{self.h}x{self.w}"
        if (self.stride_h, self.stride_w) != (1, 1):
            text += f" stride={self.stride_h}x{self.stride_w}"
        if (self.dilation_h, self.dilation_w) != (1, 1):
            text += f" dilation={self.dilation_h}x{self.dilation_w}"
        return text


@dataclass(frozen=True)
class Padding:
    """Rows and columns of zero points around the IFM."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        """Return whether there is padding at any side."""
        return bool(self.top or self.left or self.bottom or self.right)

    def __str__(self) -> str:
        return f"{self.top},{self.left},{self.bottom},{self.right}"


@dataclass(frozen=True)
class Rescale:
    """A fixed-point factor: ``value * multiplier / 2**shift``, rounded twice as gemmlowp does."""

    multiplier: int
    shift: int


@dataclass(frozen=True)
class Clamp:
    """Limits of an operator's result, in the OFM's quantised values."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return f"[{self.minimum},{self.maximum}]"


class PoolKind(Enum):
    """What a pooling window computes."""

    MAX = "max"
    AVERAGE = "average"


class Rounding(Enum):
    """How a scaled result is rounded: once with ties upwards, or twice as gemmlowp does."""

    NATURAL = "natural"
    TWICE = "twice"


@dataclass(frozen=True)
class OpBase:
    """What all operators have: one result, limits for it, and where in the model they come from.

    ``table`` names a constant of 256 values of the OFM's type that replace the results: an 8-bit
    result looks up its own entry (counted from the least value), a 32-bit one is limited to int8
    for that. For a 16-bit one there are 512 words of uint32, one for each 128 values: the first
    value's result in the lower half, in the upper one how far it is from there to the next word's.
    ``model_macs`` are the multiply-accumulates of the model's operator where the NPU does more.
    """

    name: str
    ifm: Operand
    ofm: Operand
    clamp: Clamp
    origin: str = field(default="", kw_only=True)
    table: str = field(default="", kw_only=True)
    model_macs: int = field(default=0, kw_only=True)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Return the feature maps that the operator reads."""
        return (self.ifm,)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of the operator; 0 where there are no weights."""
        return 0


@dataclass(frozen=True)
class Conv2D(OpBase):
    """Convolution; ``weights`` OHWI int16, ``bias`` O int64, one rescale per output channel."""

    weights: str
    bias: str
    kernel: Kernel
    padding: Padding
    rescale: tuple[Rescale, ...]
    rounding: Rounding = Rounding.TWICE

    @property
    def macs(self) -> int:
        """Return OFM elements times kernel elements times IFM channels."""
        return self.model_macs or self.ofm.shape.elements * self.kernel.elements * self.ifm.shape.c


@dataclass(frozen=True)
class DepthwiseConv2D(OpBase):
    """Channel-wise convolution; ``weights`` OHWI with I = 1."""

    weights: str
    bias: str
    kernel: Kernel
    padding: Padding
    rescale: tuple[Rescale, ...]
    rounding: Rounding = Rounding.TWICE

    @property
    def macs(self) -> int:
        """Return OFM elements times kernel elements."""
        return self.ofm.shape.elements * self.kernel.elements


@dataclass(frozen=True)
class Pool(OpBase):
    """Maximum or average over a window; padding never counts as an element."""

    kind: PoolKind
    kernel: Kernel
    padding: Padding


@dataclass(frozen=True)
class Add(OpBase):
    """``ifm + ifm2`` after bringing both to one scale; ``ifm2`` may have extents of 1."""

    ifm2: Operand

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Return both feature maps."""
        return (self.ifm, self.ifm2)


class Curve(Enum):
    """Functions that the NPU itself has."""

    SIGMOID = "sigmoid"
    TANH = "tanh"


@dataclass(frozen=True)
class Requantize(OpBase):
    """Change scale, zero point or type, element by element; with equal ones it is a copy.

    With ``curve`` the result is that function of the real input in units of 2**-15; both types are
    int16 then, without zero points.
    """

    curve: Curve | None = field(default=None, kw_only=True)


class ElementKind(Enum):
    """What an element-wise operator makes of its operands a (IFM) and b (second one)."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    MIN = "min"
    MAX = "max"
    SHIFT_LEFT = "shl"
    SHIFT_RIGHT = "shr"
    LEADING_ZEROS = "clz"
    ABS = "abs"
    LEAKY_RELU = "lrelu"

    @property
    def is_unary(self) -> bool:
        """Return whether there is no second operand."""
        return self in (ElementKind.LEADING_ZEROS, ElementKind.ABS, ElementKind.LEAKY_RELU)


@dataclass(frozen=True)
class ElementWise(OpBase):
    """Integer arithmetic on elements less their zero points; ``ifm2`` may have extents of 1.

    ``rescale`` is the factor of the result of ADD, SUB, MUL and ABS, and of LEAKY_RELU's negative
    results; where operands have 32 bits the NPU takes its shift only. None is for ADD and SUB of 8
    and 16 bits: the operands are brought to one scale by their quantisation, and the result to the
    OFM's. ``swapped`` computes b OP a. Results of 8 and 16 bits get the OFM's zero point and
    limits, those of 32 bits neither; a product beyond 32 bits saturates.
    """

    kind: ElementKind
    ifm2: Operand | None = None
    rescale: Rescale | None = Rescale(1, 0)
    rounding: Rounding = Rounding.TWICE
    swapped: bool = False

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Return one or two feature maps."""
        return (self.ifm,) if self.ifm2 is None else (self.ifm, self.ifm2)


@dataclass(frozen=True)
class SumChannels(OpBase):
    """The sum over the channels of each position; the OFM has one channel."""


@dataclass(frozen=True)
class Strides:
    """How a box lies within a tensor's dense form, in elements; channels are neighbours."""

    start: int
    row: int
    column: int


@dataclass(frozen=True)
class Part:
    """A box of elements on its way: ``source`` is the index of an input of the Move."""

    source: int
    shape: Shape
    read: Strides
    write: Strides


@dataclass(frozen=True)
class Move(OpBase):
    """Elements of one or several tensors under other coordinates; parts fill the OFM once."""

    others: tuple[Operand, ...]
    parts: tuple[Part, ...]

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Return the feature maps that the operator reads."""
        return (self.ifm, *self.others)


NpuOp = Conv2D | DepthwiseConv2D | Pool | Add | Requantize | ElementWise | SumChannels | Move


@dataclass(frozen=True)
class Shared:
    """An input and an output of a function that the caller keeps in one piece of memory."""

    input: str
    output: str

    @property
    def both(self) -> tuple[str, str]:
        """Return the input and the output."""
        return self.input, self.output


@dataclass(frozen=True)
class NpuGraph:
    """The operators of one NPU function, in execution order.

    ``inputs`` and ``outputs`` name tensors, in the order of the function's parameters and results.
    ``constants`` holds weights and biases; a constant feature map is also a tensor of that name.
    ``disposable`` are inputs that nobody reads after the function, which may be overwritten.
    ``shared`` names one of them and an output that lies in the same memory, from its start.
    """

    name: str
    ops: tuple[NpuOp, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Constant]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    disposable: frozenset[str] = frozenset()
    shared: Shared | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))

    @cached_property
    def inner_tensors(self) -> frozenset[str]:
        """Return the tensors that only the NPU function itself sees."""
        return frozenset(self.tensors.keys() - {*self.inputs, *self.outputs, *self.constants})

    @cached_property
    def reshaped_tensors(self) -> frozenset[str]:
        """Return the tensors that some operator sees under another shape."""
        return frozenset(
            operand.tensor
            for op in self.ops
            for operand in (*op.inputs, op.ofm)
            if operand.shape != self.tensors[operand.tensor].shape and not self.is_slice(operand)
        )

    def is_slice(self, operand: Operand) -> bool:
        """Return whether an operand is some of a tensor's channels."""
        return operand.shape.elements < self.tensors[operand.tensor].shape.elements

    @cached_property
    def sliced_tensors(self) -> frozenset[str]:
        """Return the tensors that operators see in slices, which are made as a whole."""
        return frozenset(
            operand.tensor
            for op in self.ops
            for operand in (*op.inputs, op.ofm)
            if self.is_slice(operand)
        )

    @cached_property
    def writers(self) -> Mapping[str, int]:
        """Return for each tensor that is computed the first operator that writes it."""
        return {op.ofm.tensor: i for i, op in reversed(list(enumerate(self.ops)))}

    @cached_property
    def last_reads(self) -> Mapping[str, int]:
        """Return for each tensor that is read the index of the last operator that does."""
        return {o.tensor: index for index, op in enumerate(self.ops) for o in op.inputs}

    @cached_property
    def rolling_tensors(self) -> frozenset[str]:
        """Return the tensors whose rows can be made and used piece by piece.

        A tensor that somebody sees with other rows is not one: they then mean nothing.
        """
        reshaped = {
            operand.tensor
            for op in self.ops
            for operand in (*op.inputs, op.ofm)
            if operand.shape.h != self.tensors[operand.tensor].shape.h
        }
        tall = {name for name, tensor in self.tensors.items() if tensor.shape.h > 1}
        return frozenset(tall - reshaped - self.moved_tensors - self.sliced_tensors)

    @cached_property
    def dense_tensors(self) -> frozenset[str]:
        """Return the tensors that must lie in memory as NHWC: what is moved or summed."""
        summed = {op.ifm.tensor for op in self.ops if isinstance(op, SumChannels)}
        return self.moved_tensors | summed

    @cached_property
    def moved_tensors(self) -> frozenset[str]:
        """Return the tensors that a Move reads or writes, which it does as a whole."""
        moves = [op for op in self.ops if isinstance(op, Move)]
        return frozenset(operand.tensor for op in moves for operand in (*op.inputs, op.ofm))

    def home_of(self, argument: str) -> str:
        """Return the argument in whose memory one lies: of two that share it the larger."""
        if self.shared is None or argument not in self.shared.both:
            return argument
        return max(self.shared.both, key=lambda name: self.tensors[name].size_bytes)

    @property
    def shared_bytes(self) -> int:
        """Return what the caller saves by keeping two arguments in one piece of memory."""
        if self.shared is None:
            return 0
        return min(self.tensors[name].size_bytes for name in self.shared.both)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of all operators."""
        return sum(op.macs for op in self.ops)

    def __str__(self) -> str:
        from tvm_ethosu.scheduler.dump import graph_text

        return graph_text(self)
