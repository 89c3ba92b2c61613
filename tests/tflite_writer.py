"""Writes the tables of a TFLite file (schema version 3); what tflite_builder puts together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from tflite.BuiltinOperator import BuiltinOperator
from tflite.BuiltinOptions import BuiltinOptions
from tflite.TensorType import TensorType

Fields = Mapping[int, tuple[str, Any]]  # slot -> (kind in the flatbuffers library, value)
_OFFSET = "UOffsetTRelative"
_BUFFER_ALIGNMENT = 16


@dataclass(frozen=True)
class Value:
    """A tensor of the network under construction; no scales: not quantized."""

    index: int
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zero_point: int = 0

    @property
    def scale(self) -> float:
        return self.scales[0] if self.scales else 1.0


@dataclass(frozen=True)
class Tensor:
    value: Value
    name: str | None
    data: bytes
    axis: int
    signature: tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str
    fields: Fields
    shape: tuple[int, ...] = ()  # of a reshape: the only vector among the options used here


def write_tflite(
    tensors: Sequence[Tensor],
    operators: Sequence[Operator],
    inputs: Sequence[int],
    outputs: Sequence[int],
    subgraphs: int = 1,
) -> bytes:
    """Return a file whose buffer i + 1 belongs to tensor i; buffer 0 is empty."""
    b = flatbuffers.Builder(1024)
    b.ForceDefaults(True)
    codes = sorted({operator.code for operator in operators})
    graphs = [
        _subgraph(b, tensors, inputs, outputs, [(codes.index(o.code), o) for o in operators])
        for _ in range(subgraphs)
    ]
    data = [b"", *(tensor.data for tensor in tensors)]
    parts = (
        _vector(b, [_code(b, code) for code in codes]),
        _vector(b, graphs),
        b.CreateString("made by tflite_builder"),
        _vector(b, [_table(b, {0: (_OFFSET, _bytes(b, raw))} if raw else {}) for raw in data]),
    )
    fields = {slot: (_OFFSET, part) for slot, part in enumerate(parts, 1)}
    b.Finish(_table(b, {0: ("Uint32", 3)} | fields), b"TFL3")
    return bytes(b.Output())


def _subgraph(
    b: flatbuffers.Builder,
    tensors: Sequence[Tensor],
    inputs: Sequence[int],
    outputs: Sequence[int],
    operators: Sequence[tuple[int, Operator]],
) -> int:
    parts = (
        _vector(b, [_tensor(b, index, tensor) for index, tensor in enumerate(tensors)]),
        _numbers(b, inputs, np.int32),
        _numbers(b, outputs, np.int32),
        _vector(b, [_operator(b, code, operator) for code, operator in operators]),
        b.CreateString("main"),
    )
    return _table(b, {slot: (_OFFSET, part) for slot, part in enumerate(parts)})


def _code(b: flatbuffers.Builder, code: str) -> int:
    number = getattr(BuiltinOperator, code)
    return _table(b, {0: ("Int8", min(number, 127)), 2: ("Int32", 1), 3: ("Int32", number)})


def _tensor(b: flatbuffers.Builder, index: int, tensor: Tensor) -> int:
    value = tensor.value
    fields: dict[int, tuple[str, Any]] = {
        0: (_OFFSET, _numbers(b, value.shape, np.int32)),
        1: ("Int8", getattr(TensorType, value.dtype.upper())),
        2: ("Uint32", index + 1),
    }
    if tensor.name is not None:
        fields[3] = (_OFFSET, b.CreateString(tensor.name))
    if value.scales:
        fields[4] = (_OFFSET, _quantization(b, value, tensor.axis))
    if tensor.signature:
        fields[7] = (_OFFSET, _numbers(b, tensor.signature, np.int32))
    return _table(b, fields)


def _quantization(b: flatbuffers.Builder, value: Value, axis: int) -> int:
    zero_points = [value.zero_point] * len(value.scales)
    fields = {
        2: (_OFFSET, _numbers(b, value.scales, np.float32)),
        3: (_OFFSET, _numbers(b, zero_points, np.int64)),
        6: ("Int32", axis),
    }
    return _table(b, fields)


def _operator(b: flatbuffers.Builder, code: int, operator: Operator) -> int:
    options = dict(operator.fields)
    if operator.shape:
        options[0] = (_OFFSET, _numbers(b, operator.shape, np.int32))
    fields = {
        0: ("Uint32", code),
        1: (_OFFSET, _numbers(b, operator.inputs, np.int32)),
        2: (_OFFSET, _numbers(b, operator.outputs, np.int32)),
        3: ("Uint8", getattr(BuiltinOptions, operator.options)),
        4: (_OFFSET, _table(b, options)),
    }
    return _table(b, fields)


def _table(b: flatbuffers.Builder, fields: Fields) -> int:
    b.StartObject(max(fields, default=-1) + 1)
    for slot, (kind, value) in fields.items():
        getattr(b, f"Prepend{kind}Slot")(slot, value, 0)
    return int(b.EndObject())


def _vector(b: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return int(b.EndVector())


def _numbers(b: flatbuffers.Builder, numbers: Sequence[Any], dtype: npt.DTypeLike) -> int:
    return int(b.CreateNumpyVector(np.array(numbers, dtype)))


def _bytes(b: flatbuffers.Builder, data: bytes) -> int:
    """Write a byte vector whose first byte is aligned as the schema asks for buffers."""
    b.StartVector(1, len(data), _BUFFER_ALIGNMENT)
    b.head -= len(data)
    b.Bytes[b.head : b.head + len(data)] = data
    return int(b.EndVector())
