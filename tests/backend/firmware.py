"""Runs generated C on this host: gcc builds a library, the driver calls back into the simulator."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_ethosu.backend import sim

_DRIVER = Path(__file__).with_name("firmware_host.c")
_ACCELERATORS = {
    0x00000020: sim.Accelerator.U55_32,
    0x00000040: sim.Accelerator.U55_64,
    0x00000080: sim.Accelerator.U55_128,
    0x00000100: sim.Accelerator.U55_256,
    0x00010100: sim.Accelerator.U65_256,
    0x00010200: sim.Accelerator.U65_512,
}


class CRegion(ctypes.Structure):
    """``tvm_ethosu_region_t`` of the driver interface."""

    _fields_ = (
        ("region", ctypes.c_uint32),
        ("size_bytes", ctypes.c_size_t),
        ("address", ctypes.c_void_p),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_size_t,
    ctypes.POINTER(CRegion),
    ctypes.c_size_t,
)


def build_library(directory: Path, gcc: str) -> Path:
    """Compile everything below ``directory/src`` with the test's driver; warnings are errors."""
    library = directory / "network.so"
    sources = sorted(str(path) for path in (directory / "src").glob("*.c"))
    flags = ["-O1", "-fPIC", "-shared", "-Wall", "-Werror", "-Wno-unused-variable"]
    include = ["-I", str(directory / "include")]
    command = [gcc, *flags, *include, *sources, str(_DRIVER), "-o", str(library), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def _simulate(
    accelerator: int, stream: Any, stream_bytes: int, regions: Any, region_count: int
) -> int:
    words = np.ctypeslib.as_array(stream, (stream_bytes // 4,)).copy()
    memory = {}
    for index in range(region_count):
        region = regions[index]
        if region.size_bytes == 0:
            memory[region.region] = sim.Region(np.zeros(0, np.uint8))
            continue
        assert region.address % 16 == 0
        pointer = ctypes.cast(region.address, ctypes.POINTER(ctypes.c_uint8))
        memory[region.region] = sim.Region(np.ctypeslib.as_array(pointer, (region.size_bytes,)))
    sim.run(sim.decode(words, _ACCELERATORS[accelerator]), memory)
    return 0


def _aligned(size_bytes: int) -> npt.NDArray[np.uint8]:
    storage = np.zeros(size_bytes + 16, np.uint8)
    start = -storage.ctypes.data % 16
    return storage[start : start + size_bytes]


def run_library(
    library: Path, inputs: Sequence[npt.NDArray[Any]], output_bytes: Sequence[int]
) -> tuple[int, list[npt.NDArray[np.uint8]]]:
    """Run ``tvmgen_default_run`` once and return its status and the outputs' bytes."""
    loaded = ctypes.CDLL(str(library))
    callback = _CALLBACK(_simulate)
    loaded.set_invoke_callback(callback)
    given = [_aligned(data.nbytes) for data in inputs]
    for memory, data in zip(given, inputs, strict=True):
        memory[:] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    outputs = [_aligned(size) for size in output_bytes]
    in_struct = (ctypes.c_void_p * len(given))(*(memory.ctypes.data for memory in given))
    out_struct = (ctypes.c_void_p * len(outputs))(*(memory.ctypes.data for memory in outputs))
    status = loaded.tvmgen_default_run(ctypes.byref(in_struct), ctypes.byref(out_struct))
    return int(status), outputs
