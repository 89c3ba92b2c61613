"""Imports point one way: backend -> partition -> scheduler; read from the sources, with no tool.

``make layers`` checks the same with import-linter. This test needs nothing installed, also sees
imports inside of functions, and holds the rules for third-party packages.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

FOLDERS = ("backend", "partition", "scheduler")


@dataclass(frozen=True)
class Import:
    """One imported module: in which file and line, by which full name."""

    path: str
    line: int
    module: str

    def is_of(self, *packages: str) -> bool:
        return any(f"{self.module}.".startswith(f"{package}.") for package in packages)

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        # "from package import module" names the module as well.
        return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _imports(path: Path) -> Iterator[Import]:
    name = path.relative_to(REPOSITORY).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for module in _modules(node):
            yield Import(name, getattr(node, "lineno", 0), module)


IMPORTS = tuple(
    found
    for folder in FOLDERS
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
    for found in _imports(path)
)


def _from(*folders: str) -> list[Import]:
    return [i for i in IMPORTS if any(i.path.startswith(f"{folder}/") for folder in folders)]


def _complaints(imports: list[Import]) -> str:
    return "\n".join(map(str, imports))


def test_there_is_something_to_check() -> None:
    assert all(_from(folder) for folder in (*FOLDERS, "backend/sim", "partition/relay"))


@pytest.mark.parametrize(
    ("folder", "above"),
    [
        ("scheduler", ("tvm_ethosu.partition", "tvm_ethosu.backend")),
        ("partition", ("tvm_ethosu.backend",)),
    ],
)
def test_no_package_imports_one_above_it(folder: str, above: tuple[str, ...]) -> None:
    assert not (bad := [i for i in _from(folder) if i.is_of(*above)]), _complaints(bad)


def test_the_scheduler_needs_python_and_numpy_only() -> None:
    allowed = (*sys.stdlib_module_names, "numpy", "tvm_ethosu.scheduler")
    bad = [i for i in _from("scheduler") if not i.is_of(*allowed)]
    assert not bad, _complaints(bad)


def test_the_simulator_knows_nothing_of_what_it_judges() -> None:
    allowed = (*sys.stdlib_module_names, "numpy", "ethosu.mlw_codec", "tvm_ethosu.backend.sim")
    bad = [i for i in _from("backend/sim") if not i.is_of(*allowed) and i.module != "ethosu"]
    assert not bad, _complaints(bad)


def test_vela_is_imported_where_it_is_wrapped_only() -> None:
    wrappers = ("backend/vela.py", "backend/vela_files.py")
    bad = [i for i in IMPORTS if i.is_of("ethosu.vela") and i.path not in wrappers]
    assert not bad, _complaints(bad)


def test_frontends_stay_out_of_what_is_common_to_them() -> None:
    """Parameters, constraints and lowering are plain numbers; only the table names TVM's types."""
    table = ("partition/__init__.py", "partition/rules.py", "partition/operator_docs.py")
    common = [i for i in _from("partition") if not i.path.startswith("partition/relay/")]
    bad = [
        i for i in common if i.is_of("tvm", "tvm_ethosu.partition.relay") and i.path not in table
    ]
    assert not bad, _complaints(bad)


def test_folders_are_imported_by_the_packages_name() -> None:
    bad = [i for i in IMPORTS if i.is_of(*FOLDERS)]
    assert not bad, _complaints(bad)


def test_the_scheduler_loads_without_tvm_and_vela() -> None:
    program = (
        "import importlib, pkgutil, sys\n"
        "import tvm_ethosu.scheduler as scheduler\n"
        "for module in pkgutil.iter_modules(scheduler.__path__, 'tvm_ethosu.scheduler.'):\n"
        "    importlib.import_module(module.name)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'tvm', 'ethosu'}))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
