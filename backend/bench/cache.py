"""Results kept by content: a run that was interrupted, or a second one, need not measure again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tvm_ethosu.backend.outputs import write_json


def digest(parts: Iterable[bytes | str]) -> str:
    """Return the SHA-256 of these parts; it depends on where one ends and the next begins."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return the SHA-256 of files' names and contents, in the order of their paths."""
    return digest(part for path in sorted(paths) for part in (path.name, path.read_bytes()))


class Cache:
    """JSON documents in a folder, each under the digest of all that it depends on."""

    def __init__(self, folder: Path, *, reads: bool = True) -> None:
        """Keep documents in ``folder``; without ``reads`` nothing is found, but all is kept."""
        self._folder = folder
        self._reads = reads

    def get(self, key: str) -> Any | None:
        """Return what is kept under a key; None if there is nothing, or it cannot be read."""
        if not self._reads:
            return None
        try:
            return json.loads(self._path(key).read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
            return None

    def put(self, key: str, document: Any) -> None:
        """Keep a document, whole or not at all."""
        write_json(self._path(key), document)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
