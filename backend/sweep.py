"""Many compilations at once: networks on accelerators within sizes of SRAM, each one a row.

Jobs run through joblib: in processes of this machine, or on a cluster through joblib's own backend
for it. A job carries the network itself, so that a worker needs none of the files here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from tvm_ethosu.backend.bench.cache import Cache, digest
from tvm_ethosu.backend.bench.jobs import our_sources
from tvm_ethosu.backend.outcome import Outcome, compile_within, outcome_of
from tvm_ethosu.partition.options import EthosUOptions, parse_size
from tvm_ethosu.partition.tflite_file import parse_tflite
from tvm_ethosu.scheduler.arch import ALIGN_BYTES
from tvm_ethosu.scheduler.errors import EthosUError, Infeasible, InternalError, UserError
from tvm_ethosu.scheduler.integers import round_up


class Status(Enum):
    """How a combination ended; the value is the word for it in the table."""

    FITS = "fits"
    TOO_SMALL = "too small"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Row:
    """One combination; figures are those of ``Outcome``, None where there are none.

    ``needed_bytes`` is the least SRAM that works, known where less was asked for. ``reason`` says
    why there are no figures.
    """

    model: str
    accelerator: str
    sram_size: int
    status: Status
    sram_bytes: int | None = None
    needed_bytes: int | None = None
    cycles: float | None = None
    milliseconds: float | None = None
    macs: int | None = None
    mac_utilisation: float | None = None
    constants_bytes: int | None = None
    command_stream_bytes: int | None = None
    npu_operators: int | None = None
    cpu_operators: int | None = None
    cascades: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """One compilation; ``options`` without a size ask for the least SRAM."""

    model: str
    data: bytes
    options: EthosUOptions

    @property
    def key(self) -> str:
        """Return the digest of all that the result depends on."""
        options = (str(value) for value in astuple(self.options))
        return digest(["sweep", our_sources(), _versions(), self.data, *options])


def _versions() -> str:
    from importlib.metadata import version

    packages = ("ethos-u-vela", "numpy", "xtc-tvm-python-bindings")
    return ", ".join(f"{name} {version(name)}" for name in packages)


@dataclass(frozen=True)
class Found:
    """What a job came to: an outcome, or why there is none."""

    outcome: Outcome | None
    status: Status
    reason: str = ""


# --- what is asked for --------------------------------------------------------------------------


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of a list such as ``32K,48K`` or ranges such as ``32K:1M``, ascending.

    A range doubles from its first size up to its last one, which always belongs to it.
    ``32K:1M:9`` has nine sizes that grow by equal factors, each a multiple of 16 bytes.

    Raises:
        UserError: it is neither.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) == 1:
            sizes.add(parse_size(part))
        else:
            sizes |= set(_range(part, ends))
    return tuple(sorted(sizes))


def _range(text: str, ends: Sequence[str]) -> Iterator[int]:
    if len(ends) > 3 or (len(ends) == 3 and not re.fullmatch(r"[1-9]\d{0,3}", ends[2].strip())):
        raise UserError(f"sizes: not a range (got '{text}', write 32K:1M or 32K:1M:9)")
    first, last = parse_size(ends[0]), parse_size(ends[1])
    if first > last:
        raise UserError(f"sizes: the range begins above its end (got {first}, limit {last})")
    if len(ends) == 3:
        count = int(ends[2])
        for at in range(count):
            share = at / (count - 1) if count > 1 else 1.0
            yield min(last, round_up(int(first * (last / first) ** share), ALIGN_BYTES))
        return
    while first < last:
        yield first
        first *= 2
    yield last


def jobs_of(
    models: Sequence[tuple[str, bytes]], options: Sequence[EthosUOptions], sizes: Sequence[int]
) -> tuple[Job, ...]:
    """Return all combinations: networks, then accelerators, then sizes."""
    return tuple(
        Job(name, data, replace(each, sram_size=size))
        for name, data in models
        for each in options
        for size in sizes
    )


def least_of(job: Job) -> Job:
    """Return the job that finds the least SRAM for a network on the same accelerator."""
    return replace(job, options=replace(job.options, sram_size=None, optimise="size"))


def require_joblib() -> None:
    """Check that jobs can be run.

    Raises:
        UserError: joblib is not installed.
    """
    if importlib.util.find_spec("joblib") is None:
        raise UserError(
            "sweep: the package 'joblib' is not installed; pip install 'tvm-ethosu[sweep]'"
        )


# --- doing it -----------------------------------------------------------------------------------


def do(job: Job) -> Found:
    """Compile; what the input is to blame for, and what we are, is a result like any other."""
    try:
        file = parse_tflite(job.data, Path(job.model))
        return Found(outcome_of(compile_within(file, job.options)), Status.FITS)
    except Infeasible as error:
        return Found(None, Status.TOO_SMALL, str(error))
    except InternalError as error:
        return Found(None, Status.FAILED, str(error))
    except EthosUError as error:
        return Found(None, Status.REFUSED, str(error))


def _do_numbered(number: int, job: Job, parent: int) -> tuple[int, Found]:
    """Do a job, perhaps in another process than ``parent``; return its number as well."""
    if os.getpid() != parent and threading.current_thread() is threading.main_thread():
        # Ctrl-C reaches all processes of a terminal; the parent is the one to act on it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return number, do(job)


class Sweep:
    """Does jobs, remembers their results by content, and makes rows of them."""

    def __init__(
        self, jobs: Sequence[Job], cache: Cache, workers: int, cluster: str | None
    ) -> None:
        self.jobs = jobs
        self.cache = cache
        self.workers = workers
        self.cluster = cluster
        self.found: dict[Job, Found] = {}

    def missing(self) -> tuple[Job, ...]:
        """Return the jobs that are left to do, with those that say how much SRAM is needed.

        The latter are known when all others are done.
        """
        first = self._unknown(self.jobs)
        small = [job for job in self.jobs if self._status(job) is Status.TOO_SMALL]
        return first or self._unknown(tuple(dict.fromkeys(map(least_of, small))))

    def _status(self, job: Job) -> Status | None:
        return self.found[job].status if job in self.found else None

    def _unknown(self, jobs: Sequence[Job]) -> tuple[Job, ...]:
        unknown = []
        for job in jobs:
            document = None if job in self.found else self.cache.get(job.key)
            if document is not None:
                self.found[job] = _from_json(document)
            elif job not in self.found:
                unknown.append(job)
        return tuple(unknown)

    def run(self, jobs: Sequence[Job]) -> Iterator[Job]:
        """Do jobs and yield each when it is done and kept; interrupted, the workers are ended.

        Raises:
            UserError: the cluster cannot be reached.
            InternalError: a worker broke down.
        """
        from joblib import Parallel, delayed

        with _backend(self.cluster), _workers_ended(self.cluster):
            parallel = Parallel(self.workers, return_as="generator_unordered", batch_size=1)
            calls = (delayed(_do_numbered)(n, job, os.getpid()) for n, job in enumerate(jobs))
            for number, found in parallel(calls):
                job = jobs[number]
                self.found[job] = found
                if found.status is not Status.FAILED:
                    self.cache.put(job.key, _to_json(found))
                yield job

    def rows(self) -> tuple[Row, ...]:
        """Return the rows of all jobs that are done, in the order of the jobs."""
        return tuple(_row(job, self.found) for job in self.jobs if job in self.found)


def _backend(cluster: str | None) -> AbstractContextManager[None]:
    """Return where jobs run while it is entered: processes of this machine, or a Dask cluster."""
    return _here() if cluster is None else _on_cluster(_client(cluster))


def _client(cluster: str) -> Any:
    try:
        from distributed import Client

        return Client(cluster, timeout=10, set_as_default=True)
    except ImportError:
        raise UserError(
            "--cluster: the package 'distributed' is not installed; pip install distributed"
        ) from None
    except (OSError, TimeoutError, ValueError) as error:
        raise UserError(f"--cluster: {cluster} cannot be reached ({error})") from None


@contextmanager
def _here() -> Iterator[None]:
    from joblib import parallel_config

    with parallel_config("loky", inner_max_num_threads=1):
        yield


@contextmanager
def _on_cluster(client: Any) -> Iterator[None]:
    from joblib import parallel_config

    with client, parallel_config("dask", wait_for_workers_timeout=10):
        yield


@contextmanager
def _workers_ended(cluster: str | None) -> Iterator[None]:
    """End this machine's workers when something goes wrong: they would finish what they do."""
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    try:
        yield
    except BrokenProcessPool as error:
        raise InternalError(
            f"a worker broke down ({error}); what is done is kept, --workers 1 takes least memory"
        ) from None
    except BaseException:
        if cluster is None:
            get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


