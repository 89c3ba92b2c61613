"""Addresses for the buffers of a schedule, and the proof that they do not collide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.layouts import Layouts
from tvm_ethosu.scheduler.liveness import Lent, align
from tvm_ethosu.scheduler.plan import Buffer, Overlap, Schedule


@dataclass(frozen=True)
class Allocation:
    """A schedule whose buffers have addresses within ``scratch_bytes`` of scratch memory.

    A buffer that is in ``homes`` lies in the memory of that argument instead.
    """

    schedule: Schedule
    addresses: Mapping[str, int]
    scratch_bytes: int
    homes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", MappingProxyType(dict(self.addresses)))
        object.__setattr__(self, "homes", MappingProxyType(dict(self.homes)))


# Each order is tried; none is best for all graphs. Names break ties, so results never vary.
_ORDERS: tuple[Callable[[Buffer], tuple[int, int, str]], ...] = (
    lambda b: (-b.size_bytes, b.live.start, b.tensor),
    lambda b: (-b.size_bytes * (b.live.stop - b.live.start), b.live.start, b.tensor),
    lambda b: (b.live.start - b.live.stop, -b.size_bytes, b.tensor),
    lambda b: (b.live.start, -b.size_bytes, b.tensor),
)


# So often the order is changed without a better result.
_IDLE_ROUNDS = 10


def _lowest_start(forbidden: Iterable[tuple[int, int]], least: int) -> int:
    """Return the lowest address from ``least`` outside of open intervals ``(after, before)``."""
    address = least
    for after, before in sorted(forbidden):
        if after < address < before:
            address = before
    return address


def least_distance(overlap: Overlap, layouts: Layouts) -> int:
    """Return the distance between the starts of two tensors that may overlap.

    Going downwards, ``target`` begins at least this much before ``source``; going upwards, at
    least this much behind it (or, if negative, at most as much before it).
    """
    if not overlap.direction.upwards:
        return overlap.distance_bytes
    source, target = (layouts.size_bytes(name) for name in (overlap.source, overlap.target))
    return align(source - target + overlap.distance_bytes)


class _Conflicts:
    """Which start addresses of one buffer another one rules out.

    ``beside`` has for each buffer those that are in use at the same time, owners of lent memory
    included.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.layouts = schedule.layouts
        self.overlaps = {(o.source, o.target): o for o in schedule.overlaps}
        owners = (owner for lent in schedule.lent for owner in _owners(lent))
        everything = (*schedule.buffers, *owners)
        self.beside = {
            buffer.tensor: frozenset(
                other.tensor for other in everything if other.live.overlaps(buffer.live)
            )
            for buffer in schedule.buffers
        }

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
        distance = least_distance(overlap, self.layouts)
        if (grows is not None) != overlap.direction.upwards:
            return ((max(low, at - distance), high),)
        return ((low, min(high, at + distance)),)


# The home of what lies in the scratch memory itself.
_SCRATCH = ""


class _Placing:
    """Places buffers one after the other, each as low as possible in the first home with room."""

    def __init__(self, schedule: Schedule, conflicts: _Conflicts) -> None:
        self.conflicts = conflicts
        self.addresses: dict[str, int] = {}
        self.homes: dict[str, str] = {}
        self.lent = sorted(schedule.lent, key=lambda lent: (lent.size_bytes, lent.tensor))
        self.placed: dict[str, list[Buffer]] = {_SCRATCH: []}
        for lent in self.lent:
            self.placed[lent.tensor] = _owners(lent)
            self.addresses |= {owner.tensor: 0 for owner in lent.owners}

    def place(self, buffer: Buffer, least: int) -> None:
        """Give a buffer an address, in scratch not below ``least``."""
        for lent in self.lent:
            address = self._lowest(buffer, lent.tensor, 0)
            if address + buffer.size_bytes <= lent.size_bytes:
                self.homes[buffer.tensor] = lent.tensor
                self._put(buffer, lent.tensor, address)
                return
        self._put(buffer, _SCRATCH, self._lowest(buffer, _SCRATCH, least))

    def _put(self, buffer: Buffer, home: str, address: int) -> None:
        self.addresses[buffer.tensor] = address
        self.placed[home].append(buffer)

    def _lowest(self, buffer: Buffer, home: str, least: int) -> int:
        beside = self.conflicts.beside[buffer.tensor]
        forbidden = [
            interval
            for other in self.placed[home]
            if other.tensor in beside
            for interval in self.conflicts.forbidden(buffer, other, self.addresses[other.tensor])
        ]
        return _lowest_start(forbidden, least)

    def allocation(self, schedule: Schedule) -> Allocation:
        """Return where everything lies."""
        top = (self.addresses[b.tensor] + b.size_bytes for b in self.placed[_SCRATCH])
        addresses = {b.tensor: self.addresses[b.tensor] for b in schedule.buffers}
        return Allocation(schedule, addresses, max(top, default=0), self.homes)


