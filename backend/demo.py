"""``make demo``: a trained network compiled for the NPU, run on the simulator, and compared.

Progress goes to stderr, the tables to stdout. The last line is the verdict; the exit code says
the same.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tvm_ethosu.backend.check import Checker, load_for_host
from tvm_ethosu.backend.demo_network import demo_network
from tvm_ethosu.backend.failures import EXIT_OUR_FAULT, explained, unexpected
from tvm_ethosu.backend.network import FirmwareNetwork, compile_for_firmware
from tvm_ethosu.backend.report import compile_report, memory_table, operator_rows, operator_table
from tvm_ethosu.backend.session import Session, comparison_table, run_session
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite

ACCELERATOR = "ethos-u55-128"
SRAM_SIZE_BYTES = 64 * 1024
RUNS = 20
SEED = 0

_PIPED_COLUMNS = 120


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo shows at its end; ``seconds`` holds the steps' times by what they did."""

    file: TfliteFile
    network: FirmwareNetwork
    session: Session
    seconds: dict[str, float]


class _Steps:
    """Announces what is being done and remembers how long it took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, what: str, *, spinner: bool = True) -> Iterator[None]:
        """Show ``what`` until it is done, then leave a line with its time.

        ``spinner`` is False for work that shows a progress bar of its own: a terminal can only
        hold one of them.
        """
        start = time.perf_counter()
        show = spinner and self.console.is_terminal
        with self.console.status(f"{what} …") if show else contextlib.nullcontext():
            yield
        self.seconds[what] = time.perf_counter() - start
        self.console.print(f"{what}: {self.seconds[what]:.1f} s", highlight=False)


def run_demo(model: Path, steps: _Steps, runs: int = RUNS) -> DemoResult:
    """Compile a network for firmware and for this host, and run the latter beside TFLite Micro.

    Raises:
        EthosUError: as the functions that do the work.
    """
    options = EthosUOptions(ACCELERATOR, SRAM_SIZE_BYTES)
    with steps.step(f"compile to C for {ACCELERATOR}"):
        file = load_tflite(model)
        network = compile_for_firmware(file, options)
    with steps.step("compile for this host, the NPU simulated"):
        host = load_for_host(file, options)
        checker = Checker(host)
    with steps.step(f"run {runs} random inputs, here and on TFLite Micro", spinner=False):
        session = run_session(host, checker, (), SEED, runs, steps.console)
    return DemoResult(file, network, session, dict(steps.seconds))


def npu_table(network: FirmwareNetwork) -> Table:
    """Return what is in the code of each NPU function."""
    table = Table("NPU function", "MACs", "command stream", "weights and biases", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for function in network.functions:
        program = function.program
        stream, constants = program.command_stream_bytes, len(program.constants)
        table.add_row(function.name, f"{program.macs}", f"{stream} bytes", f"{constants} bytes")
    return table


def time_table(seconds: dict[str, float]) -> Table:
    """Return how long each step took."""
    table = Table("step", "seconds", box=None)
    table.columns[1].justify = "right"
    for what, taken in seconds.items():
        table.add_row(what, f"{taken:.1f}")
    return table


def result_tables(result: DemoResult) -> Iterator[Table]:
    """Yield all tables of the demo, in the order in which they are read."""
    yield operator_table(operator_rows(result.file, result.network.decisions))
    yield memory_table(compile_report(result.file, result.network))
    yield npu_table(result.network)
    yield comparison_table(result.session.comparisons, len(result.session.inferences))
    yield time_table(result.seconds)


def verdict(session: Session) -> str:
    """Return the sentence about equality with the reference."""
    runs = len(session.inferences)
    compared = [comparison for comparison in session.comparisons if comparison.on_npu]
    elements = sum(comparison.elements for comparison in compared)
    if not elements:
        return "NOTHING COMPARED: no value comes from the NPU"
    if session.is_equal:
        return (
            f"equal: all {elements} values that the NPU gave in {runs} runs are TFLite Micro's, "
            "bit by bit"
        )
    differing = sum(comparison.differing for comparison in compared)
    return f"DIFFERENT: {differing} of {elements} values that the NPU gave are not TFLite Micro's"


def _show(result: DemoResult, console: Console) -> None:
    name = result.file.path.name
    console.print(f"\n{name} on {ACCELERATOR}, {SRAM_SIZE_BYTES} bytes of SRAM for its tensors")
    for table in result_tables(result):
        console.print()
        console.print(table)
    console.print(f"\n{verdict(result.session)}")


def _demo(out: Console, err: Console) -> int:
    steps = _Steps(err)
    with steps.step("fetch a trained network", spinner=False):
        model = demo_network()
    result = run_demo(model, steps)
    _show(result, out)
    return 0 if verdict(result.session).startswith("equal") else EXIT_OUR_FAULT


def main() -> int:
    """Run the demo and return the exit code: 0 equal, 1 different or our fault, 2 no network."""
    out = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_COLUMNS)
    err = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        return _demo(out, err)
    except (Exception, KeyboardInterrupt) as error:
        message, code = explained(error) or unexpected(error)
    err.print(f"demo: {message}", markup=False)
    return code


if __name__ == "__main__":
    sys.exit(main())