# --- results ------------------------------------------------------------------------------------


def _to_json(found: Found) -> dict[str, Any]:
    return asdict(found) | {"status": found.status.value}


def _from_json(document: Mapping[str, Any]) -> Found:
    outcome = document["outcome"]
    return Found(
        None if outcome is None else Outcome(**outcome),
        Status(document["status"]),
        document["reason"],
    )


def _row(job: Job, found: Mapping[Job, Found]) -> Row:
    own = found[job]
    size_bytes = job.options.sram_size
    assert size_bytes is not None
    row = Row(job.model, job.options.accelerator_config, size_bytes, own.status, reason=own.reason)
    if own.outcome is None:
        least = found.get(least_of(job))
        if own.status is Status.TOO_SMALL and least is not None and least.outcome is not None:
            row = replace(row, needed_bytes=least.outcome.sram_bytes)
        return row
    figures = asdict(own.outcome)
    names = set(figures) & set(asdict(row)) - {"accelerator", "sram_size"}
    return replace(row, **{name: figures[name] for name in names})


def to_csv(rows: Iterable[Row]) -> str:
    """Return rows as CSV with a head; what is unknown is empty."""
    import csv
    import io

    text = io.StringIO()
    names = list(Row.__dataclass_fields__)
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(row_json(row))
    return text.getvalue()


def row_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON data."""
    return asdict(row) | {"status": row.status.value}
