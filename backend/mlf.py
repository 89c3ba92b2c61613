"""A build for firmware as one archive, in TVM's Model Library Format (version 7).

TVM 0.19 has no exporter any more; the layout is kept, so that tools which read such archives
go on working: ``metadata.json``, ``codegen/host``, ``src`` and ``runtime`` with the NPU's driver.
"""

from __future__ import annotations

import datetime
import json
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tvm import relay

from tvm_ethosu.backend.network import MODULE_NAME
from tvm_ethosu.backend.outputs import (
    DRIVER_DIR,
    INCLUDE_DIR,
    c_sources,
    interface_header,
    whole_file,
)
from tvm_ethosu.backend.sram import planned_sram
from tvm_ethosu.scheduler.errors import UserError

FORMAT_VERSION = 7


# DLPack's number for memory of the CPU, in which all targets of such a build are.
_CPU = 1
_CONSTANTS = re.compile(r"^static const uint8_t \w+_constants\[(\d+)\]", re.MULTILINE)


def _functions(factory: Any, sources: Iterable[str]) -> dict[str, Any]:
    """Return the bytes of the network: the arena as ``compile`` reports it, and NPU constants.

    TVM's own numbers for inputs and outputs are other ones: they count scratch memory too.
    """
    typed = relay.transform.InferType()(factory.ir_mod)
    sram = planned_sram(factory.executor_codegen_metadata, typed)
    constants = sum(int(size) for text in sources for size in _CONSTANTS.findall(text))
    main = {
        "device": _CPU,
        "workspace_size_bytes": sram.pool_bytes,
        "constants_size_bytes": constants,
        "io_size_bytes": sram.io_bytes,
    }
    operators = [
        {
            "function_name": str(name),
            "workspace": [
                {"device": _CPU, "workspace_size_bytes": int(size)}
                for size in info.workspace_sizes.values()
            ],
        }
        for name, info in factory.function_metadata.items()
        if name != "__tvm_main__"
    ]
    return {"main": [main], "operator_functions": operators}


def _metadata(factory: Any, sources: Iterable[str]) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.timezone.utc)
    module = {
        "model_name": MODULE_NAME,
        "export_datetime": now.strftime("%Y-%m-%d %H:%M:%SZ"),
        "memory": {"functions": _functions(factory, sources)},
        "target": [str(target) for target in factory.target],
        "executors": ["aot"],
        "style": "full-model",
        "external_dependencies": [],
    }
    return {"version": FORMAT_VERSION, "modules": {MODULE_NAME: module}}


def _fill(stage: Path, factory: Any) -> None:
    sources = c_sources(factory)
    entry = [text for text in sources.values() if f"tvmgen_{MODULE_NAME}_run(" in text]
    if factory.libmod_name != MODULE_NAME or not entry:
        raise UserError(
            "mlf: needs the AOT executor with the C interface and the unpacked API, the runtime "
            f"crt and the module name {MODULE_NAME} (got '{factory.libmod_name}', "
            f"{len(sources)} C sources, {len(entry)} entry points); with tvmc: --executor=aot "
            "--executor-aot-interface-api=c --executor-aot-unpacked-api=1 --runtime=crt"
        )
    files = {f"codegen/host/src/{name}": text for name, text in sources.items()}
    files[f"codegen/host/include/tvmgen_{MODULE_NAME}.h"] = interface_header(entry[0])
    files[f"src/{MODULE_NAME}.relay"] = str(factory.ir_mod)
    files["metadata.json"] = json.dumps(_metadata(factory, sources.values()), indent=2) + "\n"
    for header in INCLUDE_DIR.rglob("*.h"):
        files[f"runtime/include/{header.relative_to(INCLUDE_DIR).as_posix()}"] = header.read_text()
    for file in sorted(DRIVER_DIR.iterdir()):
        files[f"runtime/src/{file.name}"] = file.read_text()
    for name, text in files.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text(text)


def is_mlf(path: Path) -> bool:
    """Return whether a file is an archive that ``write_mlf`` could have written."""
    if not tarfile.is_tarfile(path):
        return False
    with tarfile.open(path) as archive:
        return "./metadata.json" in archive.getnames()


def write_mlf(factory: Any, path: Path) -> Path:
    """Write what ``relay.build`` returned as a tar archive, whole or not at all.

    Args:
        factory: TVM's AOT factory, built to C with the unpacked API.
        path: the archive; folders above it are made.

    Raises:
        UserError: the build is of another kind, or the archive cannot be written.
    """
    with whole_file(path) as partial:
        tree = partial.parent / "tree"
        _fill(tree, factory)
        with tarfile.open(partial, "w") as archive:
            archive.add(tree, arcname=".")
    return path
