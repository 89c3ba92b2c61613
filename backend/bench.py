"""The SRAM that networks need, ours against Vela's, measured in one run.

``python -m tvm_ethosu.backend.bench [MODEL.tflite ...] [-o docs/benchmarks.md]``; without models
the networks of ``demo_network.py`` are taken.
"""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.check import Checker, load_for_host, random_inputs, run_once
from tvm_ethosu.backend.demo_network import extract, list_networks
from tvm_ethosu.backend.network import compile_for_firmware
from tvm_ethosu.backend.outputs import write_text
from tvm_ethosu.backend.vela_files import Core, VelaOptions, compile_with_vela
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite
from tvm_ethosu.scheduler.errors import UserError

ACCELERATORS = ("ethos-u55-128", "ethos-u55-256")
_CHECKED_INPUTS = 2
_SEED = 0


@dataclass(frozen=True)
class Row:
    """Bytes of SRAM for one network on one accelerator, network input and output included.

    Vela's numbers are the better of its two cores; None if none compiled the network. ``equal``
    tells whether ours, optimised for size, gave TFLite Micro's values on the simulator.
    """

    network: str
    accelerator: str
    vela_performance: int | None
    vela_size: int | None
    performance: int
    size: int
    cpu_operators: int
    equal: bool


def vela_sram_bytes(model: Path, accelerator: str, optimise: str) -> int | None:
    """Return the arena that Vela needs, the better of its cores; None if it fails."""
    found = []
    for core in Core:
        options = VelaOptions(sim.Accelerator(accelerator), core, optimise)
        with tempfile.TemporaryDirectory() as folder:
            try:
                compile_with_vela(model, Path(folder), options)
            except UserError:
                continue
            found += [_summary_bytes(path) for path in Path(folder).glob("*_summary_*.csv")]
    return min(found, default=None)


def _summary_bytes(path: Path) -> int:
    with path.open(newline="") as file:
        row = next(csv.DictReader(file))
    return round(float(row["sram_memory_used"]) * 1024)


def _is_equal(model: Path, options: EthosUOptions) -> bool:
    network = load_for_host(load_tflite(model), options)
    checker = Checker(network)
    rng = np.random.default_rng(_SEED)
    for _ in range(_CHECKED_INPUTS):
        inputs = random_inputs(network.file, rng)
        checker.add(inputs, run_once(network, inputs))
    return all(c.is_equal for c in checker.comparisons() if c.on_npu)


def measure(model: Path, accelerator: str) -> Row:
    """Compile a network with both compilers and return what it needs."""
    file = load_tflite(model)
    performance = compile_for_firmware(file, EthosUOptions(accelerator))
    smallest = EthosUOptions(accelerator, optimise="size")
    size = compile_for_firmware(file, smallest)
    on_cpu = {d.origin for d in size.decisions if not d.on_npu}
    return Row(
        model.stem,
        accelerator,
        vela_sram_bytes(model, accelerator, "Performance"),
        vela_sram_bytes(model, accelerator, "Size"),
        performance.sram.total_bytes,
        size.sram.total_bytes,
        len(on_cpu),
        _is_equal(model, smallest),
    )


def geometric_mean(ratios: Iterable[float]) -> float:
    """Return the geometric mean; 1 for no ratios."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _cell(value: int | None) -> str:
    return "-" if value is None else str(value)


def markdown(rows: Sequence[Row]) -> str:
    """Return the page with one table per accelerator."""
    text = (
        "# SRAM, ours against Vela's\n\nMade by `make bench`; don't edit. Bytes of the whole "
        "arena, network input and output included; memory mode Shared_Sram. Vela 5.2: the better "
        "of its two cores. Ours: `--optimise performance` without a limit, and `--optimise size`. "
        "A CPU operator beside the NPU needs memory of its own in ours (softmax in float32, for "
        "one); Vela leaves the CPU's part out. Equal: NPU results of the size-optimised network "
        f"on the simulator are TFLite Micro's on {_CHECKED_INPUTS} random inputs.\n"
    )
    for accelerator in dict.fromkeys(row.accelerator for row in rows):
        chosen = [row for row in rows if row.accelerator == accelerator]
        ratios = [row.size / row.vela_size for row in chosen if row.vela_size]
        text += (
            f"\n## {accelerator}\n\n| network | Vela Performance | Vela Size | ours, performance | "
            "ours, size | size: ours / Vela | CPU operators | equal |\n"
            "|---|---|---|---|---|---|---|---|\n"
        )
        for row in chosen:
            ratio = f"{row.size / row.vela_size:.2f}" if row.vela_size else "-"
            text += (
                f"| {row.network} | {_cell(row.vela_performance)} | {_cell(row.vela_size)} | "
                f"{row.performance} | {row.size} | {ratio} | {row.cpu_operators} | "
                f"{'yes' if row.equal else 'NO'} |\n"
            )
        text += f"\nGeometric mean of ours / Vela for size: {geometric_mean(ratios):.2f}\n"
    return text


@click.command()
@click.argument("models", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page here.")
def main(models: tuple[Path, ...], output: Path | None) -> None:
    """Measure networks and print the page."""
    console = Console(stderr=True)
    paths = list(models) or list(extract([n.name for n in list_networks()]).values())
    cases = [(path, accelerator) for accelerator in ACCELERATORS for path in paths]
    shown = track(cases, "measuring", console=console, disable=not console.is_terminal)
    text = markdown([measure(path, accelerator) for path, accelerator in shown])
    if output is not None:
        write_text(output, text)
    click.echo(text)


if __name__ == "__main__":
    main()
