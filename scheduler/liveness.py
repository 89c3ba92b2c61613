"""When the tensors of a graph are in use, and which memory of the caller is idle meanwhile.

An input that nobody needs after the call is free once the function has read it, and an output is
free until it is written: scratch may lie there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tvm_ethosu.scheduler.arch import ALIGN_BYTES, MAX_REGIONS
from tvm_ethosu.scheduler.integers import round_up
from tvm_ethosu.scheduler.ir import NpuGraph, Shared

# Base pointers for arguments: constants and scratch have one each.
_ARGUMENT_REGIONS = MAX_REGIONS - 2


def align(size_bytes: int) -> int:
    """Round up to what the NPU takes as an address."""
    return round_up(size_bytes, ALIGN_BYTES)


@dataclass(frozen=True)
class LiveRange:
    """Operator indices ``[start, stop)`` during which a buffer's bytes are in use."""

    start: int
    stop: int

    def overlaps(self, other: LiveRange) -> bool:
        """Return whether both are in use at some operator."""
        return self.start < other.stop and other.start < self.stop


def uses(graph: NpuGraph) -> dict[str, LiveRange]:
    """Return from which operator to which each inner tensor is in use.

    A tensor lives from the operator that writes it to the last that reads it, both included.
    """
    inner = graph.inner_tensors
    return {
        name: LiveRange(index, max(index, graph.last_reads.get(name, index)) + 1)
        for name, index in graph.writers.items()
        if name in inner
    }


def kept_tensors(graph: NpuGraph, start: int, stop: int) -> frozenset[str]:
    """Return the tensors that operators ``[start, stop)`` make for others than themselves."""
    made = (op.ofm.tensor for op in graph.ops[start:stop])
    return frozenset(
        name for name in made if graph.last_reads.get(name, -1) >= stop or name in graph.outputs
    )


@dataclass(frozen=True)
class Owner:
    """An argument of the function, and when its data are in its memory."""

    tensor: str
    size_bytes: int
    live: LiveRange


@dataclass(frozen=True)
class Lent:
    """Memory of an argument that is scratch while no owner's data are in it.

    ``size_bytes`` are those that buffers can use, a multiple of 16. The owners begin at its start:
    the argument itself, and one that shares its memory.
    """

    tensor: str
    size_bytes: int
    owners: tuple[Owner, ...]

    def is_idle(self, live: LiveRange) -> bool:
        """Return whether the memory is scratch all the time."""
        return not any(owner.live.overlaps(live) for owner in self.owners)


def lent_arguments(graph: NpuGraph) -> tuple[Lent, ...]:
    """Return the inputs and outputs of a function that lend their memory.

    None where there are more arguments than base pointers: each run of the NPU then reaches only
    some of them.
    """
    if len(graph.inputs) + len(graph.outputs) > _ARGUMENT_REGIONS:
        return ()
    return tuple(lent for lent in _idle_arguments(graph) if lent.size_bytes)


def _idle_arguments(graph: NpuGraph) -> Iterator[Lent]:
    owners: dict[str, list[Owner]] = {}
    for name in (*graph.inputs, *graph.outputs):
        if name in graph.disposable or name in graph.outputs:
            owner = Owner(name, graph.tensors[name].size_bytes, _busy(graph, name))
            owners.setdefault(graph.home_of(name), []).append(owner)
    for name, own in owners.items():
        yield Lent(name, graph.tensors[name].size_bytes // ALIGN_BYTES * ALIGN_BYTES, tuple(own))


def _busy(graph: NpuGraph, argument: str) -> LiveRange:
    if argument in graph.inputs:
        return LiveRange(0, graph.last_reads.get(argument, -1) + 1)
    return LiveRange(graph.writers[argument], len(graph.ops))


def breaks_shared(graph: NpuGraph, live: LiveRange) -> bool:
    """Return whether operators that run at the same time touch two arguments in one memory."""
    pair = graph.shared
    return pair is not None and all(_busy(graph, name).overlaps(live) for name in pair.both)


def can_share(graph: NpuGraph, pair: Shared) -> bool:
    """Return whether an output is written by operators after the last that reads an input."""
    fits = pair.input in graph.disposable and bool(lent_arguments(graph))
    return fits and not _busy(graph, pair.input).overlaps(_busy(graph, pair.output))


def rooms_during(lent: Iterable[Lent], live: LiveRange) -> list[int]:
    """Return the sizes of lent memory that is idle all the time."""
    return [one.size_bytes for one in lent if one.is_idle(live)]


def scratch_beside(sizes: Iterable[int], rooms: Sequence[int]) -> int:
    """Return the scratch that blocks of memory take of which lent memory holds what it can.

    The largest go first, each into the smallest room that is left for it.
    """
    left = sorted(rooms)
    if not left:
        return sum(sizes)
    beside = 0
    for size in sorted(sizes, reverse=True):
        room = next((index for index, free in enumerate(left) if free >= size), None)
        if room is None:
            beside += size
        else:
            left[room] -= size
            left.sort()
    return beside
