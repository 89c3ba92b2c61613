"""Several NPU operators that together are one operator of the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_ethosu.partition.lower import Lowered
from tvm_ethosu.scheduler.ir import (
    Clamp,
    Constant,
    DepthwiseConv2D,
    DType,
    ElementKind,
    ElementWise,
    Kernel,
    Move,
    NpuOp,
    Operand,
    Padding,
    Part,
    Pool,
    PoolKind,
    Quant,
    Rescale,
    Rounding,
    Shape,
    SumChannels,
    Tensor,
)

_UNIT = Rescale(1, 0)
_NO_QUANT = Quant()


def _shift_by(bits: int) -> Rescale:
    """Return a factor of int32, of which the NPU takes the shift only."""
    return Rescale(1 << 30, bits)


class OpSequence:
    """Collects operators in order, with the tensors and constants between them."""

    def __init__(self, name: str, origin: str) -> None:
        self.name = name
        self.origin = origin
        self._ops: list[NpuOp] = []
        self._tensors: dict[str, Tensor] = {}
        self._constants: dict[str, Constant] = {}

    def lowered(self) -> Lowered:
        """Return what was collected."""
        return Lowered(
            self._ops[-1],
            tuple(self._constants.values()),
            tuple(self._ops[:-1]),
            tuple(self._tensors.values()),
        )

    # --- operands ---------------------------------------------------------------------------------

    def tensor(self, shape: Shape, dtype: DType, quant: Quant = _NO_QUANT) -> Operand:
        """Return a new tensor between two operators."""
        return self._declare(f"{self.name}_t{len(self._tensors)}", shape, dtype, quant)

    def scalar(self, value: int, dtype: DType = DType.I32) -> Operand:
        """Return a constant of one number."""
        name = f"{self.name}_{'word' if dtype is DType.I32 else dtype.value}_{value}"
        self._constants[name] = Constant(name, np.full((1, 1, 1, 1), value, dtype.value))
        return self._declare(name, Shape(1, 1, 1, 1), dtype, Quant())

    def table(self, values: npt.NDArray[Any], what: str = "table") -> str:
        """Return the name of a new table."""
        return self._constant(f"{self.name}_{what}", values)

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        self._constants[name] = Constant(name, values)
        return name

    def _declare(self, name: str, shape: Shape, dtype: DType, quant: Quant) -> Operand:
        self._tensors[name] = Tensor(name, shape, dtype)
        return Operand(name, shape, dtype, quant)

    # --- operators --------------------------------------------------------------------------------

    def elements(
        self,
        kind: ElementKind,
        a: Operand,
        b: Operand | None,
        ofm: Operand,
        limits: Clamp | None = None,
        **options: Any,
    ) -> Operand:
        """Add an element-wise operator; for ``options`` see ``ElementWise``."""
        name, clamp = self._op_name(kind.value), limits or _limits(ofm)
        return self._add(ElementWise(name, a, ofm, clamp, kind, b, origin=self.origin, **options))

    def words(
        self,
        kind: ElementKind,
        a: Operand,
        b: Operand | None = None,
        *,
        rescale: Rescale = _UNIT,
        swapped: bool = False,
    ) -> Operand:
        """Add an element-wise operator from int32 to int32; the result is like ``a``."""
        ofm = self.tensor(a.shape, DType.I32)
        return self.elements(kind, a, b, ofm, rescale=rescale, swapped=swapped)

    def times(
        self, a: Operand, factor: Rescale, ofm: Operand | None = None, limits: Clamp | None = None
    ) -> Operand:
        """Add int32 times a factor, rounded twice; its multiplier is an operand."""
        ofm, multiplier = ofm or self.tensor(a.shape, DType.I32), self.scalar(factor.multiplier)
        shift = _shift_by(factor.shift)
        return self.elements(ElementKind.MUL, a, multiplier, ofm, limits, rescale=shift)

    def high_product(self, a: Operand, b: Operand) -> Operand:
        """Add the upper half of a product of int32, doubled and rounded as gemmlowp does."""
        return self.words(ElementKind.MUL, a, b, rescale=_shift_by(31))

    def shift_right(self, a: Operand, b: Operand, ofm: Operand | None = None) -> Operand:
        """Add a right shift of int32 that rounds to nearest, ties upwards."""
        ofm = ofm or self.tensor(a.shape, DType.I32)
        return self.elements(ElementKind.SHIFT_RIGHT, a, b, ofm, rounding=Rounding.NATURAL)

    def pool(
        self,
        kind: PoolKind,
        ifm: Operand,
        ofm: Operand,
        kernel: Kernel,
        limits: Clamp | None = None,
    ) -> Operand:
        """Add a pooling operator without padding."""
        name, clamp = self._op_name(kind.value), limits or _limits(ofm)
        op = Pool(name, ifm, ofm, clamp, kind, kernel, Padding(), origin=self.origin)
        return self._add(op)

    def largest_channel(self, ifm: Operand) -> Operand:
        """Add the maximum over the channels of each position; the result has one channel."""
        height, width, channels = ifm.shape.h, ifm.shape.w, ifm.shape.c
        ofm = self.tensor(Shape(1, height, width, 1), ifm.dtype)
        # The channels seen as columns, of which a window takes the maximum.
        flat = replace(ifm, shape=Shape(1, height * width, channels, 1))
        maxima = replace(ofm, shape=Shape(1, height * width, 1, 1))
        self.pool(PoolKind.MAX, flat, maxima, Kernel(1, channels))
        return ofm

    def sum_window(self, ifm: Operand, ofm: Operand, kernel: Kernel) -> Operand:
        """Add a sum over windows in each channel, exact where the OFM's type holds it."""
        return self._depthwise("sum", ifm, ofm, kernel, 1, np.zeros(ofm.shape.c))

    def _depthwise(
        self,
        what: str,
        ifm: Operand,
        ofm: Operand,
        kernel: Kernel,
        weight: int,
        offsets: npt.NDArray[Any],
        limits: Clamp | None = None,
    ) -> Operand:
        clamp = limits or _limits(ofm)
        name, channels = self._op_name(what), ofm.shape.c
        filled = np.full((channels, kernel.h, kernel.w, 1), weight, np.int16)
        weights = self._constant(f"{name}_weights", filled)
        bias = self._constant(f"{name}_bias", offsets.astype(np.int64))
        unit = (_UNIT,) * channels
        op = DepthwiseConv2D(
            name, ifm, ofm, clamp, weights, bias, kernel, Padding(), unit, origin=self.origin
        )
        return self._add(op)

    def scale_channels(
        self,
        ifm: Operand,
        ofm: Operand,
        factor: int,
        offsets: npt.NDArray[Any],
        limits: Clamp | None = None,
    ) -> Operand:
        """Add ``factor * value + offset`` with an offset per channel, exact where the OFM holds it.

        ``factor`` is a weight: at most 255 without its sign.
        """
        return self._depthwise("scale", ifm, ofm, Kernel(1, 1), factor, offsets, limits)

    def sum_channels(self, ifm: Operand, ofm: Operand) -> Operand:
        """Add a sum over channels."""
        name = self._op_name("sum")
        return self._add(SumChannels(name, ifm, ofm, _limits(ofm), origin=self.origin))

    def move(self, ifm: Operand, ofm: Operand, parts: tuple[Part, ...]) -> Operand:
        """Add copies of elements from one tensor."""
        name = self._op_name("move")
        return self._add(Move(name, ifm, ofm, _limits(ofm), (), parts, origin=self.origin))

    def _op_name(self, what: str) -> str:
        return f"{self.name}_{len(self._ops)}_{what}"

    def _add(self, op: NpuOp) -> Operand:
        self._ops.append(op)
        return op.ofm


def _limits(ofm: Operand) -> Clamp:
    return Clamp(ofm.dtype.minimum, ofm.dtype.maximum)
