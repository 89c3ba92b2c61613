"""The wheel holds what the tree holds, under one name, and the folders alone are no packages."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tvm_ethosu
from tests.conftest import REPOSITORY

FOLDERS = ("backend", "partition", "scheduler")
# What pyproject.toml asks for: older ones do not know the short form of the licence.
NEEDED_SETUPTOOLS = 77


def _setuptools_is_new_enough() -> bool:
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    return int(version.split(".")[0]) >= NEEDED_SETUPTOOLS


def _copy_of_the_tree(directory: Path) -> Path:
    """Return a copy of what a wheel is made of: setuptools writes into the tree that it builds."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, directory / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, directory / name, ignore=ignored)
    return directory


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel of the working tree.

    pip makes it with the setuptools of this environment, or else fetches one that is new enough.
    """
    source = _copy_of_the_tree(tmp_path_factory.mktemp("source"))
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check"]
    if _setuptools_is_new_enough():
        command.append("--no-build-isolation")
    command += ["--wheel-dir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip(f"setuptools {NEEDED_SETUPTOOLS} is not installed, nor is an index reachable")
    assert done.returncode == 0, done.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def _shipped_files(folder: str) -> Iterator[Path]:
    """Yield the files of a top-level folder; those of ``_root`` become the parent package."""
    for path in (REPOSITORY / folder).rglob("*"):
        hidden = any(part.startswith((".", "__pycache__", "_root")) for part in path.parts)
        if path.is_file() and not hidden:
            yield path.relative_to(REPOSITORY)


def _metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (found,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(found).decode()


def test_the_wheel_holds_every_file_of_the_tree_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {f"tvm_ethosu/{path}" for folder in FOLDERS for path in _shipped_files(folder)}
    expected |= {"tvm_ethosu/__init__.py", "tvm_ethosu/py.typed"}
    actual = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert actual == expected
    assert any(name.endswith(".c.in") for name in actual)
    assert any(name.endswith("/driver.h") for name in actual)


def test_the_wheel_puts_one_name_at_the_top(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"tvm_ethosu", f"tvm_ethosu-{tvm_ethosu.__version__}.dist-info"}


def test_the_wheel_states_licence_version_and_command(wheel: zipfile.ZipFile) -> None:
    metadata = _metadata(wheel, "METADATA")
    assert f"\nVersion: {tvm_ethosu.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nLicense-File: LICENSE\n" in metadata
    command = r"\[console_scripts\]\ntvm-ethosu = tvm_ethosu\.backend\.cli:entry"
    assert re.search(command, _metadata(wheel, "entry_points.txt"))


def test_every_package_is_listed_for_setuptools(wheel: zipfile.ZipFile) -> None:
    folders = {path.parent for folder in FOLDERS for path in _shipped_files(folder)}
    packages = {folder for folder in folders if (REPOSITORY / folder / "__init__.py").exists()}
    with_sources = {
        path.parent for f in FOLDERS for path in _shipped_files(f) if path.suffix == ".py"
    }
    assert packages == with_sources, "a folder of sources has no __init__.py"
    for package in packages:
        assert f"tvm_ethosu/{package}/__init__.py" in wheel.namelist()


def test_the_installed_command_leads_to_a_function() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="tvm-ethosu")
    assert callable(command.load())
    assert importlib.metadata.version("tvm-ethosu") == tvm_ethosu.__version__


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imported_by_its_own_name_names_the_package(folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"ImportError: import tvm_ethosu.{folder}, not {folder}")
