"""Which tensors are in memory at each step of a program; knows steps and bytes, no TVM.

A program is a list of steps. A step reads storages and may make new ones. A storage is one piece
of memory: tuples, tuple fields, renamed variables and reshapes share the storage of what they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Role(Enum):
    """What a storage is to the network; constants lie in flash and are never counted.

    Scratch is the memory that an NPU function needs for itself while it runs.
    """

    INPUT = "input"
    OUTPUT = "output"
    INNER = "inner"
    SCRATCH = "scratch"
    CONSTANT = "constant"


@dataclass(frozen=True)
class Storage:
    """A piece of memory for one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    role: Role


@dataclass(frozen=True)
class Step:
    """One call: the storages that it reads and those that it makes, as indices."""

    reads: frozenset[int]
    makes: frozenset[int]


@dataclass(frozen=True)
class Interval:
    """Steps from the one that makes a storage to the last that reads it, both included.

    ``first`` is -1 for what exists before the program; ``last`` is the number of steps for what
    must outlive it, and ``first`` for what nobody reads.
    """

    first: int
    last: int

    def before(self, step: int) -> bool:
        """Return whether the bytes are needed when a step begins."""
        return self.first < step <= self.last

    def after(self, step: int) -> bool:
        """Return whether the bytes are needed when a step has ended."""
        return self.first <= step < self.last

    def during(self, step: int) -> bool:
        """Return whether the bytes are in use while a step runs."""
        return self.before(step) or self.after(step) or self.first == step


def intervals(
    count: int, steps: Sequence[Step], given: Iterable[int], kept: Iterable[int]
) -> tuple[Interval, ...]:
    """Return when each of ``count`` storages is in use.

    Args:
        count: the number of storages.
        steps: the program.
        given: storages that exist before the first step (network inputs, constants).
        kept: storages that must outlive the last step (network outputs).
    """
    first = [-1] * count
    last = [-1] * count
    before = set(given)
    for index, step in enumerate(steps):
        for storage in step.makes:
            if storage not in before:
                first[storage] = last[storage] = index
        for storage in step.reads:
            last[storage] = index
    for storage in kept:
        last[storage] = len(steps)
    return tuple(Interval(*pair) for pair in zip(first, last, strict=True))
