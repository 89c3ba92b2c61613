"""One compilation by Vela, judged by the simulator."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.bench.results import Case, Point
from tvm_ethosu.backend.check import random_inputs
from tvm_ethosu.backend.vela_files import (
    Core,
    CpuOperator,
    Network,
    VelaOptions,
    compile_with_vela,
    read_network,
    reference_runner,
    run_network,
)
from tvm_ethosu.partition.tflite_file import load_tflite
from tvm_ethosu.scheduler.errors import EthosUError, InternalError

_SEED = 0


def cycles_of(streams: Iterable[sim.Stream], case: Case) -> float:
    """Return the estimated cycles of command streams that run one after the other."""
    options = case.vela_options
    system = sim.SYSTEM_CONFIGS[options.system_config]
    mode = sim.MemoryMode(options.mode.value)
    return sum(sim.estimate(stream, system, mode).total for stream in streams)


def measure_vela(case: Case, core: Core, setting: str, arena_bytes: int | None) -> Point:
    """Compile a case and return what came out; a refusal is a point too.

    ``setting`` is ``Size``, or another name for Vela's Performance mode, in which ``arena_bytes``
    is the SRAM that Vela is asked to keep to; it may take more.
    """
    point = Point(core.value, setting, arena_bytes)
    options = replace(
        case.vela_options,
        core=core,
        optimise="Size" if setting == "Size" else "Performance",
        arena_cache_size=arena_bytes,
    )
    try:
        network, sram_bytes = _compile(case.model, options)
        cycles = cycles_of(network.streams, case)
    except (EthosUError, sim.SimulationError) as error:
        return replace(point, refusal=_last_line(error))
    on_cpu = sum(isinstance(op, CpuOperator) for op in network.operators)
    point = replace(point, sram_bytes=sram_bytes, cycles=cycles, cpu_operators=on_cpu)
    return _judged(point, case, network)


def _compile(model: Path, options: VelaOptions) -> tuple[Network, int]:
    with tempfile.TemporaryDirectory() as folder:
        made = compile_with_vela(model, Path(folder), options)
        network = read_network(made.read_bytes())
        summaries = list(Path(folder).glob("*_summary_*.csv"))
        if len(summaries) != 1:
            raise InternalError(
                f"vela: wrote {len(summaries)} summaries for {model.name} (expected 1)"
            )
        with summaries[0].open(newline="") as file:
            row = next(csv.DictReader(file))
    return network, round(float(row["sram_memory_used"]) * 1024)


def _judged(point: Point, case: Case, network: Network) -> Point:
    """Run the network on the simulator and compare it with TFLite Micro."""
    inputs = random_inputs(load_tflite(case.model), np.random.default_rng(_SEED))
    try:
        outputs = run_network(network, inputs).outputs
        expected = reference_runner(case.model.read_bytes())(inputs)
    except (EthosUError, sim.SimulationError) as error:
        return replace(point, complaint=_last_line(error))
    pairs = [(a, b.reshape(a.shape)) for a, b in zip(outputs, expected, strict=True)]
    return replace(
        point,
        compared=sum(a.size for a, _ in pairs),
        differing=sum(int(np.count_nonzero(a != b)) for a, b in pairs),
    )


def _last_line(error: Exception) -> str:
    """Return the end of a message: Vela's own ends with the reason."""
    return str(error).strip().splitlines()[-1]
