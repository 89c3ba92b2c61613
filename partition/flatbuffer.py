"""Read a TFLite flatbuffer into plain records, every offset and length checked on the way.

The flatbuffers library of Python has no verifier: its accessors follow any offset. This reader
knows the tables of the TFLite schema (version 3) and walks all of them, so that whoever is handed
the file later meets no offset that leads out of it. The work is bounded by the size of the file:
each table and vector is read once, and the elements read may not exceed a multiple of the file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMATS = {
    "bool": "<B",
    "u8": "<B",
    "i8": "<b",
    "u16": "<H",
    "i32": "<i",
    "u32": "<I",
    "u64": "<Q",
    "i64": "<q",
    "f32": "<f",
}
_WIDTHS = {kind: struct.calcsize(code) for kind, code in _FORMATS.items()}
_OFFSET_WIDTH = 4

# Table -> (field, kind) in the order of their ids. A kind is a scalar, "[scalar]", "string",
# "bytes" (a byte vector that is not copied), a table, "[table]", or "union" (told by the field
# before it, which holds the number of the member).
_SCHEMA: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "Model": (
            ("version", "u32"),
            ("operator_codes", "[OperatorCode]"),
            ("subgraphs", "[SubGraph]"),
            ("description", "string"),
            ("buffers", "[Buffer]"),
            ("metadata_buffer", "[i32]"),
            ("metadata", "[Metadata]"),
            ("signature_defs", "[SignatureDef]"),
        ),
        "OperatorCode": (
            ("deprecated_builtin_code", "i8"),
            ("custom_code", "string"),
            ("version", "i32"),
            ("builtin_code", "i32"),
        ),
        "SubGraph": (
            ("tensors", "[Tensor]"),
            ("inputs", "[i32]"),
            ("outputs", "[i32]"),
            ("operators", "[Operator]"),
            ("name", "string"),
        ),
        "Tensor": (
            ("shape", "[i32]"),
            ("type", "i8"),
            ("buffer", "u32"),
            ("name", "string"),
            ("quantization", "Quantization"),
            ("is_variable", "bool"),
            ("sparsity", "Sparsity"),
            ("shape_signature", "[i32]"),
            ("has_rank", "bool"),
            ("variant_tensors", "[VariantSubType]"),
        ),
        "Quantization": (
            ("min", "[f32]"),
            ("max", "[f32]"),
            ("scale", "[f32]"),
            ("zero_point", "[i64]"),
            ("details_type", "u8"),
            ("details", "union"),
            ("quantized_dimension", "i32"),
        ),
        "Sparsity": (
            ("traversal_order", "[i32]"),
            ("block_map", "[i32]"),
            ("dim_metadata", "[DimensionMetadata]"),
        ),
        "DimensionMetadata": (
            ("format", "i8"),
            ("dense_size", "i32"),
            ("array_segments_type", "u8"),
            ("array_segments", "union"),
            ("array_indices_type", "u8"),
            ("array_indices", "union"),
        ),
        "Int32Vector": (("values", "[i32]"),),
        "Uint16Vector": (("values", "[u16]"),),
        "Uint8Vector": (("values", "bytes"),),
        "VariantSubType": (("shape", "[i32]"), ("type", "i8"), ("has_rank", "bool")),
        "Operator": (
            ("opcode_index", "u32"),
            ("inputs", "[i32]"),
            ("outputs", "[i32]"),
            ("builtin_options_type", "u8"),
            ("builtin_options", "union"),
            ("custom_options", "bytes"),
            ("custom_options_format", "i8"),
            ("mutating_variable_inputs", "bytes"),
            ("intermediates", "[i32]"),
            ("large_custom_options_offset", "u64"),
            ("large_custom_options_size", "u64"),
            ("builtin_options_2_type", "u8"),
            ("builtin_options_2", "union"),
        ),
        "Buffer": (("data", "bytes"), ("offset", "u64"), ("size", "u64")),
        "Metadata": (("name", "string"), ("buffer", "u32")),
        "SignatureDef": (
            ("inputs", "[TensorMap]"),
            ("outputs", "[TensorMap]"),
            ("signature_key", "string"),
            ("subgraph_index", "u32"),
        ),
        "TensorMap": (("name", "string"), ("tensor_index", "u32")),
        "CustomQuantization": (("custom", "bytes"),),
        "ConcatEmbeddingsOptions": (
            ("num_channels", "i32"),
            ("num_columns_per_channel", "[i32]"),
            ("embedding_dim_per_channel", "[i32]"),
        ),
        "ReshapeOptions": (("new_shape", "[i32]"),),
        "SqueezeOptions": (("squeeze_dims", "[i32]"),),
        "VarHandleOptions": (("container", "string"), ("shared_name", "string")),
        "BucketizeOptions": (("boundaries", "[f32]"),),
        # Any table of which only scalars are of interest.
        "Scalars": (),
    }
)

# Union field -> number of the member -> table. Members not named hold scalars only, or belong to
# operators (StableHLO) that nothing after this reads.
_UNIONS: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "details": {1: "CustomQuantization"},
        "array_segments": {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"},
        "array_indices": {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"},
        "builtin_options": {
            3: "ConcatEmbeddingsOptions",
            17: "ReshapeOptions",
            30: "SqueezeOptions",
            111: "VarHandleOptions",
            115: "BucketizeOptions",
        },
        "builtin_options_2": {},
    }
)


@dataclass(frozen=True, eq=False)
class Record:
    """One table of the file: the fields that are present, by name."""

    fields: Mapping[str, object]

    def has(self, name: str) -> bool:
        """Return whether the file holds the field."""
        return name in self.fields

    def integer(self, name: str) -> int:
        """Return a scalar field, 0 when absent (the schema's default for all that we read)."""
        return cast(int, self.fields.get(name, 0))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a vector of whole numbers, empty when absent."""
        return cast("tuple[int, ...]", self.fields.get(name, ()))

    def reals(self, name: str) -> tuple[float, ...]:
        """Return a vector of floating point numbers, empty when absent."""
        return cast("tuple[float, ...]", self.fields.get(name, ()))

    def bytes(self, name: str) -> bytes | memoryview:
        """Return a byte vector or a string, empty when absent."""
        return cast("bytes | memoryview", self.fields.get(name, b""))

    def record(self, name: str) -> Record | None:
        """Return a table, None when absent."""
        return cast("Record | None", self.fields.get(name))

    def records(self, name: str) -> tuple[Record, ...]:
        """Return a vector of tables, empty when absent."""
        return cast("tuple[Record, ...]", self.fields.get(name, ()))


class _Reader:
    """The walk over one file; remembers what it has read, so that nothing is read twice."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.view = memoryview(data)
        self.seen: dict[tuple[int, str], object] = {}
        # Tables and vectors may lie over each other in a damaged file; in a sound one no byte
        # belongs to more than one of them, save the vtables.
        self.budget = 4 * len(data) + 4096

    def spend(self, size: int, where: str) -> None:
        self.budget -= size
        if self.budget < 0:
            raise UserError(f"the file is damaged: its tables lie over each other, seen at {where}")

    def slice(self, start: int, size: int, where: str) -> memoryview:
        if start < 0 or start + size > len(self.data):
            raise UserError(
                f"the file is truncated or damaged: {where} is in bytes {start} to "
                f"{start + size}, the file holds {len(self.data)}"
            )
        return self.view[start : start + size]

    def scalar(self, kind: str, position: int, where: str) -> int:
        raw = self.slice(position, _WIDTHS[kind], where)
        return int(struct.unpack(_FORMATS[kind], raw)[0])

    def follow(self, position: int, where: str) -> int:
        return position + self.scalar("u32", position, where)

    def value(self, kind: str, position: int, where: str) -> object:
        """Read the field at ``position``; ``kind`` is one of the schema's, unions resolved."""
        if kind in _FORMATS:
            return self.scalar(kind, position, where)
        key = (self.follow(position, where), kind)
        if key not in self.seen:
            self.seen[key] = self.referred(kind, key[0], where)
        return self.seen[key]

    def referred(self, kind: str, position: int, where: str) -> object:
        """Read what an offset points at: a vector, a string or a table."""
        if kind == "string":
            return self.string(position, where)
        if kind == "bytes":
            count = self.scalar("u32", position, where)
            return self.slice(position + _OFFSET_WIDTH, count, where)
        if kind.startswith("["):
            return self.vector(kind[1:-1], position, where)
        return self.table(kind, position, where)

    def string(self, position: int, where: str) -> bytes:
        count = self.scalar("u32", position, where)
        raw = self.slice(position + _OFFSET_WIDTH, count + 1, where)
        self.spend(count, where)
        if raw[-1] != 0:
            raise UserError(f"the file is damaged: the string {where} has no end")
        return bytes(raw[:-1])

    def vector(self, kind: str, position: int, where: str) -> tuple[object, ...]:
        count = self.scalar("u32", position, where)
        width = _WIDTHS.get(kind, _OFFSET_WIDTH)
        start = position + _OFFSET_WIDTH
        raw = self.slice(start, count * width, where)
        self.spend(count * width, where)
        if kind in _FORMATS:
            return struct.unpack(f"<{count}{_FORMATS[kind][1]}", raw)
        return tuple(
            self.value(kind, start + index * width, f"{where}[{index}]") for index in range(count)
        )

    def table(self, kind: str, position: int, where: str) -> Record:
        offsets, size = self.vtable(position, where)
        self.slice(position, size, where)
        self.spend(size, where)
        fields: dict[str, object] = {}
        for (name, declared), offset in zip(_SCHEMA[kind], offsets, strict=False):
            if offset == 0:
                continue
            field_kind = self.member(name, fields) if declared == "union" else declared
            here = f"{where}.{name}"
            if offset + _WIDTHS.get(field_kind, _OFFSET_WIDTH) > size:
                raise UserError(f"the file is damaged: {here} lies outside of its table")
            fields[name] = self.value(field_kind, position + offset, here)
        return Record(MappingProxyType(fields))

    def vtable(self, position: int, where: str) -> tuple[tuple[int, ...], int]:
        """Return the offsets of the fields within a table and the table's size in bytes."""
        distance = self.scalar("i32", position, where)
        start = position - distance
        length = self.scalar("u16", start, where)
        size = self.scalar("u16", start + 2, where)
        if length < 4 or length % 2 or size < 4:
            raise UserError(
                f"the file is damaged: the table {where} has a vtable of {length} bytes "
                f"for {size} bytes of fields"
            )
        raw = self.slice(start + 4, length - 4, where)
        offsets = struct.unpack(f"<{(length - 4) // 2}H", raw)
        if any(0 < offset < 4 or offset >= size for offset in offsets):
            raise UserError(f"the file is damaged: {where} has fields outside of its table")
        return offsets, size

    @staticmethod
    def member(name: str, fields: Mapping[str, object]) -> str:
        number = cast(int, fields.get(f"{name}_type", 0))
        return _UNIONS[name].get(number, "Scalars")


def read_model(data: bytes) -> Record:
    """Return the root table of a TFLite file with all that it refers to.

    Raises:
        UserError: an offset, a length or a string leads out of the file or contradicts another.
    """
    return cast(Record, _Reader(data).value("Model", 0, "model"))
