"""Addresses for the buffers of a schedule, and the proof that they do not collide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.plan import Buffer, Schedule


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


def _lowest_gap(size_bytes: int, taken: Iterable[tuple[int, int]]) -> int:
    """Return the lowest address with ``size_bytes`` free; ``taken`` are ``[start, stop)`` pairs."""
    address = 0
    for start, stop in sorted(taken):
        if address + size_bytes <= start:
            break
        address = max(address, stop)
    return address


def _place(buffers: Iterable[Buffer]) -> tuple[dict[str, int], int]:
    addresses: dict[str, int] = {}
    placed: list[Buffer] = []
    for buffer in buffers:
        taken = [
            (addresses[other.tensor], addresses[other.tensor] + other.size_bytes)
            for other in placed
            if other.live.overlaps(buffer.live)
        ]
        addresses[buffer.tensor] = _lowest_gap(buffer.size_bytes, taken)
        placed.append(buffer)
    top = max((addresses[b.tensor] + b.size_bytes for b in placed), default=0)
    return addresses, top


def allocate(schedule: Schedule) -> Allocation:
    """Give each buffer an address, first fit over several orders, the lowest peak wins."""
    tries = [_place(sorted(schedule.buffers, key=order)) for order in _ORDERS]
    addresses, scratch_bytes = min(tries, key=lambda placed: placed[1])
    return check_allocation(Allocation(schedule, addresses, scratch_bytes))


def check_allocation(allocation: Allocation) -> Allocation:
    """Check that buffers in use at the same time never share a byte, and return the allocation.

    Raises:
        InternalError: two buffers collide, or one leaves the scratch memory.
    """
    buffers = allocation.schedule.buffers
    for index, one in enumerate(buffers):
        start = allocation.addresses[one.tensor]
        if start + one.size_bytes > allocation.scratch_bytes:
            raise InternalError(f"buffer {one.tensor} leaves the scratch memory")
        for other in buffers[index + 1 :]:
            begin = allocation.addresses[other.tensor]
            apart = begin >= start + one.size_bytes or start >= begin + other.size_bytes
            if one.live.overlaps(other.live) and not apart:
                raise InternalError(f"buffers {one.tensor} and {other.tensor} overlap")
    return allocation


def peak_operator(allocation: Allocation) -> tuple[int, tuple[Buffer, ...]]:
    """Return the operator index with the most bytes in use, and the buffers in use there."""
    schedule = allocation.schedule

    def in_use(index: int) -> tuple[Buffer, ...]:
        return tuple(b for b in schedule.buffers if b.live.start <= index < b.live.stop)

    indices = range(len(schedule.graph.ops))
    index = max(indices, key=lambda i: (sum(b.size_bytes for b in in_use(i)), -i))
    return index, in_use(index)
