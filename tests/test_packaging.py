"""The wheel holds what the tree holds, under one name, and the folders alone are no packages."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import tvm_ethosu
from tests.conftest import REPOSITORY
from tvm_ethosu.backend.demo_network import cache_folder

# Beside the package: Python reads it at its start.
HOOK = "tvm_ethosu.pth"
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
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, directory / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(REPOSITORY / name, directory / name, ignore=ignored)
    return directory


@dataclass(frozen=True, eq=False)
class Built:
    """A wheel, and the files that it was made from by their names in it."""

    wheel: zipfile.ZipFile
    sources: frozenset[str]

    @property
    def content(self) -> set[str]:
        ours = (name for name in self.wheel.namelist() if ".dist-info/" not in name)
        return {name for name in ours if name != HOOK}

    def metadata(self, name: str) -> str:
        (found,) = (path for path in self.wheel.namelist() if path.endswith(f".dist-info/{name}"))
        return self.wheel.read(found).decode()


def _shipped_files(source: Path) -> frozenset[str]:
    """Return the names in a wheel of all files; those of ``_root`` become the parent package."""
    files = (path for folder in FOLDERS for path in (source / folder).rglob("*") if path.is_file())
    names = (path.relative_to(source).as_posix() for path in files)
    return frozenset(f"tvm_ethosu/{name}".replace("backend/_root/", "") for name in names)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return the wheel of the working tree.

    pip makes it with the setuptools of this environment, or else fetches one that is new enough.
    """
    source = _copy_of_the_tree(tmp_path_factory.mktemp("source"))
    sources = _shipped_files(source)
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
    return Built(zipfile.ZipFile(path), sources)


def test_the_wheel_holds_every_file_of_the_tree_and_nothing_else(built: Built) -> None:
    assert built.content == built.sources
    for kind in ("/__init__.py", "/py.typed", ".c.in", "/driver.h"):
        assert any(name.endswith(kind) for name in built.content), kind


def test_every_folder_of_sources_is_a_package(built: Built) -> None:
    folders = {name.rpartition("/")[0] for name in built.sources if name.endswith(".py")}
    assert not [folder for folder in folders if f"{folder}/__init__.py" not in built.content]


def test_the_wheel_puts_one_name_at_the_top(built: Built) -> None:
    tops = {name.split("/")[0] for name in built.wheel.namelist()}
    assert tops == {"tvm_ethosu", f"tvm_ethosu-{tvm_ethosu.__version__}.dist-info", HOOK}


def test_the_hook_of_tvmc_is_in_the_wheel_and_in_this_environment(built: Built) -> None:
    line = built.wheel.read(HOOK).decode()
    assert "import tvm_ethosu.tvmc_hook" in line
    assert line.count("\n") == 1
    (found,) = (path for path in map(Path, site.getsitepackages()) if (path / HOOK).exists())
    assert (found / HOOK).read_text() == line


def test_the_line_of_the_hook_says_nothing_where_the_package_is_gone(built: Built) -> None:
    code = f"import sys; sys.modules['tvm_ethosu'] = None; {built.wheel.read(HOOK).decode()}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_wheel_states_licence_version_and_command(built: Built) -> None:
    metadata = built.metadata("METADATA")
    assert f"\nVersion: {tvm_ethosu.__version__}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nLicense-File: LICENSE\n" in metadata
    command = r"\[console_scripts\]\ntvm-ethosu = tvm_ethosu\.entry:main"
    assert re.search(command, built.metadata("entry_points.txt"))


@pytest.mark.slow
def test_the_machine_of_the_wheel_is_a_fixture_of_a_project_elsewhere(
    built: Built, tmp_path: Path, arm_gcc: str
) -> None:
    """The test that docs/firmware.md shows, in a folder that knows nothing of this repository."""
    network = cache_folder() / "image_classification.tflite"
    if not network.exists():
        pytest.skip("the page's network was not fetched: make demo")
    page = (REPOSITORY / "docs" / "firmware.md").read_text()
    (text,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    installed, project = tmp_path / "installed", tmp_path / "project"
    built.wheel.extractall(installed)
    project.mkdir()
    shutil.copy(network, project / "model.tflite")
    where = "import tvm_ethosu\n\n\ndef test_of_the_wheel():\n    print(tvm_ethosu.__file__)\n\n\n"
    (project / "test_mine.py").write_text(where + text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rP", "-W", "error::pytest.PytestWarning"],
        cwd=project, env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert str(installed / "tvm_ethosu" / "__init__.py") in done.stdout


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