def _owners(lent: Lent) -> list[Buffer]:
    """Return the buffers that arguments themselves are in their memory."""
    return [Buffer(o.tensor, align(o.size_bytes), o.live, 0) for o in lent.owners]


@dataclass(frozen=True)
class _Try:
    """An order in which buffers were placed, sources not below what ``least`` says."""

    order: tuple[Buffer, ...]
    least: Mapping[str, int]
    allocation: Allocation

    @property
    def scratch_bytes(self) -> int:
        return self.allocation.scratch_bytes


class _Tries:
    """Places the buffers of a schedule in one order after the other."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.conflicts = _Conflicts(schedule)

    def place(self, order: Sequence[Buffer], least: Mapping[str, int]) -> _Try:
        placing = _Placing(self.schedule, self.conflicts)
        for buffer in order:
            placing.place(buffer, least.get(buffer.tensor, 0))
        return _Try(tuple(order), least, placing.allocation(self.schedule))

    def improved(self, best: _Try) -> _Try:
        """Return a better try, if one is found by placing what lies highest before all others."""
        current, idle = best, 0
        while best.scratch_bytes > 0 and idle < _IDLE_ROUNDS:
            order = list(current.order)
            order.sort(key=lambda buffer: not self._is_highest(current.allocation, buffer))
            current = self.place(order, current.least)
            idle += 1
            if current.scratch_bytes < best.scratch_bytes:
                best, idle = current, 0
        return best

    def _is_highest(self, allocation: Allocation, buffer: Buffer) -> bool:
        end = allocation.addresses[buffer.tensor] + buffer.size_bytes
        return buffer.tensor not in allocation.homes and end == allocation.scratch_bytes


def allocate(schedule: Schedule) -> Allocation:
    """Give each buffer an address, first fit over several orders, the lowest peak wins."""
    tries = _Tries(schedule)
    # What another tensor will grow into from below may leave room for it there.
    room = {o.source: o.distance_bytes for o in schedule.overlaps if not o.direction.upwards}
    first = [
        tries.place(sorted(schedule.buffers, key=order), least)
        for order in _ORDERS
        for least in ({}, room)
    ]
    best = min(first, key=lambda one: one.scratch_bytes)
    return check_allocation(tries.improved(best).allocation)


def check_allocation(allocation: Allocation) -> Allocation:
    """Check that buffers in use at the same time never share a byte, and return the allocation.

    Tensors of which one grows into the other may share bytes at their distance.

    Raises:
        InternalError: two buffers collide, or one leaves the memory that it lies in.
    """
    schedule = allocation.schedule
    sizes = {lent.tensor: lent.size_bytes for lent in schedule.lent}
    sizes[_SCRATCH] = allocation.scratch_bytes
    homes: dict[str, list[Buffer]] = {lent.tensor: _owners(lent) for lent in schedule.lent}
    for buffer in schedule.buffers:
        home = allocation.homes.get(buffer.tensor, _SCRATCH)
        start = allocation.addresses[buffer.tensor]
        if start < 0 or start + buffer.size_bytes > sizes[home]:
            raise InternalError(f"buffer {buffer.tensor} leaves the memory of {home or 'scratch'}")
        for other in homes.setdefault(home, []):
            if buffer.live.overlaps(other.live) and not _harmless(allocation, buffer, other):
                raise InternalError(f"buffers {other.tensor} and {buffer.tensor} overlap")
        homes[home].append(buffer)
    return allocation


def _harmless(allocation: Allocation, one: Buffer, other: Buffer) -> bool:
    """Return whether two buffers that live together in one memory lie as they may."""
    start = allocation.addresses[one.tensor]
    begin = allocation.addresses.get(other.tensor, 0)
    apart = begin >= start + one.size_bytes or start >= begin + other.size_bytes
    return apart or _may_overlap(allocation, one.tensor, other.tensor)


def _may_overlap(allocation: Allocation, one: str, other: str) -> bool:
    for overlap in allocation.schedule.overlaps:
        if {overlap.source, overlap.target} == {one, other}:
            source = allocation.addresses.get(overlap.source, 0)
            target = allocation.addresses[overlap.target]
            if overlap.in_place:
                return source == target
            distance = least_distance(overlap, allocation.schedule.layouts)
            ahead = target - source if overlap.direction.upwards else source - target
            return ahead >= distance
    return False


def peak_operator(allocation: Allocation) -> tuple[int, tuple[Buffer, ...]]:
    """Return the operator index with the most bytes in use, and the buffers in use there."""
    schedule = allocation.schedule

    def in_use(index: int) -> tuple[Buffer, ...]:
        return tuple(
            b
            for b in schedule.buffers
            if b.live.start <= index < b.live.stop and b.tensor not in allocation.homes
        )

    indices = range(len(schedule.graph.ops))
    index = max(indices, key=lambda i: (sum(b.size_bytes for b in in_use(i)), -i))
    return index, in_use(index)
