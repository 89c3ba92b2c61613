"""Tensors that come and go: whose data a byte holds, and whose data it held before.

With a memory map a byte is poisoned when the last operation that uses its tensor has been executed,
until something else is written there. A map may end before the stream begins: then it only tells
whose data it was that a stream finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tvm_ethosu.backend.sim.errors import MemoryFault, SimulationError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@dataclass(frozen=True)
class LiveTensor:
    """Bytes ``[start, stop)`` of a region that hold a tensor from one kernel operation to another.

    ``first`` and ``last`` number the stream's kernel operations from 0, both included. A tensor
    that was written before the stream has a negative ``first``; one that is not used any more has
    a negative ``last`` too, and ``last_use`` names what used it last.
    """

    name: str
    region: int
    start: int
    stop: int
    first: int
    last: int
    last_use: str = ""


class LiveRanges:
    """Follows a memory map through a stream; ``written`` are masks of bytes by region.

    Where tensors share bytes while both live (one grows into dead rows of the other, an operation
    writes over its input), a byte belongs to the one that came last.
    """

    def __init__(self, tensors: Sequence[LiveTensor], written: Mapping[int, Array]) -> None:
        self._tensors = tuple(tensors)
        self._written = written
        self._begun: list[str] = []
        for tensor in self._tensors:
            _check(tensor, written)
        regions = {tensor.region for tensor in self._tensors}
        # One more than the index of a tensor, 0 for none: whose data it is, and was.
        self._owner = {n: np.zeros(written[n].size, np.int32) for n in regions}
        self._freed = {n: np.zeros(written[n].size, np.int32) for n in regions}
        self._complete = {tensor.region for tensor in self._tensors if tensor.last >= 0}
        coming = [i for i, tensor in enumerate(self._tensors) if tensor.last >= 0]
        self._coming = sorted(coming, key=lambda i: self._tensors[i].first, reverse=True)
        self._living: list[int] = []  # the youngest last
        self._begin_with_what_is_there()

    def begin(self, kernel: str) -> None:
        """Go on to the next kernel operation, and poison what its predecessor used last."""
        now = len(self._begun)
        for index in [index for index in self._living if self._tensors[index].last < now]:
            self._free(index)
        while self._coming and self._tensors[self._coming[-1]].first <= now:
            self._living.append(self._coming.pop())
        self._begun.append(kernel)

    def mark(self, region: int, start: int, stop: int) -> int:
        """Return the mark of the tensor that a write to ``[start, stop)`` belongs to, or 0.

        Raises MemoryFault when the map says what lives in the region, and nothing does there.
        """
        for index in reversed(self._living):
            tensor = self._tensors[index]
            if tensor.region == region and tensor.start <= start and stop <= tensor.stop:
                return 1 + index
        if region in self._complete:
            raise MemoryFault(
                f"writes bytes [{start:#x}, {stop:#x}) of region {region}, "
                "which are not those of a tensor that lives now"
            )
        return 0

    def mark_of_copy(self, region: int, start: int, stop: int) -> int:
        """Return the mark of the tensor that a transfer to ``[start, stop)`` belongs to, or 0.

        What the last kernel operation used for the last time is over.
        """
        for index in reversed(self._living):
            tensor = self._tensors[index]
            lasts = tensor.last >= len(self._begun)
            if lasts and tensor.region == region and tensor.start <= start and stop <= tensor.stop:
                return 1 + index
        return 0

    def owner(self, region: int) -> Array | None:
        """Return the marks of a region's bytes, to be set where something is written."""
        return self._owner.get(region)

    def past(self, region: int, byte: int) -> str | None:
        """Return whose data a byte held before, and until when."""
        marks = self._freed.get(region)
        if marks is None or not marks[byte]:
            return None
        tensor = self._tensors[marks[byte] - 1]
        until = tensor.last_use if tensor.last < 0 else self._begun[tensor.last]
        return f"belonged to {tensor.name} until {until}"

    def _begin_with_what_is_there(self) -> None:
        """Mark what ended before the stream, then what lives on, the youngest last."""
        for index in sorted(range(len(self._tensors)), key=lambda i: self._tensors[i].last):
            tensor = self._tensors[index]
            if tensor.last < 0:
                self._freed[tensor.region][tensor.start : tensor.stop] = 1 + index
        while self._coming and self._tensors[self._coming[-1]].first < 0:
            index = self._coming.pop()
            tensor = self._tensors[index]
            self._living.append(index)
            self._owner[tensor.region][tensor.start : tensor.stop] = 1 + index
            self._written[tensor.region][tensor.start : tensor.stop] = True

    def _free(self, index: int) -> None:
        self._living.remove(index)
        tensor = self._tensors[index]
        part = slice(tensor.start, tensor.stop)
        held = self._owner[tensor.region][part] == 1 + index
        self._written[tensor.region][part][held] = False
        self._freed[tensor.region][part][held] = 1 + index


def _check(tensor: LiveTensor, written: Mapping[int, Array]) -> None:
    mask = written.get(tensor.region)
    if mask is None:
        raise SimulationError(
            f"{tensor.name} lies in region {tensor.region}, of which no record is kept"
        )
    if not 0 <= tensor.start <= tensor.stop <= mask.size:
        raise SimulationError(
            f"{tensor.name} in [{tensor.start}, {tensor.stop}) is outside region {tensor.region} "
            f"of {mask.size} bytes"
        )
