"""How tensors lie in memory: dense NHWC, or NHCWB16, which pads channels to bricks of 16."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tvm_ethosu.scheduler.arch import BRICK_CHANNELS, Layout
from tvm_ethosu.scheduler.integers import round_up
from tvm_ethosu.scheduler.ir import NpuGraph, Tensor


@dataclass(frozen=True, eq=False)
class Layouts:
    """The layout of each tensor of a graph, and the memory that it then takes."""

    graph: NpuGraph
    by_tensor: Mapping[str, Layout]

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_tensor", MappingProxyType(dict(self.by_tensor)))

    def row_bytes(self, name: str) -> int:
        """Return the bytes of one row."""
        tensor = self.graph.tensors[name]
        in_bricks = self.by_tensor[name] is Layout.NHCWB16
        channels = round_up(tensor.shape.c, BRICK_CHANNELS) if in_bricks else tensor.shape.c
        return tensor.shape.w * channels * tensor.dtype.size_bytes

    def size_bytes(self, name: str) -> int:
        """Return the bytes of all rows."""
        return self.graph.tensors[name].shape.h * self.row_bytes(name)

    @property
    def padded(self) -> frozenset[str]:
        """Return the tensors that take more bytes than their elements."""
        tensors = self.graph.tensors
        return frozenset(n for n in tensors if self.size_bytes(n) > tensors[n].size_bytes)


def can_be_bricks(graph: NpuGraph, tensor: Tensor) -> bool:
    """Return whether a tensor may lie as NHCWB16: an inner one that is seen in one shape."""
    return (
        tensor.name in graph.inner_tensors
        and tensor.name not in graph.reshaped_tensors
        and tensor.name not in graph.dense_tensors
        and _is_cut_between_bricks(graph, tensor)
    )


def _is_cut_between_bricks(graph: NpuGraph, tensor: Tensor) -> bool:
    """Return whether all slices of a tensor begin with a brick."""
    return tensor.name not in graph.sliced_tensors or all(
        operand.first_channel % BRICK_CHANNELS == 0
        for op in graph.ops
        for operand in (*op.inputs, op.ofm)
        if operand.tensor == tensor.name
    )


def choose_layouts(graph: NpuGraph, padded: Iterable[str] = ()) -> Layouts:
    """Return the layout of every tensor: NHCWB16 where that is possible and loses no bytes.

    Tensors in ``padded`` get it though they lose bytes.
    """
    wanted = frozenset(padded)

    def layout(tensor: Tensor) -> Layout:
        full = tensor.shape.c % BRICK_CHANNELS == 0 or tensor.name in wanted
        return Layout.NHCWB16 if full and can_be_bricks(graph, tensor) else Layout.NHWC

    return Layouts(graph, {name: layout(tensor) for name, tensor in graph.tensors.items()})
