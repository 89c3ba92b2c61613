"""Regions, and checked access to them: bounds, constants, bytes nobody wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from tvm_ethosu.backend.sim.addressing import Box, boxes, tail_bytes
from tvm_ethosu.backend.sim.errors import AmbiguousError, MemoryFault, SimulationError
from tvm_ethosu.backend.sim.limits import check_elements
from tvm_ethosu.backend.sim.live import LiveRanges, LiveTensor
from tvm_ethosu.backend.sim.operations import FeatureMap

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

SHRAM_REGION: Final = -1
"""Number under which the shared RAM appears in messages."""


@dataclass(frozen=True)
class Region:
    """A memory the stream addresses; the simulator executes in place on ``data``.

    ``data`` is one-dimensional, contiguous, of bytes. In a region that is not ``initialised``
    reading a byte nobody wrote is a MemoryFault; ``written`` lists the half-open byte ranges that
    hold data from the start, such as the inputs.
    """

    data: Array
    read_only: bool = False
    initialised: bool = True
    written: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        data = self.data
        if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
            raise SimulationError(
                f"a region needs a contiguous 1-D uint8 array (got {data.ndim}-D {data.dtype})"
            )
        if not self.read_only and not data.flags.writeable:
            raise SimulationError("the array of a writable region must be writable")
        for start, stop in self.written:
            if not 0 <= start <= stop <= data.size:
                raise SimulationError(
                    f"written range [{start}, {stop}) is outside the region of {data.size} bytes"
                )


class Memory:
    """The regions of one run with a mask of the bytes that hold data.

    ``tensors`` say whose data they are; bytes of a tensor that is not used any more hold none.
    """

    def __init__(
        self,
        regions: Mapping[int, Region],
        shram_bytes: int,
        tensors: Sequence[LiveTensor] = (),
    ) -> None:
        self._regions = dict(regions)
        self._regions[SHRAM_REGION] = Region(np.zeros(shram_bytes, np.uint8), initialised=False)
        self._written: dict[int, Array] = {}
        self._lost: dict[int, Array] = {}
        for number, region in self._regions.items():
            if not region.initialised:
                mask = np.zeros(region.data.size, np.bool_)
                for start, stop in region.written:
                    mask[start:stop] = True
                self._written[number] = mask
        self._live = LiveRanges(tensors, self._written)

    def begin(self, kernel: str) -> None:
        """Go on to the next kernel operation, which messages may name so."""
        self._live.begin(kernel)

    def read(self, fm: FeatureMap) -> Array:
        """Return the elements as (H, W, C) in their own type; may be a view of the region.

        Raises MemoryFault.
        """
        region = self._region(fm.region, fm.name)
        check_elements(fm.name, fm.shape.elements)
        parts = boxes(fm)
        for box in parts:
            self._check_bounds(fm, box, region)
            self._check_written(fm, box)
        if len(parts) == 1 and parts[0].view_shape[2] == 1:
            return _view(region.data, parts[0], fm.type.dtype)[:, :, 0, :]
        shape = fm.shape
        result = np.empty((shape.height, shape.width, shape.depth), fm.type.dtype)
        for box in parts:
            target = result[box.y0 : box.y1, box.x0 : box.x1, box.c0 : box.c1]
            _by_brick(target, box)[...] = _view(region.data, box, fm.type.dtype)
        return result

    def write(self, fm: FeatureMap, values: Array, *, strict: bool) -> None:
        """Store (H, W, C) values, which must fit the feature map's type.

        Raises MemoryFault, and AmbiguousError when two elements share a byte.
        """
        region = self._region(fm.region, fm.name)
        if region.read_only:
            raise MemoryFault(f"{fm.name} writes to region {fm.region}, which is read-only")
        parts = boxes(fm)
        for box in parts:
            self._check_bounds(fm, box, region)
            if strict and box.has_aliases(fm.type.size_bytes):
                raise AmbiguousError(
                    f"{fm.name} strides y={fm.stride_y} x={fm.stride_x} c={fm.stride_c} "
                    f"give two elements of {fm.shape} the same address"
                )
        mark = self._mark_of(fm, parts)
        self._forget_tails(fm, parts)
        for box in parts:
            source = values[box.y0 : box.y1, box.x0 : box.x1, box.c0 : box.c1]
            view = _view(region.data, box, fm.type.dtype)
            np.copyto(view, _by_brick(source, box), casting="unsafe")
            self._mark_written(fm, box, mark)

    def read_bytes(self, region_number: int, start: int, length: int, what: str) -> Array:
        """Return bytes ``[start, start + length)`` of a region as a view. Raises MemoryFault."""
        region = self._region(region_number, what)
        _check_range(region, region_number, start, length, what)
        mask = self._written.get(region_number)
        if mask is not None and not mask[start : start + length].all():
            first = start + int(np.argmin(mask[start : start + length]))
            raise self._unwritten(what, region_number, first)
        return region.data[start : start + length]

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        """Copy bytes between (region, start) pairs, as DMA does. Raises MemoryFault.

        Bytes nobody wrote may be copied: transfers are rounded up to 16 bytes. They stay unwritten
        at the target, so that using them is the fault; a target that keeps no record refuses them.
        """
        (from_region, start), (to_region, first) = source, target
        origin = self._region(from_region, "DMA source")
        place = self._region(to_region, "DMA destination")
        if place.read_only:
            raise MemoryFault(f"DMA destination is in region {to_region}, which is read-only")
        _check_range(origin, from_region, start, length, "DMA source")
        _check_range(place, to_region, first, length, "DMA destination")
        known, record = self._written.get(from_region), self._written.get(to_region)
        if record is not None:
            record[first : first + length] = (
                True if known is None else known[start : start + length]
            )
        elif known is not None:
            self.read_bytes(from_region, start, length, "DMA source")
        if to_region in self._lost:
            self._lost[to_region][first : first + length] = False
        owner = self._live.owner(to_region)
        if owner is not None:
            owner[first : first + length] = self._live.mark_of_copy(
                to_region, first, first + length
            )
        place.data[first : first + length] = origin.data[start : start + length]

    def forget(self, region_number: int, start: int, stop: int) -> None:
        """Mark bytes of a not initialised region as not written."""
        self._written[region_number][start:stop] = False

    def _region(self, number: int, what: str) -> Region:
        region = self._regions.get(number)
        if region is None:
            raise MemoryFault(f"{what} is in region {number}, which was not given")
        return region

    def _check_bounds(self, fm: FeatureMap, box: Box, region: Region) -> None:
        if box.start < 0 or box.stop > region.data.size:
            raise MemoryFault(
                f"{fm.name} spans bytes [{box.start:#x}, {box.stop:#x}) of region {fm.region}, "
                f"which has {region.data.size:#x}"
            )

    def _check_written(self, fm: FeatureMap, box: Box) -> None:
        mask = self._written.get(fm.region)
        if mask is None or mask[box.start : box.stop].all():
            return
        view = _byte_view(mask, box, fm.type.size_bytes)
        if not view.all():
            place = np.unravel_index(int(np.argmin(view)), view.shape)
            strides = (*box.view_strides, 1)
            first = box.address + sum(
                int(i) * stride for i, stride in zip(place, strides, strict=True)
            )
            raise self._unwritten(fm.name, fm.region, first)

    def _mark_of(self, fm: FeatureMap, parts: Sequence[Box]) -> int:
        start, stop = min(box.start for box in parts), max(box.stop for box in parts)
        try:
            return self._live.mark(fm.region, start, stop)
        except MemoryFault as fault:
            raise MemoryFault(f"{fm.name} {fault.message}") from None

    def _mark_written(self, fm: FeatureMap, box: Box, mark: int) -> None:
        mask, owner = self._written.get(fm.region), self._live.owner(fm.region)
        if mask is not None:
            _byte_view(mask, box, fm.type.size_bytes)[...] = True
        if owner is not None:
            _byte_view(owner, box, fm.type.size_bytes)[...] = mark
        if fm.region in self._lost:
            _byte_view(self._lost[fm.region], box, fm.type.size_bytes)[...] = False

    def _forget_tails(self, fm: FeatureMap, parts: Sequence[Box]) -> None:
        """Forget the bytes behind the last channel of a brick: the hardware may write them."""
        mask = self._written.get(fm.region)
        if mask is None:
            return
        for box in parts:
            tail = tail_bytes(fm, box)
            inside = tail[tail < mask.size]
            if inside.size:
                mask[inside] = False
                self._lost.setdefault(fm.region, np.zeros(mask.size, np.bool_))[inside] = True

    def _unwritten(self, what: str, region: int, first: int) -> MemoryFault:
        name = "shared RAM" if region == SHRAM_REGION else f"region {region}"
        past = self._live.past(region, first) or "nobody wrote"
        if region in self._lost and self._lost[region][first]:
            past = "may be overwritten: it lies behind the last channel of an NHCWB16 OFM"
        return MemoryFault(f"{what} reads byte {first:#x} of {name}, which {past}")


def _check_range(region: Region, number: int, start: int, length: int, what: str) -> None:
    if start + length > region.data.size:
        name = "shared RAM" if number == SHRAM_REGION else f"region {number}"
        raise MemoryFault(
            f"{what} spans bytes [{start:#x}, {start + length:#x}) of {name}, "
            f"which has {region.data.size:#x}"
        )


def _view(data: Array, box: Box, dtype: np.dtype[Any]) -> Array:
    return np.ndarray(box.view_shape, dtype, data, box.address, box.view_strides)


def _byte_view(marks: Array, box: Box, size: int) -> Array:
    """Return the marks of a box's bytes; there is one mark per byte, of any type."""
    each = marks.itemsize
    strides = tuple(each * stride for stride in (*box.view_strides, 1))
    return np.ndarray((*box.view_shape, size), marks.dtype, marks, each * box.address, strides)


def _by_brick(values: Array, box: Box) -> Array:
    """Return (y, x, c) as (y, x, brick, channel in brick); splitting an axis makes no copy."""
    height, width, _ = values.shape
    return values.reshape(height, width, box.view_shape[2], box.view_shape[3])
