"""Do two sets of strided boxes share a byte?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_ethosu.backend.sim.addressing import Box
from tvm_ethosu.backend.sim.memory import Array


def plain_box(start: int, stop: int) -> Box:
    """Return the bytes ``[start, stop)`` as a box."""
    length = stop - start
    return Box(0, 1, 0, 1, 0, length, start, start, stop, (1, 1, 1, length), (0, 0, 0, 1))


def rows_box(address: int, shape: tuple[int, int, int], steps: tuple[int, int]) -> tuple[Box, ...]:
    """Return (planes, rows, bytes) as a box, with the bytes from plane to plane and row to row."""
    planes, rows, length = shape
    if not planes * rows * length:
        return ()
    stop = address + (planes - 1) * steps[0] + (rows - 1) * steps[1] + length
    bounds = (0, planes, 0, rows, 0, length)
    return (Box(*bounds, address, address, stop, (planes, rows, 1, length), (*steps, 0, 1)),)


def common_bytes(first: Sequence[Box], second: Sequence[Box]) -> tuple[int, int] | None:
    """Return the range from the first to the last byte that both sets contain, or None."""
    if not first or not second:
        return None
    low = max(min(box.start for box in first), min(box.start for box in second))
    high = min(max(box.stop for box in first), max(box.stop for box in second))
    if low >= high:
        return None
    mine = [box for box in first if box.start < high and box.stop > low]
    theirs = [box for box in second if box.start < high and box.stop > low]
    if not mine or not theirs:
        return None
    both = mask_of(mine, low, high) & mask_of(theirs, low, high)
    if not both.any():
        return None
    return low + int(both.argmax()), high - int(both[::-1].argmax())


def mask_of(boxes: Sequence[Box], low: int, high: int) -> Array:
    """Return which of the bytes ``[low, high)`` the boxes contain."""
    start = min(low, *(box.start for box in boxes))
    stop = max(high, *(box.stop for box in boxes))
    mask = np.zeros(stop - start, np.bool_)
    for box in boxes:
        view_of(mask, box, start)[...] = True
    return mask[low - start : high - start]


def view_of(mask: Array, box: Box, base: int) -> Array:
    """Return the bytes of a box in a mask whose first entry is byte ``base``."""
    shape = (*box.view_shape, box.view_strides[3])
    return np.ndarray(shape, np.bool_, mask, box.address - base, (*box.view_strides, 1))
