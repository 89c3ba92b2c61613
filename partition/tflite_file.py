"""A TFLite file, checked whole before any other stage sees it.

What holds for a TfliteFile: every offset and index in it is valid; there is one subgraph; each
tensor that an operator reads is an input of the network, a constant, a variable or the result
of an earlier operator; constants hold exactly the bytes that their shape asks for; all shapes are
fixed; at least one operator is quantized. Tensor names are unique and not empty.
"""

from __future__ import annotations

import math
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_ethosu.partition.flatbuffer import Record, read_model
from tvm_ethosu.partition.tflite_checks import check_indices, check_network, check_quantized
from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

_IDENTIFIER = b"TFL3"
_MAX_BYTES = 2**31 - 1  # of a flatbuffer
_QUANTIZED_DTYPES = ("int8", "uint8", "int16")
_ABSENT = -1  # an optional input that is not there

# Number of a TensorType -> (name as numpy has it, bits per element or 0 when it has no fixed size).
_TYPES: Mapping[int, tuple[str, int]] = {
    0: ("float32", 32),
    1: ("float16", 16),
    2: ("int32", 32),
    3: ("uint8", 8),
    4: ("int64", 64),
    5: ("string", 0),
    6: ("bool", 8),
    7: ("int16", 16),
    8: ("complex64", 64),
    9: ("int8", 8),
    10: ("float64", 64),
    11: ("complex128", 128),
    12: ("uint64", 64),
    13: ("resource", 0),
    14: ("variant", 0),
    15: ("uint32", 32),
    16: ("uint16", 16),
    17: ("int4", 4),
    18: ("bfloat16", 16),
}

_FOREIGN_FORMATS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive, as Keras, PyTorch and silabs-mltk write them"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes it"),
    (b"\x08\x01\x12", "a protocol buffer, as TensorFlow's saved_model.pb"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x7fELF", "an ELF binary"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x80\x02", "a Python pickle"),
    (b"version https://git-lfs", "a Git LFS pointer: fetch the file itself with git lfs pull"),
    (b"{", "JSON"),
    (b"<", "XML or HTML"),
)


