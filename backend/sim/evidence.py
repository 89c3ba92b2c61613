"""Register values that no stream of Arm's compilers has, and whose effect is thus not known.

Judged by the streams of some five hundred networks; the limits of kernels are those that Vela
states for its operators. Each is an AmbiguousError in strict mode; docs/simulator.md has the guess
that applies otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    Conv,
    ElementType,
    Elementwise,
    FeatureMap,
    Layout,
    Pool,
    PoolMode,
)

_LARGEST_STRIDE: Final = 3
_LARGEST_KERNEL: Final = (64, 64 * 64)
_LARGEST_WINDOW: Final = (256, 256 * 256)
"""Height and elements of a kernel of convolutions and of a window of pooling."""
_LARGEST_PADDED_MEAN: Final = 8
"""Height and width of a window that is averaged with padding."""

_Check: TypeAlias = Callable[[BlockOperation], str | None]


def open_questions(op: BlockOperation) -> Iterator[str]:
    """Yield what an operation relies on without evidence."""
    for check in _CHECKS:
        text = check(op)
        if text is not None:
            yield text


def _unsigned(op: BlockOperation) -> str | None:
    for fm in _maps(op):
        if fm.type in (ElementType.U16, ElementType.U32):
            return f"{fm.name} of type {fm.type.name}"
    return None


def _accumulators(op: BlockOperation) -> str | None:
    return "floating-point accumulators" if op.acc_format == 2 else None


def _depth(op: BlockOperation) -> str | None:
    if isinstance(op, Conv) or (isinstance(op, Pool) and op.mode is PoolMode.REDUCE_SUM):
        return None
    stated, used = op.registers["IFM_DEPTH_M1"] + 1, op.ofm.shape.depth
    return None if stated == used else f"an IFM of {stated} channels for an OFM of {used}"


def _second_type(op: BlockOperation) -> str | None:
    if not isinstance(op, Elementwise) or op.ifm2_type in (None, op.ifm.type):
        return None
    return f"IFM of type {op.ifm.type.name} with another IFM2"


def _zero_point(op: BlockOperation) -> str | None:
    points = [(fm.name, fm.type, fm.zero_point) for fm in _maps(op)]
    if isinstance(op, Elementwise) and op.ifm2_type is not None:
        points.append(("IFM2", op.ifm2_type, op.ifm2_zero_point))
    for name, element, point in points:
        low, high = (0, 0) if element.bits > 8 else (element.minimum, element.maximum)
        # An OFM of 32 bits has none: Vela's Python core leaves another's there.
        is_free = name == "OFM" and element.bits == 32
        if not is_free and not low <= point <= high:
            return f"{name} zero point {point} of type {element.name}"
    return None


def _clamp(op: BlockOperation) -> str | None:
    low, high = op.activation.minimum, op.activation.maximum
    if op.ofm.type.bits < 32:
        low, high = max(low, op.ofm.type.minimum), min(high, op.ofm.type.maximum)
    return f"ACTIVATION_MIN {low} above ACTIVATION_MAX {high}" if low > high else None


def _extent(op: BlockOperation) -> tuple[int, int]:
    kernel = op.kernel
    return (
        (kernel.height - 1) * kernel.dilation_y + 1,
        (kernel.width - 1) * kernel.dilation_x + 1,
    )


def _size(op: BlockOperation) -> str | None:
    extent = _extent(op)
    height, elements = _LARGEST_WINDOW if isinstance(op, Pool) else _LARGEST_KERNEL
    if extent[0] > height or extent[0] * extent[1] > elements:
        return f"a kernel of {extent[0]}x{extent[1]} (limit {height} high, {elements} elements)"
    is_mean = isinstance(op, Pool) and op.mode is PoolMode.AVERAGE
    if is_mean and op.padding.any and max(extent) > _LARGEST_PADDED_MEAN:
        return f"average of {extent[0]}x{extent[1]} with padding (limit {_LARGEST_PADDED_MEAN})"
    return None


def _steps(op: BlockOperation) -> str | None:
    kernel = op.kernel
    if max(kernel.stride_y, kernel.stride_x) > _LARGEST_STRIDE:
        return f"a stride of {kernel.stride_y}x{kernel.stride_x} (limit {_LARGEST_STRIDE})"
    if kernel.decomposition:
        return "KERNEL_STRIDE decomposition"
    if isinstance(op, Pool) and kernel.dilation_y * kernel.dilation_x > 1:
        return "pooling with dilation"
    if kernel.part_kernel_first and not isinstance(op, Conv):
        return f"part-kernel-first order for {op.kind}"
    return None


def _padding(op: BlockOperation) -> str | None:
    pads, extent = op.padding, _extent(op)
    if max(pads.top, pads.bottom) < extent[0] and max(pads.left, pads.right) < extent[1]:
        return None
    return (
        f"padding {pads.top}, {pads.left}, {pads.bottom}, {pads.right} (top, left, bottom, right) "
        f"in which a kernel of {extent[0]}x{extent[1]} can lie whole"
    )


def _sum_of_bricks(op: BlockOperation) -> str | None:
    is_sum = isinstance(op, Pool) and op.mode is PoolMode.REDUCE_SUM
    bricks = op.ifm.layout is Layout.NHCWB16
    return "REDUCE_SUM of 32-bit NHCWB16" if is_sum and bricks and op.ifm.type.bits == 32 else None


def _maps(op: BlockOperation) -> tuple[FeatureMap, ...]:
    second = op.ifm2 if isinstance(op, Elementwise) else None
    return (op.ifm, op.ofm) if second is None else (op.ifm, second, op.ofm)


_CHECKS: Final[tuple[_Check, ...]] = (
    *(_unsigned, _accumulators, _depth, _second_type, _zero_point, _clamp),
    *(_size, _steps, _padding, _sum_of_bricks),
)
