"""What ``vela --output-format raw`` wrote: one NPU call, and where its ends lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from tvm_ethosu.backend.arrays import UNREADABLE
from tvm_ethosu.backend.sim import Region, RunReport, Stream, decode, payload_words, run
from tvm_ethosu.backend.sim.words import payload_accelerator
from tvm_ethosu.scheduler.errors import UserError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

MAX_SCRATCH_BYTES: Final = 1 << 28
_SCRATCH, _FAST = 1, 2
_PLACE: Final = ("region", "offset", "shape", "elem_size")
FIELDS: Final = (
    *("cmd_data", "weight_data", "scratch_size", "scratch_fast_region", "scratch_fast_size"),
    *(f"{end}_{part}" for end in ("input", "output") for part in _PLACE),
)


@dataclass(frozen=True)
class Place:
    """Bytes ``[start, stop)`` of a region."""

    region: int
    start: int
    stop: int


@dataclass(frozen=True)
class RawOutput:
    """An NPU call; ``memory`` has the bytes of each writable region."""

    payload: bytes = field(repr=False)
    constants: bytes = field(repr=False)
    memory: Mapping[int, int]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]


def read_raw(file: Path) -> RawOutput:
    """Return what is in a .npz file of Vela. Raises UserError when it is damaged."""
    try:
        with file.open("rb") as data, np.load(data, allow_pickle=False) as archive:
            fields = {name: np.asarray(archive[name]) for name in FIELDS}
    except UNREADABLE as error:
        raise UserError(f"{file}: not Vela's raw output ({' '.join(str(error).split())})") from None
    memory = {_SCRATCH: _number(file, fields, "scratch_size")}
    if _number(file, fields, "scratch_fast_region") == _FAST:
        memory[_FAST] = _number(file, fields, "scratch_fast_size")
    if not all(0 <= size <= MAX_SCRATCH_BYTES for size in memory.values()):
        raise UserError(
            f"{file}: scratch sizes {list(memory.values())} (limit {MAX_SCRATCH_BYTES})"
        )
    places = {end: _places(file, fields, end) for end in ("input", "output")}
    for place in (*places["input"], *places["output"]):
        if not 0 <= place.start <= place.stop <= memory.get(place.region, -1):
            raise UserError(f"{file}: {place} is not in the scratch memory (limit {memory})")
    return RawOutput(
        fields["cmd_data"].tobytes(),
        fields["weight_data"].tobytes(),
        memory,
        places["input"],
        places["output"],
    )


def run_raw(raw: RawOutput, inputs: Sequence[Array]) -> tuple[Stream, RunReport, tuple[Array, ...]]:
    """Run the call; tensors are given and returned as bytes.

    Raises UserError when an input has another size, SimulationError.
    """
    stream = decode(payload_words(raw.payload), payload_accelerator(raw.payload))
    memory = {region: np.zeros(size, np.uint8) for region, size in raw.memory.items()}
    for place, value in zip(raw.inputs, inputs, strict=True):
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if flat.size != place.stop - place.start:
            raise UserError(f"input has {flat.size} bytes (limit {place.stop - place.start})")
        memory[place.region][place.start : place.stop] = flat
    regions = {0: Region(np.frombuffer(raw.constants, np.uint8), read_only=True)}
    for number, data in memory.items():
        written = tuple((p.start, p.stop) for p in raw.inputs if p.region == number)
        regions[number] = Region(data, initialised=False, written=written)
    report = run(stream, regions)
    return stream, report, tuple(memory[p.region][p.start : p.stop].copy() for p in raw.outputs)


def _number(file: Path, fields: Mapping[str, Array], name: str) -> int:
    value = fields[name]
    if value.size != 1 or value.dtype.kind not in "iu":
        raise UserError(f"{file}: {name} is not a whole number (got {value.dtype} {value.shape})")
    return int(value.reshape(-1)[0])


def _places(file: Path, fields: Mapping[str, Array], end: str) -> tuple[Place, ...]:
    """Return the place of each input or output."""
    columns = [fields[f"{end}_{part}"] for part in _PLACE]
    count = len(columns[0]) if columns[0].ndim else -1
    if any(c.ndim == 0 or len(c) != count or c.dtype.kind not in "iu" for c in columns):
        raise UserError(f"{file}: the columns of its {end}s do not belong together")
    return tuple(
        Place(int(region), int(start), int(start) + int(np.prod(shape.astype(object))) * int(size))
        for region, start, shape, size in zip(*columns, strict=True)
    )
