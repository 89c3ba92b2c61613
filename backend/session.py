"""Runs of one network on several inputs, as the command line and the demo show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tvm_ethosu.backend.check import (
    Checker,
    Comparison,
    HostNetwork,
    Inference,
    load_inputs,
    random_inputs,
    run_once,
)
from tvm_ethosu.backend.outputs import whole_file
from tvm_ethosu.scheduler.dump import short_origin


@dataclass(frozen=True, eq=False)
class Session:
    """The runs of one network; ``comparisons`` is empty when nothing was compared."""

    output_names: tuple[str, ...]
    inferences: tuple[Inference, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def is_equal(self) -> bool:
        """Return whether every compared tensor of an NPU function equals the reference's."""
        return all(comparison.is_equal for comparison in self.comparisons if comparison.on_npu)

    def save(self, path: Path) -> None:
        """Write the outputs of all runs, stacked, as a .npz file.

        Raises:
            UserError: it cannot be written.
        """
        arrays = {
            f"output{index}": np.stack([run.outputs[index] for run in self.inferences])
            for index in range(len(self.output_names))
        }
        with whole_file(path) as partial, partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]


def run_session(
    network: HostNetwork,
    checker: Checker | None,
    input_paths: Sequence[Path],
    seed: int,
    count: int,
    console: Console,
) -> Session:
    """Run the network on the given files, or on ``count`` random inputs, and compare."""
    rng = np.random.default_rng(seed)
    given = load_inputs(network.file, input_paths) if input_paths else None
    runs = range(1 if given is not None else count)
    inferences = []
    for _ in track(runs, "running", console=console, disable=not console.is_terminal):
        inputs = random_inputs(network.file, rng) if given is None else given
        inference = run_once(network, inputs)
        inferences.append(inference)
        if checker is not None:
            checker.add(inputs, inference)
    names = tuple(network.file.tensors[index].name for index in network.file.outputs)
    comparisons = () if checker is None else checker.comparisons()
    return Session(names, tuple(inferences), comparisons)


def comparison_table(comparisons: Sequence[Comparison], runs: int) -> Table:
    """Return how each tensor agrees with TFLite Micro."""
    table = Table("tensor", "from", f"elements in {runs} runs", "differing", "by at most", box=None)
    for comparison in comparisons:
        table.add_row(
            short_origin(comparison.tensor),
            "NPU" if comparison.on_npu else "CPU (TVM's arithmetic)",
            str(comparison.elements),
            str(comparison.differing),
            f"{comparison.largest_difference:.6g}",
        )
    return table


def inference_table(session: Session) -> list[Table]:
    """Return the outputs of the last run, and the comparison if there was one."""
    outputs = Table("output", "type", "shape", "least", "largest", "at", box=None)
    for name, data in zip(session.output_names, session.inferences[-1].outputs, strict=True):
        shape = "x".join(map(str, data.shape))
        place = str(int(np.argmax(data)))
        outputs.add_row(
            short_origin(name), str(data.dtype), shape, str(data.min()), str(data.max()), place
        )
    if not session.comparisons:
        return [outputs]
    return [outputs, comparison_table(session.comparisons, len(session.inferences))]


def session_report(session: Session) -> dict[str, Any]:
    """Return the session as JSON data."""
    last = session.inferences[-1]
    return {
        "runs": len(session.inferences),
        "outputs": [
            {"name": name, "dtype": str(data.dtype), "values": data.tolist()}
            for name, data in zip(session.output_names, last.outputs, strict=True)
        ],
        "npu_calls": [
            {"name": call.name, "macs": sum(report.total_macs for report in call.reports)}
            for call in last.calls
        ],
        "comparisons": [
            {
                "tensor": comparison.tensor,
                "on_npu": comparison.on_npu,
                "elements": comparison.elements,
                "differing": comparison.differing,
                "largest_difference": comparison.largest_difference,
            }
            for comparison in session.comparisons
        ],
        "equal": session.is_equal if session.comparisons else None,
    }
