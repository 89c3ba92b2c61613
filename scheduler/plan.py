"""The schedule: in which order operators run, how tensors lie in memory, what lives when.

This planner runs one operator after the other with whole feature maps. Cascades and stripes
replace ``plan_whole_tensors`` without changing what a ``Schedule`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from tvm_ethosu.scheduler.arch import ALIGN_BYTES, BRICK_CHANNELS
from tvm_ethosu.scheduler.ir import NpuGraph, Tensor


class Layout(Enum):
    """How a feature map lies in memory; NHCWB16 keeps 16 channels of a column together."""

    NHWC = "NHWC"
    NHCWB16 = "NHCWB16"


@dataclass(frozen=True)
class LiveRange:
    """Operator indices ``[start, stop)`` during which a buffer's bytes are in use."""

    start: int
    stop: int

    def overlaps(self, other: LiveRange) -> bool:
        """Return whether both are in use at some operator."""
        return self.start < other.stop and other.start < self.stop


@dataclass(frozen=True)
class Buffer:
    """Scratch memory for one inner tensor."""

    tensor: str
    size_bytes: int
    live: LiveRange


@dataclass(frozen=True)
class Schedule:
    """A graph with the layout of each tensor and the scratch buffers of the inner ones."""

    graph: NpuGraph
    layouts: Mapping[str, Layout]
    buffers: tuple[Buffer, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "layouts", MappingProxyType(dict(self.layouts)))


def align(size_bytes: int) -> int:
    """Round up to what the NPU takes as an address."""
    return -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES


def is_inner(graph: NpuGraph, name: str) -> bool:
    """Return whether only the NPU function itself sees the tensor."""
    return name not in (*graph.inputs, *graph.outputs, *graph.constants)


def choose_layout(graph: NpuGraph, tensor: Tensor) -> Layout:
    """Return NHCWB16 for an inner tensor that loses no bytes by it and is seen in one shape."""
    seen_as_is = all(
        operand.shape == tensor.shape
        for op in graph.ops
        for operand in (*op.inputs, op.ofm)
        if operand.tensor == tensor.name
    )
    fits_bricks = tensor.shape.c % BRICK_CHANNELS == 0
    return (
        Layout.NHCWB16
        if seen_as_is and fits_bricks and is_inner(graph, tensor.name)
        else Layout.NHWC
    )


def live_ranges(graph: NpuGraph) -> dict[str, LiveRange]:
    """Return from which operator to which each inner tensor is in use.

    A tensor lives from the operator that writes it to the last that reads it, both included.
    """
    start: dict[str, int] = {}
    stop: dict[str, int] = {}
    for index, op in enumerate(graph.ops):
        start[op.ofm.tensor] = index
        for operand in (*op.inputs, op.ofm):
            stop[operand.tensor] = index + 1
    return {name: LiveRange(start[name], stop[name]) for name in start if is_inner(graph, name)}


def plan_whole_tensors(graph: NpuGraph) -> Schedule:
    """Schedule operators in the given order, every inner tensor whole."""
    layouts = {name: choose_layout(graph, tensor) for name, tensor in graph.tensors.items()}
    buffers = tuple(
        Buffer(name, align(graph.tensors[name].size_bytes), live)
        for name, live in live_ranges(graph).items()
    )
    return Schedule(graph, layouts, buffers)
