"""Writing results so that a failure leaves nothing half-written behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tvm_ethosu import interrupts
from tvm_ethosu.backend.network import MODULE_NAME, FirmwareNetwork
from tvm_ethosu.backend.program import to_bytes
from tvm_ethosu.scheduler.errors import UserError

INCLUDE_DIR = Path(__file__).parent / "firmware" / "include"
DRIVER_DIR = Path(__file__).parent / "firmware" / "src"


STDOUT = Path("-")


def check_ending(option: str, path: Path, known: Sequence[str]) -> None:
    """Check the name of a file to write, before any work is done for it.

    Raises:
        UserError: it ends in none of ``known``, given in lower case with the dot.
    """
    if path.suffix.lower() not in known:
        expected = ", ".join(known)
        raise UserError(f"{option}: unknown ending (got '{path.suffix}', known: {expected})")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, in the folder of ``path``; at the end it becomes ``path``.

    So a file is written whole or not at all, even when the program is interrupted. The path
    yielded ends as ``path`` does, and folders above are made.

    Raises:
        UserError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _stage(path) as stage:
            partial = stage / path.name
            yield partial
            with interrupts.held():
                os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error


@contextlib.contextmanager
def _stage(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``path``, which is gone at the end."""
    stage = None
    try:
        with interrupts.held():
            stage = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        with interrupts.unfinished(str(stage)):
            yield stage
    finally:
        if stage is not None:
            with interrupts.held():
                shutil.rmtree(stage, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Write data as JSON, to stdout for ``-``, else to a file, whole or not at all."""
    text = json.dumps(data, indent=2) + "\n"
    if path == STDOUT:
        interrupts.check()
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text(path, text)


def interface_header(source: str) -> str:
    """Return the header that TVM's entry point includes, made from the entry point itself.

    ``source`` holds ``tvmgen_<name>_run``, which reads the members of its inputs and outputs.
    """
    prefix = f"tvmgen_{MODULE_NAME}"

    def members(of: str) -> str:
        names = dict.fromkeys(re.findall(rf"\b{of}->(\w+)", source))
        return "\n".join(f"  void* {name};" for name in names)

    workspace = re.search(r"global_workspace\[(\d+)\]", source)
    size = workspace[1] if workspace else "0"
    guard = f"{prefix.upper()}_H_"
    return f"""#ifndef {guard}
#define {guard}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Bytes of SRAM for tensors and scratch, inputs and outputs apart. */
#define {prefix.upper()}_WORKSPACE_SIZE {size}

struct {prefix}_inputs {{
{members("inputs")}
}};

struct {prefix}_outputs {{
{members("outputs")}
}};

/* Run the network once; returns 0 when all went well. All pointers must be multiples of 16. */
int32_t {prefix}_run(struct {prefix}_inputs* inputs, struct {prefix}_outputs* outputs);

#ifdef __cplusplus
}}
#endif

#endif
"""


_NPU_FUNCTION = re.compile(rf"^int32_t (tvmgen_{MODULE_NAME}_ethos_u_\w+)\(void\*", re.MULTILINE)


def c_sources(factory: Any) -> dict[str, str]:
    """Return the C files of TVM's factory: entry point, CPU operators, one per NPU function."""
    library = factory.lib
    files: dict[str, str] = {}
    for index, module in enumerate([library, *library.imported_modules]):
        source = module.get_source() if module.type_key == "c" else ""
        if source.strip(" ;\n"):
            npu = _NPU_FUNCTION.search(source)
            files[f"{npu[1] if npu else f'lib{index}'}.c"] = source
    return files


def entry_point(network: FirmwareNetwork) -> str:
    """Return the C source that holds the network's run function."""
    sources = c_sources(network.factory).values()
    return next(text for text in sources if f"tvmgen_{MODULE_NAME}_run(" in text)


def fill_firmware(network: FirmwareNetwork, stage: Path) -> tuple[str, ...]:
    """Write ``src``, ``include`` and ``npu`` into an empty folder, return the C files' names."""
    sources = c_sources(network.factory)
    shutil.copytree(INCLUDE_DIR, stage / "include")
    header = interface_header(entry_point(network))
    (stage / "include" / f"tvmgen_{MODULE_NAME}.h").write_text(header)
    (stage / "src").mkdir()
    for name, text in sources.items():
        (stage / "src" / name).write_text(text)
    (stage / "npu").mkdir()
    for function in network.functions:
        (stage / "npu" / f"{function.name}.npu").write_bytes(to_bytes(function.program))
    return tuple(sources)


def replace_folders(directory: Path, folders: Sequence[str], fill: Callable[[Path], None]) -> None:
    """Replace folders below a directory by what ``fill`` writes into an empty one.

    Raises:
        UserError: the directory cannot be written.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _stage(directory) as stage:
            fill(stage)
            with interrupts.held():
                directory.mkdir(exist_ok=True)
                for part in folders:
                    shutil.rmtree(directory / part, ignore_errors=True)
                    os.replace(stage / part, directory / part)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written ({error.strerror})") from error


def write_firmware(network: FirmwareNetwork, directory: Path) -> tuple[Path, ...]:
    """Write ``src``, ``include`` and ``npu`` below a directory and return the C files.

    ``npu`` is for ``tvm-ethosu simulate`` and ``disassemble``: each NPU function's program.

    Raises:
        UserError: the directory cannot be written.
    """
    names: list[str] = []
    replace_folders(
        directory,
        ("src", "include", "npu"),
        lambda stage: names.extend(fill_firmware(network, stage)),
    )
    return tuple(directory / "src" / name for name in names)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as stage:
            partial = Path(stage) / path.name
            partial.write_bytes(data)
            os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
