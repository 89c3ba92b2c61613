"""The pieces of work of a benchmark: what each depends on, and how its result is kept."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from tvm_ethosu.backend.bench.cache import digest, digest_of_files
from tvm_ethosu.backend.bench.measure_ours import measure_ours
from tvm_ethosu.backend.bench.measure_vela import measure_vela
from tvm_ethosu.backend.bench.results import TIME_LIMIT_SECONDS, Case, Point
from tvm_ethosu.backend.vela_files import Core
from tvm_ethosu.scheduler.errors import InternalError

_ROOT = Path(__file__).resolve().parents[2]
_BENCH = Path(__file__).resolve().parent
_TIMED = "from tvm_ethosu.entry import main; main()"


@dataclass(frozen=True)
class VelaJob:
    """Compile a case with Vela."""

    case: Case
    core: Core
    setting: str
    arena_bytes: int | None = None


@dataclass(frozen=True)
class OurJob:
    """Compile a case with this project."""

    case: Case
    setting: str
    limit_bytes: int | None = None


@dataclass(frozen=True)
class TimeJob:
    """Time a whole process of ``tvm-ethosu compile``."""

    case: Case
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class ChainJob:
    """Time a whole process that compiles a chain."""

    operators: int
    optimise: str


Job: TypeAlias = VelaJob | OurJob | TimeJob | ChainJob
Result: TypeAlias = Point | float


@lru_cache
def our_sources() -> str:
    """Return the digest of all that decides what we compile and measure; pages do not."""
    files = [
        path
        for folder in ("scheduler", "partition", "backend")
        for path in (_ROOT / folder).rglob("*")
        if path.suffix in (".py", ".in") and path.parent != _BENCH
    ]
    return digest_of_files([*files, *_BENCH.glob("measure_*.py"), _BENCH / "chains.py"])


@lru_cache
def _judging_sources() -> str:
    """Return the digest of what judges Vela's streams."""
    files = [*(_ROOT / "backend/sim").glob("*.py"), _ROOT / "backend/vela_files.py"]
    return digest_of_files([*files, _BENCH / "measure_vela.py"])


def key_of(job: Job) -> str:
    """Return the digest of all that a job's result depends on."""
    packages = ["ethos-u-vela", "numpy", "tflite-micro"]
    parts: list[bytes | str] = [type(job).__name__]
    if isinstance(job, VelaJob):
        parts += [_judging_sources(), job.core.value, job.setting, str(job.arena_bytes)]
    else:
        packages.append("xtc-tvm-python-bindings")
        parts.append(our_sources())
    if isinstance(job, OurJob):
        parts += [job.setting, str(job.limit_bytes)]
    elif isinstance(job, TimeJob):
        parts += job.arguments
    elif isinstance(job, ChainJob):
        parts += [str(job.operators), job.optimise]
    if not isinstance(job, ChainJob):
        parts += [job.case.model.read_bytes(), job.case.accelerator]
    return digest([*parts, *(f"{name} {version(name)}" for name in packages)])


def run_job(job: Job) -> Result:
    """Do a job."""
    match job:
        case VelaJob():
            return measure_vela(job.case, job.core, job.setting, job.arena_bytes)
        case OurJob():
            return measure_ours(job.case, job.setting, job.limit_bytes)
        case TimeJob():
            return _time_compile(job)
        case ChainJob():
            module = "tvm_ethosu.backend.bench.chains"
            return _seconds(["-m", module, str(job.operators), job.optimise])


def _time_compile(job: TimeJob) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _seconds(
            [
                *("-c", _TIMED, "compile", str(job.case.model), "-o", f"{folder}/out"),
                *("--accelerator", job.case.accelerator, *job.arguments),
                *("--memory-mode", job.case.memory_mode.value),
                "--share-io",
            ]
        )


def _seconds(arguments: Sequence[str]) -> float:
    """Return how long Python takes to run these arguments; infinite beyond the time limit."""
    command = [sys.executable, *arguments]
    limit = TIME_LIMIT_SECONDS
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return math.inf
    seconds = time.perf_counter() - start
    if done.returncode:
        raise InternalError(f"{' '.join(arguments)}: failed: {done.stderr.strip()[-400:]}")
    return seconds


def to_json(result: Result) -> Any:
    """Return a result as JSON data."""
    return asdict(result) if isinstance(result, Point) else result


def from_json(document: Any) -> Result:
    """Return the result that ``to_json`` made a document of."""
    return Point(**document) if isinstance(document, dict) else float(document)
