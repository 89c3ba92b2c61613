"""Encoded weights and scales of one accelerator, each made once per depth of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

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
        self._weights: dict[tuple[object, ...], tuple[bytes, ...]] = {}

    def encoded(self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int) -> Encoded:
        """Return an operator's weights and scales for blocks of ``depth`` channels.

        Raises:
            InternalError: a weight or scale leaves what the encoding can hold.
        """
        bias = graph.constants[op.bias].data.astype(np.int64)
        scales = vela.encode_scales(self.arch, bias, op.rescale)
        return Encoded(scales, self._encoded_weights(graph, op, depth))

    def size_bytes(self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int) -> int:
        """Return the bytes of an operator's weights and scales, see ``ParameterSizes``."""
        weights = sum(align(len(piece)) for piece in self._encoded_weights(graph, op, depth))
        return weights + sum(vela.scale_stream_bytes(self.arch, len(op.rescale)))

    def _encoded_weights(
        self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int
    ) -> tuple[bytes, ...]:
        data = graph.constants[op.weights].data.astype(np.int16)
        # By their content: code is made from another graph than plans are.
        key = (sha256(data.tobytes()).digest(), data.shape, op, depth)
        if key not in self._weights:
            self._weights[key] = vela.encode_weights(op, self.arch, data, depth)
        return self._weights[key]