@dataclass(frozen=True)
class TfliteTensor:
    """One tensor; ``scales`` and ``zero_points`` are empty when it is not quantized."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    is_constant: bool

    @property
    def is_quantized(self) -> bool:
        """Return whether it holds quantized numbers of a type that the NPU may take."""
        return self.dtype in _QUANTIZED_DTYPES and bool(self.scales)


@dataclass(frozen=True)
class TfliteOperator:
    """One operator: tensor names of what it reads and writes, "" for an absent optional input."""

    index: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"operator {self.index} ({self.name})"


@dataclass(frozen=True)
class TfliteFile:
    """A checked file; ``inputs`` and ``outputs`` are indices into ``tensors``."""

    path: Path
    data: bytes
    operators: tuple[TfliteOperator, ...]
    tensors: tuple[TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def load_tflite(path: str | PathLike[str], *, quantized: bool = True) -> TfliteFile:
    """Read a TFLite file and check all of it; without ``quantized`` a float network will do.

    Raises:
        UserError: the file cannot be read, is damaged, or is no network that this project takes.
    """
    where = Path(path)
    try:
        return parse_tflite(_read(where), where, quantized=quantized)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def parse_tflite(
    data: bytes, path: Path = Path("<memory>"), *, quantized: bool = True
) -> TfliteFile:
    """Return the checked form of a TFLite file that is in memory already.

    Raises:
        UserError: as load_tflite, the message without the path.
    """
    _check_identifier(data)
    model = read_model(data)
    subgraph = _only_subgraph(model)
    tensors = _tensors(model, subgraph)
    operators = _operators(model, subgraph, tensors)
    file = TfliteFile(
        path, data, operators, tensors, subgraph.integers("inputs"), subgraph.integers("outputs")
    )
    check_network(file, subgraph)
    if quantized:
        check_quantized(file)
    return file


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UserError("is a directory, not a TFLite file")
        if not stat.S_ISREG(status.st_mode):
            raise UserError("is not a regular file")
        if status.st_size > _MAX_BYTES:
            raise UserError(f"is too long for TFLite (got {status.st_size} bytes, limit 2 GiB)")
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError("no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"cannot be read ({reason})") from None


def _check_identifier(data: bytes) -> None:
    if not data:
        raise UserError("the file is empty")
    if data[4:8] == _IDENTIFIER:
        return
    for magic, name in _FOREIGN_FORMATS:
        if data.startswith(magic):
            raise UserError(f"not a TFLite file: it looks like {name}")
    if data[:1] == b"\x08" and b"onnx" in data[:4096].lower():
        raise UserError("not a TFLite file: it looks like ONNX")
    if len(data) < 8:
        raise UserError(f"not a TFLite file: it has only {len(data)} bytes")
    raise UserError(
        f"not a TFLite file (bytes 4 to 8 are {data[4:8]!r}, TFLite has {_IDENTIFIER!r})"
    )


def _only_subgraph(model: Record) -> Record:
    version = model.integer("version")
    if version != 3:
        raise UserError(f"unknown version of the TFLite schema (got {version}, known 3)")
    subgraphs = model.records("subgraphs")
    if not subgraphs:
        raise UserError("the file holds no network (0 subgraphs)")
    if len(subgraphs) > 1:
        raise UserError(
            f"the network has control flow (conditions, loops or calls): "
            f"it holds {len(subgraphs)} subgraphs, only 1 is supported"
        )
    if not subgraphs[0].records("operators"):
        raise UserError("the network has no operators")
    return subgraphs[0]


# --- tensors -------------------------------------------------------------------------------------


def _tensors(model: Record, subgraph: Record) -> tuple[TfliteTensor, ...]:
    records = subgraph.records("tensors")
    names = _unique_names(tuple(bytes(record.bytes("name")) for record in records))
    return tuple(
        _tensor(model, record, index, name)
        for index, (record, name) in enumerate(zip(records, names, strict=True))
    )


def _unique_names(raw: tuple[bytes, ...]) -> tuple[str, ...]:
    """Return the names as text; an empty or repeated one gets the tensor's index."""
    texts = [name.decode("utf-8", "backslashreplace").replace("\0", "\\0") for name in raw]
    counts = Counter(texts)
    taken = {text for text, count in counts.items() if count == 1}
    names = []
    for index, text in enumerate(texts):
        name = text
        if not text or counts[text] > 1:
            name = f"{text or 'tensor'}_{index}"
            while name in taken:
                name += "_"
            taken.add(name)
        names.append(name)
    return tuple(names)


def _tensor(model: Record, record: Record, index: int, name: str) -> TfliteTensor:
    where = f"tensor {name!r}"
    number = record.integer("type")
    if number not in _TYPES:
        raise UserError(f"{where}: unknown element type (got number {number}, known 0 to 18)")
    dtype, _ = _TYPES[number]
    data = _buffer(model, record.integer("buffer"), where)
    shape = record.integers("shape")
    if len(data):
        _check_size(record, len(data), where)
    scales, zero_points = _quantization(record, dtype, where)
    return TfliteTensor(index, name, shape, dtype, scales, zero_points, bool(len(data)))


def _buffer(model: Record, number: int, where: str) -> bytes | memoryview:
    buffers = model.records("buffers")
    if number >= len(buffers):
        raise UserError(f"{where}: no such buffer (got {number}, the file has {len(buffers)})")
    buffer = buffers[number]
    if buffer.integer("offset") > 1 or buffer.integer("size") > 1:
        raise UserError(
            f"{where}: its data lies behind the flatbuffer at byte {buffer.integer('offset')}, "
            "which is not supported"
        )
    return buffer.bytes("data")


