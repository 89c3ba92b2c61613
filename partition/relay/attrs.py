"""What a partitioned function carries to the code generator, as attributes of the function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from tvm import relay

from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.scheduler.compile import Decisions
from tvm_ethosu.scheduler.errors import UserError
from tvm_ethosu.scheduler.plan import Segment

_ACCELERATOR = "accelerator_config"
_MEMORY_MODE = "memory_mode"
_SYSTEM_CONFIG = "system_config"
_SRAM_SIZE = "sram_size"
SCRATCH_BYTES = "scratch_bytes"
_OPTIMISE = "optimise"
_BUDGET = "budget_bytes"
_LIVE_IO = "live_io_bytes"
_IDLE_IO = "idle_io_bytes"
_OVERWRITE_INPUTS = "overwrite_inputs"
_DISPOSABLE = "disposable_arguments"
_SHARE_IO = "share_io"
_SHARED = "shared_arguments"
_SEGMENTS = "segments"
_MOVES = "moves"
_PADDED = "padded_tensors"
_SLICES = "sliced_operators"
_INPUTS = "input_names"
_OUTPUTS = "output_names"
_USED_MEMORY = "used_memory"
# Attributes are integers; no budget is below zero by a byte.
_NO_BUDGET = -1


@dataclass(frozen=True)
class FunctionTensors:
    """The names in the model of what an NPU function reads and writes; None where there is none."""

    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class FunctionAttrs:
    """The attributes of one NPU function.

    Attributes:
        name: its global symbol.
        tensors: the names in the model of its parameters and results.
        options: what it was partitioned for.
        scratch_bytes: the size of its last result, the scratch.
        budget_bytes: the budget for which the scratch was planned; None without a limit.
        live_io_bytes: per call site, network inputs and outputs that are live there.
        idle_io_bytes: per call site, network inputs and outputs that are not live there.
        disposable: positions of the parameters whose memory the function may overwrite.
        decisions: how its operators are scheduled.
        shared: positions of a parameter and a result that lie in the same memory; None if apart.
        used_memory: per call site, what TVM's pass wrote; None unless built for AOT.
    """

    name: str
    tensors: FunctionTensors
    options: EthosUOptions
    scratch_bytes: int
    budget_bytes: int | None
    live_io_bytes: tuple[int, ...]
    idle_io_bytes: tuple[int, ...]
    disposable: frozenset[int]
    decisions: Decisions
    shared: tuple[int, int] | None = None
    used_memory: tuple[int, ...] | None = None


def write_attrs(function: relay.Function, attrs: FunctionAttrs) -> relay.Function:
    """Return the function with these attributes (``used_memory`` is TVM's to write)."""
    options = attrs.options
    values = {
        _INPUTS: [name or "" for name in attrs.tensors.inputs],
        _OUTPUTS: list(attrs.tensors.outputs),
        _ACCELERATOR: options.accelerator_config,
        _MEMORY_MODE: options.memory_mode,
        _SYSTEM_CONFIG: str(options.system_config),
        _SRAM_SIZE: options.sram_size or 0,
        _OPTIMISE: options.optimise,
        _OVERWRITE_INPUTS: int(options.overwrite_inputs),
        SCRATCH_BYTES: attrs.scratch_bytes,
        _BUDGET: _NO_BUDGET if attrs.budget_bytes is None else attrs.budget_bytes,
        _LIVE_IO: list(attrs.live_io_bytes),
        _IDLE_IO: list(attrs.idle_io_bytes),
        _DISPOSABLE: sorted(attrs.disposable),
        _SHARE_IO: int(options.share_io),
        _SHARED: list(attrs.shared or ()),
        _SEGMENTS: [list(map(int, astuple(one))) for one in attrs.decisions.segments],
        _MOVES: [list(move) for move in attrs.decisions.moves],
        _PADDED: list(attrs.decisions.padded),
        _SLICES: [list(one) for one in attrs.decisions.slices],
    }
    for key, value in values.items():
        function = function.with_attr(key, value)
    return function


def _read_decisions(attrs: Mapping[str, Any]) -> Decisions:
    segments = tuple(
        Segment(int(start), int(stop), int(rows), bool(int(fine)))
        for start, stop, rows, fine in attrs[_SEGMENTS]
    )
    moves = tuple((int(op), int(before)) for op, before in attrs[_MOVES])
    slices = tuple((int(op), int(channels)) for op, channels in attrs[_SLICES])
    return Decisions(segments, moves, tuple(map(str, attrs[_PADDED])), slices)


def read_attrs(function: relay.Function) -> FunctionAttrs:
    """Return the attributes of an NPU function.

    Raises:
        UserError: it was not made by ``partition_for_ethosu``.
    """
    attrs = dict(function.attrs.items())
    name = str(attrs.get("global_symbol", "?"))
    if SCRATCH_BYTES not in attrs:
        raise UserError(
            f"{name}: not partitioned by tvm_ethosu.partition.partition_for_ethosu, so its scratch "
            "memory is unknown"
        )
    used_memory = attrs.get(_USED_MEMORY)
    shared = [int(position) for position in attrs[_SHARED]]
    return FunctionAttrs(
        name,
        FunctionTensors(
            tuple(str(given) or None for given in attrs[_INPUTS]), tuple(map(str, attrs[_OUTPUTS]))
        ),
        EthosUOptions(
            str(attrs[_ACCELERATOR]),
            int(attrs[_SRAM_SIZE]) or None,
            str(attrs[_MEMORY_MODE]),
            str(attrs[_SYSTEM_CONFIG]),
            str(attrs[_OPTIMISE]),
            bool(int(attrs[_OVERWRITE_INPUTS])),
            bool(int(attrs[_SHARE_IO])),
        ),
        int(attrs[SCRATCH_BYTES]),
        None if int(attrs[_BUDGET]) == _NO_BUDGET else int(attrs[_BUDGET]),
        tuple(int(size) for size in attrs[_LIVE_IO]),
        tuple(int(size) for size in attrs[_IDLE_IO]),
        frozenset(int(position) for position in attrs[_DISPOSABLE]),
        _read_decisions(attrs),
        (shared[0], shared[1]) if shared else None,
        None if used_memory is None else tuple(int(size) for size in used_memory),
    )
