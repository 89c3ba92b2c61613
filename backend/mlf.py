"""A build for firmware as one archive, in TVM's Model Library Format (version 7).

TVM 0.19 has no exporter any more; the layout is kept, so that tools which read such archives
go on working: ``metadata.json``, ``codegen/host``, ``src`` and ``runtime``.
"""

from __future__ import annotations

import datetime
import json
import tarfile
from pathlib import Path
from typing import Any

from tvm_ethosu.backend.network import MODULE_NAME
from tvm_ethosu.backend.outputs import INCLUDE_DIR, c_sources, interface_header, whole_file
from tvm_ethosu.scheduler.errors import UserError

FORMAT_VERSION = 7


def _memory(factory: Any) -> list[dict[str, Any]]:
    """Return the bytes of the whole network per target, as TVM counted them."""
    info = factory.function_metadata["__tvm_main__"]
    return [
        {
            "target": str(target),
            "workspace_size_bytes": int(size),
            "constants_size_bytes": int(info.constant_sizes.get(target, 0)),
        }
        for target, size in info.workspace_sizes.items()
    ]


def _metadata(factory: Any) -> dict[str, Any]:
    memory, now = _memory(factory), datetime.datetime.now(datetime.timezone.utc)
    module = {
        "model_name": MODULE_NAME,
        "export_datetime": now.strftime("%Y-%m-%d %H:%M:%SZ"),
        "memory": {"functions": {"main": memory}},
        "target": [row["target"] for row in memory],
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
    files["metadata.json"] = json.dumps(_metadata(factory), indent=2) + "\n"
    for header in INCLUDE_DIR.rglob("*.h"):
        files[f"runtime/include/{header.relative_to(INCLUDE_DIR).as_posix()}"] = header.read_text()
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
