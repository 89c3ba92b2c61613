"""Feature map coordinates to byte addresses.

A feature map is cut into boxes in which the address is an affine function of the coordinates: up
to four tiles, and for NHCWB16 whole bricks of 16 channels apart from the last, partial one. Each
box can then be read or written through one strided view.

Tile of (y, x): ``right = x >= WIDTH0``; ``low = y >= (HEIGHT1 if right else HEIGHT0)``; tile number
``right + 2 * low``; coordinates are relative to the tile. Source: EMIT (see ``registers``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tvm_ethosu.backend.sim.errors import MemoryFault
from tvm_ethosu.backend.sim.operations import FeatureMap, Layout

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_BRICK = 16


@dataclass(frozen=True)
class Box:
    """A part ``[y0, y1) x [x0, x1) x [c0, c1)`` of a feature map in one strided view.

    ``view_shape`` and ``view_strides`` are (y, x, brick, channel in brick), strides in bytes;
    ``address`` is the byte of the first element; all bytes lie in ``[start, stop)``.
    """

    y0: int
    y1: int
    x0: int
    x1: int
    c0: int
    c1: int
    address: int
    start: int
    stop: int
    view_shape: tuple[int, int, int, int]
    view_strides: tuple[int, int, int, int]

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        rows, columns, bricks, channels = self.view_shape
        return rows * columns * bricks * channels

    def has_aliases(self, element_bytes: int) -> bool:
        """Tell whether two elements of the box may share a byte."""
        extent = element_bytes
        steps = sorted(
            (abs(stride), count)
            for stride, count in zip(self.view_strides, self.view_shape, strict=True)
            if count > 1
        )
        for stride, count in steps:
            if stride < extent:
                return True
            extent += stride * (count - 1)
        return False


@lru_cache(maxsize=4096)
def boxes(feature_map: FeatureMap) -> tuple[Box, ...]:
    """Return the boxes that cover the feature map once each.

    Raises MemoryFault for misaligned addresses and strides, or a tile without a base.
    """
    _check_strides(feature_map)
    result: list[Box] = []
    for tile, y0, y1, x0, x1 in _tiles(feature_map):
        base = feature_map.bases[tile]
        if base is None:
            raise MemoryFault(f"{feature_map.name} uses tile {tile}, whose base was never set")
        _check_base(feature_map, base)
        for c0, c1 in _depth_parts(feature_map):
            result.append(_box(feature_map, base, (y0, y1, x0, x1, c0, c1)))
    return tuple(result)


def _tiles(fm: FeatureMap) -> list[tuple[int, int, int, int, int]]:
    height, width = fm.shape.height, fm.shape.width
    split_x = min(fm.width0, width)
    left = min(fm.height0, height)
    right = min(fm.height1, height)
    tiles = (
        (0, 0, left, 0, split_x),
        (1, 0, right, split_x, width),
        (2, left, height, 0, split_x),
        (3, right, height, split_x, width),
    )
    return [tile for tile in tiles if tile[1] < tile[2] and tile[3] < tile[4]]


def _depth_parts(fm: FeatureMap) -> list[tuple[int, int]]:
    depth = fm.shape.depth
    if fm.layout is Layout.NHWC:
        return [(0, depth)]
    whole = depth // _BRICK * _BRICK
    return [part for part in ((0, whole), (whole, depth)) if part[0] < part[1]]


def _box(fm: FeatureMap, base: int, bounds: tuple[int, int, int, int, int, int]) -> Box:
    y0, y1, x0, x1, c0, c1 = bounds
    size = fm.type.size_bytes
    if fm.layout is Layout.NHWC:
        shape = (y1 - y0, x1 - x0, 1, c1 - c0)
        strides = (fm.stride_y, fm.stride_x, 0, size)
        address = base
    else:
        channels = min(c1 - c0, _BRICK)
        shape = (y1 - y0, x1 - x0, (c1 - c0) // channels, channels)
        strides = (fm.stride_y, _BRICK * size, fm.stride_c, size)
        address = base + c0 // _BRICK * fm.stride_c
    return _strided(bounds, address, shape, strides)


def _strided(
    bounds: tuple[int, int, int, int, int, int],
    address: int,
    shape: tuple[int, int, int, int],
    strides: tuple[int, int, int, int],
) -> Box:
    reach = [stride * (count - 1) for stride, count in zip(strides, shape, strict=True)]
    start = address + sum(step for step in reach if step < 0)
    stop = address + sum(step for step in reach if step > 0) + strides[3]
    return Box(*bounds, address, start, stop, shape, strides)


def _check_base(fm: FeatureMap, base: int) -> None:
    unit = _BRICK if fm.layout is Layout.NHCWB16 else fm.type.size_bytes
    if base % unit:
        raise MemoryFault(
            f"{fm.name} base {base:#x} in region {fm.region} is not a multiple of {unit}"
        )


def _check_strides(fm: FeatureMap) -> None:
    if fm.layout is Layout.NHCWB16:
        unit, strides = _BRICK, (fm.stride_y, fm.stride_c)
    else:
        unit, strides = fm.type.size_bytes, (fm.stride_y, fm.stride_x)
    for stride in strides:
        if stride % unit:
            raise MemoryFault(f"{fm.name} stride {stride:#x} is not a multiple of {unit}")


def tail_bytes(fm: FeatureMap, box: Box) -> Array:
    """Return the addresses of the bytes behind the last channel in the bricks of a box."""
    channels, size = box.view_shape[3], fm.type.size_bytes
    if fm.layout is Layout.NHWC or channels == _BRICK:
        return np.zeros(0, np.int64)
    rows, columns, _, _ = box.view_shape
    step_y, step_x, _, _ = box.view_strides
    corners = np.arange(rows)[:, None] * step_y + np.arange(columns)[None, :] * step_x
    behind = box.address + size * channels + np.arange(size * (_BRICK - channels))
    return np.asarray((corners[..., None] + behind).ravel())


@dataclass(frozen=True)
class Window:
    """Half-open ranges of rows, columns and channels of a feature map."""

    y0: int
    y1: int
    x0: int
    x1: int
    c0: int
    c1: int


def boxes_within(feature_map: FeatureMap, window: Window) -> tuple[Box, ...]:
    """Return boxes that cover the part of a feature map inside ``window`` once."""
    result: list[Box] = []
    for box in boxes(feature_map):
        y0, y1 = max(box.y0, window.y0), min(box.y1, window.y1)
        x0, x1 = max(box.x0, window.x0), min(box.x1, window.x1)
        if y0 >= y1 or x0 >= x1:
            continue
        step_y, step_x, step_brick, size = box.view_strides
        corner = box.address + (y0 - box.y0) * step_y + (x0 - box.x0) * step_x
        for c0, c1 in _channel_parts(box, window):
            brick, channel = divmod(c0 - box.c0, box.view_shape[3])
            bricks = -(-(c1 - c0) // box.view_shape[3])
            shape = (y1 - y0, x1 - x0, bricks, (c1 - c0) // bricks)
            address = corner + brick * step_brick + channel * size
            result.append(_strided((y0, y1, x0, x1, c0, c1), address, shape, box.view_strides))
    return tuple(result)


def _channel_parts(box: Box, window: Window) -> list[tuple[int, int]]:
    """Split the channels of a box inside a window at whole bricks."""
    c0, c1 = max(box.c0, window.c0), min(box.c1, window.c1)
    unit = box.view_shape[3]
    if c0 >= c1:
        return []
    head = min(c1, box.c0 + -(-(c0 - box.c0) // unit) * unit)
    tail = max(head, box.c0 + (c1 - box.c0) // unit * unit)
    return [part for part in ((c0, head), (head, tail), (tail, c1)) if part[0] < part[1]]
