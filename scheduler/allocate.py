"""Addresses for the buffers of a schedule, and the proof that they do not collide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import Tensor
from tvm_ethosu.scheduler.plan import Buffer, Overlap, Schedule, align


@dataclass(frozen=True)
class Allocation:
    """A schedule whose buffers have addresses within ``scratch_bytes`` of scratch memory."""

    schedule: Schedule
    addresses: Mapping[str, int]
    scratch_bytes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", MappingProxyType(dict(self.addresses)))


# Each order is tried; none is best for all graphs. Names break ties, so results never vary.
_ORDERS: tuple[Callable[[Buffer], tuple[int, int, str]], ...] = (
    lambda b: (-b.size_bytes, b.live.start, b.tensor),
    lambda b: (-b.size_bytes * (b.live.stop - b.live.start), b.live.start, b.tensor),
    lambda b: (b.live.start - b.live.stop, -b.size_bytes, b.tensor),
    lambda b: (b.live.start, -b.size_bytes, b.tensor),
)


def _lowest_start(forbidden: Iterable[tuple[int, int]], least: int) -> int:
    """Return the lowest address from ``least`` outside of open intervals ``(after, before)``."""
    address = least
    for after, before in sorted(forbidden):
        if after < address < before:
            address = before
    return address


def least_distance(overlap: Overlap, tensors: Mapping[str, Tensor]) -> int:
    """Return the distance between the starts of two tensors that may overlap.

    Going downwards, ``target`` begins at least this much before ``source``; going upwards, at
    least this much behind it (or, if negative, at most as much before it).
    """
    if not overlap.direction.upwards:
        return overlap.distance_bytes
    source, target = (tensors[name].size_bytes for name in (overlap.source, overlap.target))
    return align(source - target + overlap.distance_bytes)


class _Conflicts:
    """Which start addresses of one buffer another one rules out."""

    def __init__(self, schedule: Schedule) -> None:
        self.tensors = schedule.graph.tensors
        self.overlaps = {(o.source, o.target): o for o in schedule.overlaps}

    def forbidden(self, buffer: Buffer, placed: Buffer, at: int) -> tuple[tuple[int, int], ...]:
        """Return the open intervals of starts at which the buffer collides with a placed one.

        One side is harmless for tensors of which one grows into the other; the same start is for
        those that are written in place.
        """
        low, high = at - buffer.size_bytes, at + placed.size_bytes
        grows = self.overlaps.get((placed.tensor, buffer.tensor))
        gives = self.overlaps.get((buffer.tensor, placed.tensor))
        overlap = grows or gives
        if overlap is None:
            return ((low, high),)
        if overlap.in_place:
            return (low, at), (at, high)
        distance = least_distance(overlap, self.tensors)
        if (grows is not None) != overlap.direction.upwards:
            return ((max(low, at - distance), high),)
        return ((low, min(high, at + distance)),)


def _place(
    buffers: Iterable[Buffer], conflicts: _Conflicts, least: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Place buffers one after the other, each as low as possible but not below ``least``."""
    addresses: dict[str, int] = {}
    placed: list[Buffer] = []
    for buffer in buffers:
        forbidden = [
            interval
            for other in placed
            if other.live.overlaps(buffer.live)
            for interval in conflicts.forbidden(buffer, other, addresses[other.tensor])
        ]
        addresses[buffer.tensor] = _lowest_start(forbidden, least.get(buffer.tensor, 0))
        placed.append(buffer)
    top = max((addresses[b.tensor] + b.size_bytes for b in placed), default=0)
    return addresses, top


def allocate(schedule: Schedule) -> Allocation:
    """Give each buffer an address, first fit over several orders, the lowest peak wins."""
    conflicts = _Conflicts(schedule)
    # What another tensor will grow into from below may leave room for it there.
    room = {o.source: o.distance_bytes for o in schedule.overlaps if not o.direction.upwards}
    tries = [
        _place(sorted(schedule.buffers, key=order), conflicts, least)
        for order in _ORDERS
        for least in ({}, room)
    ]
    addresses, scratch_bytes = min(tries, key=lambda placed: placed[1])
    return check_allocation(Allocation(schedule, addresses, scratch_bytes))


def check_allocation(allocation: Allocation) -> Allocation:
    """Check that buffers in use at the same time never share a byte, and return the allocation.

    Tensors of which one grows into the other may share bytes at their distance.

    Raises:
        InternalError: two buffers collide, or one leaves the scratch memory.
    """
    buffers = allocation.schedule.buffers
    for index, one in enumerate(buffers):
        start = allocation.addresses[one.tensor]
        if start < 0 or start + one.size_bytes > allocation.scratch_bytes:
            raise InternalError(f"buffer {one.tensor} leaves the scratch memory")
        for other in buffers[index + 1 :]:
            begin = allocation.addresses[other.tensor]
            apart = begin >= start + one.size_bytes or start >= begin + other.size_bytes
            harmless = apart or _may_overlap(allocation, one.tensor, other.tensor)
            if one.live.overlaps(other.live) and not harmless:
                raise InternalError(f"buffers {one.tensor} and {other.tensor} overlap")
    return allocation


def _may_overlap(allocation: Allocation, one: str, other: str) -> bool:
    for overlap in allocation.schedule.overlaps:
        if {overlap.source, overlap.target} == {one, other}:
            source = allocation.addresses[overlap.source]
            target = allocation.addresses[overlap.target]
            if overlap.in_place:
                return source == target
            distance = least_distance(overlap, allocation.schedule.graph.tensors)
            ahead = target - source if overlap.direction.upwards else source - target
            return ahead >= distance
    return False


def peak_operator(allocation: Allocation) -> tuple[int, tuple[Buffer, ...]]:
    """Return the operator index with the most bytes in use, and the buffers in use there."""
    schedule = allocation.schedule

    def in_use(index: int) -> tuple[Buffer, ...]:
        return tuple(b for b in schedule.buffers if b.live.start <= index < b.live.stop)

    indices = range(len(schedule.graph.ops))
    index = max(indices, key=lambda i: (sum(b.size_bytes for b in in_use(i)), -i))
    return index, in_use(index)