def _check_size(record: Record, actual_bytes: int, where: str) -> None:
    dtype, bits = _TYPES[record.integer("type")]
    shape = record.integers("shape")
    if bits == 0 or record.has("sparsity") or any(dim < 0 for dim in shape):
        return
    needed_bytes = (math.prod(shape) * bits + 7) // 8
    if needed_bytes != actual_bytes:
        raise UserError(
            f"{where}: the file is truncated or damaged: {dtype} of shape {list(shape)} takes "
            f"{needed_bytes} bytes (got {actual_bytes})"
        )


def _quantization(
    record: Record, dtype: str, where: str
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    quantization = record.record("quantization")
    if quantization is None or not quantization.reals("scale"):
        return (), ()
    scales = quantization.reals("scale")
    zero_points = quantization.integers("zero_point") or (0,) * len(scales)
    bad = [scale for scale in scales if not (math.isfinite(scale) and scale >= 0)]
    if bad:
        raise UserError(f"{where}: a scale is not a positive number (got {bad[0]})")
    if len(zero_points) != len(scales):
        raise UserError(f"{where}: {len(scales)} scales but {len(zero_points)} zero points")
    _check_channels(record, len(scales), where)
    _check_zero_points(zero_points, dtype, where)
    return scales, zero_points


def _check_channels(record: Record, count: int, where: str) -> None:
    # Which dimension they belong to is not checked: converters name the filter's for the bias.
    shape = record.integers("shape")
    if count > 1 and count not in shape:
        raise UserError(f"{where}: {count} scales fit no dimension of shape {list(shape)}")


def _check_zero_points(zero_points: tuple[int, ...], dtype: str, where: str) -> None:
    limits = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
    low, high = limits.get(dtype, (-(2**31), 2**31 - 1))
    for zero_point in zero_points:
        if not low <= zero_point <= high:
            raise UserError(
                f"{where}: a zero point does not fit {dtype} (got {zero_point}, "
                f"limit {low} to {high})"
            )


# --- operators -----------------------------------------------------------------------------------


def _operators(
    model: Record, subgraph: Record, tensors: tuple[TfliteTensor, ...]
) -> tuple[TfliteOperator, ...]:
    names = _operator_names(model)
    operators = []
    for index, record in enumerate(subgraph.records("operators")):
        code = record.integer("opcode_index")
        if code >= len(names):
            raise UserError(
                f"operator {index}: no such operator code (got {code}, the file has {len(names)})"
            )
        where = f"operator {index} ({names[code]})"
        inputs = record.integers("inputs")
        outputs = record.integers("outputs")
        check_indices(tuple(i for i in inputs if i != _ABSENT), len(tensors), f"{where}: input")
        check_indices(outputs, len(tensors), f"{where}: output")
        check_indices(record.integers("intermediates"), len(tensors), f"{where}: intermediate")
        operators.append(
            TfliteOperator(
                index,
                names[code],
                tuple("" if i == _ABSENT else tensors[i].name for i in inputs),
                tuple(tensors[i].name for i in outputs),
            )
        )
    return tuple(operators)


def _operator_names(model: Record) -> tuple[str, ...]:
    known = _builtin_names()
    names = []
    for code in model.records("operator_codes"):
        # Numbers above 126 are only in the newer field, files from before 2020 have only the older.
        number = max(code.integer("deprecated_builtin_code"), code.integer("builtin_code"))
        if number not in known:
            raise UserError(f"unknown operator (got number {number}, known 0 to {max(known)})")
        custom = bytes(code.bytes("custom_code")).decode("utf-8", "backslashreplace")
        names.append(f"CUSTOM {custom}" if known[number] == "CUSTOM" else known[number])
    return tuple(names)


def _builtin_names() -> Mapping[int, str]:
    """Return number -> name of TFLite's operators.

    Raises:
        UserError: the package that lists them is not installed.
    """
    try:
        from tflite.BuiltinOperator import BuiltinOperator
    except ImportError:
        raise UserError(
            "TFLite files need the package tflite: pip install 'tvm-ethosu[relay]'"
        ) from None
    return {number: name for name, number in vars(BuiltinOperator).items() if name.isupper()}
