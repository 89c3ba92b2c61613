"""Running jobs: on several processes, from the cache where possible, with progress."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tvm_ethosu.backend.bench.cache import Cache
from tvm_ethosu.backend.bench.chains import LENGTHS
from tvm_ethosu.backend.bench.jobs import (
    ChainJob,
    Job,
    OurJob,
    Result,
    TimeJob,
    VelaJob,
    from_json,
    key_of,
    run_job,
    to_json,
)
from tvm_ethosu.backend.bench.judge import budgets
from tvm_ethosu.backend.bench.results import (
    OWN_LEAST,
    UNLIMITED,
    Case,
    CaseResult,
    Chain,
    Point,
    Results,
)
from tvm_ethosu.backend.vela_files import Core

_SHARES = (75, 50, 25)
_MODES = ("Performance", "Size")
_OBJECTIVES = ("performance", "size")
_BUDGETS = 5
# Per case: modes and arena sizes of both cores; no limit, own least, and budgets.
_VELA_JOBS = len(Core) * (len(_MODES) + len(_SHARES))
_OUR_JOBS = 2 + _BUDGETS


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    models: tuple[Path, ...]
    accelerators: tuple[str, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """Return the networks on the accelerators."""
        return tuple(Case(m.stem, m, name) for name in self.accelerators for m in self.models)


def measure(plan: Plan, cache: Cache, workers: int, console: Console) -> Results:
    """Measure all of a plan; what is done is kept in the cache even if this is interrupted."""
    with _progress(console) as progress, _pool(workers) as pool:
        bench = _Bench(pool, cache, progress, len(plan.cases) * (_VELA_JOBS + _OUR_JOBS))
        vela = _measure_vela(bench, plan.cases)
        ours = _measure_ours(bench, plan.cases, vela)
        bench.begin("timing", len(plan.models) + len(LENGTHS) * len(_OBJECTIVES))
        seconds = _time_networks(bench, plan, ours)
        chains = _time_chains(bench)
    return Results(
        tuple(CaseResult(c, vela[c], ours[c], seconds.get(c)) for c in plan.cases), chains
    )


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield progress


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes for jobs; when this is interrupted they are ended, not waited for."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    pool.shutdown()


def _prepare_worker() -> None:
    # The parent ends its workers; a job that Ctrl-C broke must not look like one that failed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TVM_NUM_THREADS"] = "1"


class _Bench:
    """Runs jobs and remembers how far the whole benchmark is."""

    def __init__(self, pool: Executor, cache: Cache, progress: Progress, total: int) -> None:
        self._pool = pool
        self._cache = cache
        self._progress = progress
        self._task = progress.add_task("measuring", total=total)

    def begin(self, name: str, total: int) -> None:
        """Begin a bar of its own."""
        self._progress.update(self._task, visible=False)
        self._task = self._progress.add_task(name, total=total)

    def skip(self, jobs: int) -> None:
        """Count jobs that need not be done."""
        self._progress.advance(self._task, jobs)

    def points(self, jobs: Sequence[Job]) -> dict[Job, Point]:
        """Return the results of jobs that make points; several run at once."""
        found = {job: result for job, result in self._run(jobs) if isinstance(result, Point)}
        return {job: found[job] for job in jobs}

    def seconds(self, job: Job) -> float:
        """Return the time of a job, beside which nothing else of this benchmark runs."""
        ((_, result),) = self._run([job])
        assert isinstance(result, float)
        return result

    def _run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Result]]:
        waiting = {}
        for job in jobs:
            key = key_of(job)
            kept = self._cache.get(key)
            if kept is not None:
                self.skip(1)
                yield job, from_json(kept)
            else:
                waiting[self._pool.submit(run_job, job)] = job, key
        for future in as_completed(waiting):
            job, key = waiting[future]
            result = self._result(job, key, future)
            self.skip(1)
            yield job, result

    def _result(self, job: Job, key: str, future: Future[Result]) -> Result:
        """Return a job's result and keep it; what broke down becomes a point that is not kept."""
        try:
            result = future.result()
        except BrokenExecutor:
            raise  # a process died, and with it all that waits
        except Exception as error:
            if not isinstance(job, OurJob):
                raise
            lines = [line for line in str(error).splitlines() if line.strip()] or [""]
            complaint = f"{type(error).__name__}: {lines[-1].strip()}"
            return Point("ours", job.setting, job.limit_bytes, complaint=complaint)
        self._cache.put(key, to_json(result))
        return result


def _measure_vela(bench: _Bench, cases: Sequence[Case]) -> dict[Case, tuple[Point, ...]]:
    free = [VelaJob(case, core, mode) for case in cases for core in Core for mode in _MODES]
    found: dict[Job, Point] = bench.points(free)
    limited = [
        VelaJob(job.case, job.core, f"{share} %", point.sram_bytes * share // 100)
        for job in free
        if job.setting == "Performance"
        if (point := found[job]).sram_bytes is not None
        for share in _SHARES
    ]
    bench.skip(len(cases) * len(Core) * len(_SHARES) - len(limited))
    found |= bench.points(limited)
    return {
        case: tuple(point for job, point in found.items() if _case(job) == case) for case in cases
    }


def _measure_ours(
    bench: _Bench, cases: Sequence[Case], vela: dict[Case, tuple[Point, ...]]
) -> dict[Case, tuple[Point, ...]]:
    free = [OurJob(case, UNLIMITED) for case in cases]
    found: dict[Job, Point] = bench.points(free)
    # What is refused without a limit is refused at any.
    taken = [job.case for job in free if found[job].is_measured]
    rest = [OurJob(case, OWN_LEAST) for case in taken]
    for case in taken:
        rest += [OurJob(case, name, size) for name, size in budgets(vela[case]).items()]
    bench.skip(len(cases) * (_OUR_JOBS - 1) - len(rest))
    found |= bench.points(rest)
    return {
        case: tuple(point for job, point in found.items() if _case(job) == case) for case in cases
    }


def _case(job: Job) -> Case | None:
    return None if isinstance(job, ChainJob) else job.case


def _time_networks(
    bench: _Bench, plan: Plan, ours: dict[Case, tuple[Point, ...]]
) -> dict[Case, float]:
    """Time the compilation for the first accelerator, at the budget amid Vela's two ends."""
    seconds = {}
    for case in plan.cases[: len(plan.models)]:
        limits = sorted(p.limit_bytes for p in ours[case] if p.is_measured and p.limit_bytes)
        arguments = ("--sram-size", str(limits[len(limits) // 2])) if limits else ()
        if any(point.is_measured for point in ours[case]):
            seconds[case] = bench.seconds(TimeJob(case, arguments))
        else:
            bench.skip(1)
    return seconds


def _time_chains(bench: _Bench) -> tuple[Chain, ...]:
    return tuple(
        Chain(operators, optimise, bench.seconds(ChainJob(operators, optimise)))
        for optimise in _OBJECTIVES
        for operators in LENGTHS
    )
