"""Encoded weights and scales of one accelerator, each made once per depth of blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_ethosu.backend import vela
from tvm_ethosu.scheduler.arch import Arch
from tvm_ethosu.scheduler.ir import Conv2D, DepthwiseConv2D, NpuGraph
from tvm_ethosu.scheduler.liveness import align


@dataclass(frozen=True)
class Encoded:
    """The pieces of each core; scales come first in memory."""

    scales: tuple[bytes, ...]
    weights: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all pieces, each up to the next multiple of 16."""
        pieces = (*self.scales, *self.weights)
        return sum(align(len(piece)) for piece in pieces)


class Encoder:
    """Encodes for one accelerator and remembers what it has encoded."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self._made: dict[tuple[object, ...], Encoded] = {}

    def encoded(self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int) -> Encoded:
        """Return an operator's weights and scales for blocks of ``depth`` channels.

        Raises:
            InternalError: a weight or scale leaves what the encoding can hold.
        """
        weights, bias = graph.constants[op.weights], graph.constants[op.bias]
        key = (weights, bias, op, depth)
        if key not in self._made:
            self._made[key] = Encoded(
                vela.encode_scales(self.arch, bias.data.astype(np.int64), op.rescale),
                vela.encode_weights(op, self.arch, weights.data.astype(np.int16), depth),
            )
        return self._made[key]

    def size_bytes(self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int) -> int:
        """Return the bytes of an operator's weights and scales, see ``ParameterSizes``."""
        return self.encoded(graph, op, depth).size_bytes
