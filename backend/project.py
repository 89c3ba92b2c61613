"""A network as a bare-metal project: all C that is needed, a linker script, a Makefile."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tvm_ethosu.backend.check import load_for_host, random_inputs, run_once
from tvm_ethosu.backend.csource import accelerator_macro, byte_lines, render
from tvm_ethosu.backend.network import MODULE_NAME, FirmwareNetwork
from tvm_ethosu.backend.outputs import entry_point, fill_firmware, replace_folders, write_text
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import TfliteFile, TfliteTensor
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.liveness import align

Array = npt.NDArray[Any]

_FIRMWARE: Final = Path(__file__).parent / "firmware"
# Folder of the project -> files of the package.
_FILES: Final = {
    "app": ("corstone300/main.c", "corstone300/network.h"),
    "board": (
        "corstone300/board.c",
        "corstone300/board.h",
        "corstone300/startup.c",
        "corstone300/link.ld",
    ),
    "driver": (
        "src/tvm_ethosu_driver.c",
        "src/tvm_ethosu_io.c",
        "src/tvm_ethosu_registers.h",
    ),
}


@dataclass(frozen=True, eq=False)
class Case:
    """One inference: inputs and expected outputs in the order of the file."""

    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]


@dataclass(frozen=True)
class _Tensor:
    """An input or output: its member in TVM's structure, its type, its bytes.

    ``buffer`` names its array in C. Arrays are as large as the largest tensor that uses them.
    """

    member: str
    dtype: str
    size_bytes: int
    buffer: str

    @property
    def arena_bytes(self) -> int:
        return align(self.size_bytes)


def make_cases(
    file: TfliteFile,
    options: EthosUOptions,
    inputs: Sequence[Sequence[Array]] = (),
    *,
    count: int = 1,
    seed: int = 0,
) -> tuple[Case, ...]:
    """Return cases whose expected outputs come from the network run on this host.

    There the NPU functions run on the simulator, planned without a limit of SRAM, which changes no
    result, and TVM's LLVM code computes the other operators. ``inputs`` are sets of inputs; without
    any, ``count`` sets are drawn at random.
    """
    host = load_for_host(file, replace(options, sram_size=None))
    rng = np.random.default_rng(seed)
    sets = list(inputs) or [random_inputs(file, rng) for _ in range(count)]
    return tuple(Case(tuple(given), run_once(host, given).outputs) for given in sets)


def _members(entry: str, of: str) -> list[str]:
    """Return the members of TVM's structure that the entry point passes on, in this order."""
    return list(dict.fromkeys(re.findall(rf"\b{of}->(\w+)", entry)))


def _bytes_of(tensor: TfliteTensor) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * np.dtype(tensor.dtype).itemsize


def _read_inputs(file: TfliteFile, entry: str) -> dict[int, _Tensor]:
    """Return position in the file -> input; one that no operator reads has no member."""
    members = _members(entry, "inputs")
    found: dict[int, _Tensor] = {}
    for place, index in enumerate(file.inputs):
        tensor = file.tensors[index]
        name = re.sub(r"\W", "_", tensor.name, flags=re.ASCII)
        if name in members:
            buffer = f"input{len(found)}"
            found[place] = _Tensor(name, tensor.dtype, _bytes_of(tensor), buffer)
    if {tensor.member for tensor in found.values()} != set(members):
        raise InternalError(f"firmware: TVM's inputs are {members}, the file's are others")
    return found


def _written_outputs(file: TfliteFile, entry: str, shared: Mapping[str, str]) -> list[_Tensor]:
    """Return the outputs; those in ``shared`` are in the buffer named there."""
    members = _members(entry, "outputs")
    if len(members) != len(file.outputs):
        raise InternalError(
            f"firmware: TVM has {len(members)} outputs, the file has {len(file.outputs)}"
        )
    tensors = (file.tensors[index] for index in file.outputs)
    return [
        _Tensor(member, tensor.dtype, _bytes_of(tensor), shared.get(tensor.name, f"output{place}"))
        for place, (member, tensor) in enumerate(zip(members, tensors, strict=True))
    ]


def _shared_buffers(
    file: TfliteFile, network: FirmwareNetwork, inputs: Mapping[int, _Tensor]
) -> dict[str, str]:
    """Return for outputs that lie in an input's memory, by name, the input's buffer."""
    buffers = {file.tensors[file.inputs[place]].name: one.buffer for place, one in inputs.items()}
    return {pair.output: buffers[pair.input] for pair in network.shared}


def _buffers(tensors: Iterable[_Tensor]) -> dict[str, int]:
    """Return the bytes of each buffer."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.buffer] = max(sizes.get(tensor.buffer, 0), tensor.arena_bytes)
    return sizes


def _lines_of(data: Array) -> list[str]:
    return byte_lines(np.ascontiguousarray(data).tobytes())


def network_source(file: TfliteFile, network: FirmwareNetwork, cases: Sequence[Case]) -> str:
    """Return ``network.c``: buffers, cases and the call."""
    entry = entry_point(network)
    inputs = _read_inputs(file, entry)
    outputs = _written_outputs(file, entry, _shared_buffers(file, network, inputs))
    accelerator = network.options.accelerator_config
    return render(
        "network.c.in",
        title=f"{file.path.name} on {accelerator}",
        module=MODULE_NAME,
        accelerator=accelerator_macro(accelerator),
        inputs=list(inputs.values()),
        outputs=outputs,
        buffers=_buffers((*inputs.values(), *outputs)),
        cases=[
            {
                "inputs": [_lines_of(case.inputs[place]) for place in inputs],
                "expected": [_lines_of(data) for data in case.expected],
            }
            for case in cases
        ],
    )


def write_project(
    file: TfliteFile, network: FirmwareNetwork, cases: Sequence[Case], directory: Path
) -> None:
    """Write a project that builds with make and arm-none-eabi-gcc; other files there stay.

    Raises:
        UserError: the directory cannot be written.
    """

    def fill(stage: Path) -> None:
        fill_firmware(network, stage)
        for folder, names in _FILES.items():
            (stage / folder).mkdir()
            for name in names:
                shutil.copy(_FIRMWARE / name, stage / folder)
        (stage / "app" / "network.c").write_text(network_source(file, network, cases))

    replace_folders(directory, ("src", "include", "npu", *_FILES), fill)
    settings = f"NETWORK_SRAM_BYTES := {network.sram.total_bytes}\n"
    write_text(directory / "network.mk", settings)
    write_text(directory / "Makefile", (_FIRMWARE / "corstone300" / "Makefile").read_text())
