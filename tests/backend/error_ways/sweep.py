"""What can go wrong with many compilations."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from tests.backend.error_ways.desk import Desk, Way, cli, given, twin
from tvm_ethosu.backend.sweep import Found, Job, Status, Sweep


def _sweep(prepare: Callable[[Desk], object], *options: str, code: int = 2) -> Way:
    words = ("sweep", "model.tflite", "--sram", "64K", "--workers", "1", *options)
    return given(prepare, *words, "--accelerators", "ethos-u55-128", "--no-cache", code=code)


def _unreachable_cluster(desk: Desk) -> None:
    def client(*_: object, **__: object) -> None:
        raise OSError("no answer")

    module = types.ModuleType("distributed")
    module.Client = client  # type: ignore[attr-defined]
    desk.patch.setitem(sys.modules, "distributed", module)


def _failing_jobs(desk: Desk) -> None:
    def run(sweep: Sweep, jobs: tuple[Job, ...]) -> Any:
        for job in jobs:
            sweep.found[job] = Found(None, Status.FAILED, "buffers overlap")
            yield job

    desk.patch.setattr(Sweep, "run", run)


def _dying_workers(desk: Desk) -> None:
    # The jobs' process is not this one: it ends itself as one without memory is ended.
    desk.patch.setattr("tvm_ethosu.backend.sweep._do_numbered", _end_of_a_process)


def _end_of_a_process(*_: object) -> None:
    os.kill(os.getpid(), 9)


SWEEP: Mapping[str, Way] = {
    "sizes: not a range (got …, write 32K:1M or 32K:1M:9)": cli(
        "sweep", "model.tflite", "--sram", "32K:1M:0"
    ),
    "sizes: the range begins above its end (got …, limit …)": cli(
        "sweep", "model.tflite", "--sram", "2K:1K"
    ),
    "…: another network of this sweep has the same name; rename one": given(
        twin, "sweep", "model.tflite", "twin/model.tflite"
    ),
    "sweep: the package 'joblib' is not installed; …": _sweep(lambda desk: desk.forget("joblib")),
    "--cluster: the package 'distributed' is not installed; …": _sweep(
        lambda desk: desk.hide("distributed"), "--cluster", "tcp://localhost:8786"
    ),
    "--cluster: … cannot be reached (…)": _sweep(
        _unreachable_cluster, "--cluster", "tcp://localhost:8786"
    ),
    "… combinations failed, the first with: …": _sweep(_failing_jobs, code=1),
    "a worker broke down (…); what is done is kept, …": given(
        _dying_workers, "sweep", "model.tflite", "--sram", "64K", "--workers", "2", "--no-cache",
        "--accelerators", "ethos-u55-128,ethos-u55-256", code=1,
    ),
}  # fmt: skip
