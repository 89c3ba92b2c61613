"""How much SRAM a call of an NPU function may use, from TVM's ``used_memory``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class IoPlace(Enum):
    """Where the network's inputs and outputs have their memory.

    IN_POOL: TVM plans them with all other tensors (``tir.usmp.use_workspace_io``); what is not
    live takes no memory. BESIDE_POOL: in the same SRAM, but with memory of their own all the time.
    ELSEWHERE: not in this SRAM at all.
    """

    IN_POOL = "in the pool"
    BESIDE_POOL = "beside the pool"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class CallSite:
    """What the program holds in memory while one call of an NPU function runs.

    Attributes:
        used_memory_bytes: TVM's number: all tensors that are live at the call, the function's
            own inputs, outputs and scratch included.
        scratch_bytes: the part of it that is the function's scratch.
        live_io_bytes: the part of it that are inputs and outputs of the network.
        idle_io_bytes: inputs and outputs of the network that are not live at the call.
        other_pool_bytes: the part of it that lies in another pool than the scratch.
        alignment_bytes: what all these tensors take in addition when each is rounded up to 16.
        ending: positions of the function's arguments that nobody reads after the call.
        ending_inputs: those of them that are inputs of the network.
        made_outputs: positions of the function's results that are outputs of the network.
    """

    used_memory_bytes: int
    scratch_bytes: int = 0
    live_io_bytes: int = 0
    idle_io_bytes: int = 0
    other_pool_bytes: int = 0
    alignment_bytes: int = 0
    ending: frozenset[int] = frozenset()
    ending_inputs: frozenset[int] = frozenset()
    made_outputs: frozenset[int] = frozenset()

    def others_bytes(self, io: IoPlace) -> int:
        """Return what is not available as scratch whatever this function does."""
        others = self.used_memory_bytes - self.scratch_bytes - self.other_pool_bytes
        match io:
            case IoPlace.IN_POOL:
                return others
            case IoPlace.BESIDE_POOL:
                return others + self.idle_io_bytes
            case IoPlace.ELSEWHERE:
                return others - self.live_io_bytes


def budget_bytes(
    sram_size_bytes: int | None,
    sites: Sequence[CallSite],
    io: IoPlace = IoPlace.BESIDE_POOL,
    shared_bytes: int = 0,
) -> int | None:
    """Return the scratch that a function may use: the least that any of its call sites leaves.

    It is negative when the rest of the program alone exceeds ``sram_size_bytes``, and None
    when there is no limit. Each function of a program has a budget of its own; they never add up,
    because their calls follow one another. ``shared_bytes`` are counted twice in
    ``used_memory``: those of an argument in the memory of another.
    """
    if sram_size_bytes is None:
        return None
    return min(sram_size_bytes - site.others_bytes(io) for site in sites) + shared_bytes


def disposable_arguments(
    sites: Sequence[CallSite], *, inputs: bool, io: IoPlace = IoPlace.BESIDE_POOL
) -> frozenset[int]:
    """Return the arguments that a function may overwrite, wherever it is called from.

    Inputs of the network only if ``inputs`` says so, or if TVM plans their memory like any other,
    so that they are gone after a run anyway.
    """
    if not sites:
        return frozenset()
    every_input = inputs or io is IoPlace.IN_POOL
    return frozenset.intersection(
        *(site.ending if every_input else site.ending - site.ending_inputs for site in sites)
    )
