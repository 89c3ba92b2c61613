"""``python -m tvm_ethosu.backend.coverage``: a page of what is on the NPU, of networks and suites.

Nothing is run: where an operator is follows from the partitioned module. That its numbers are right
is what the tests show.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from tvm_ethosu.backend.demo_network import extract, list_networks
from tvm_ethosu.backend.failures import told
from tvm_ethosu.backend.network import partition_file
from tvm_ethosu.backend.outputs import write_text
from tvm_ethosu.backend.report import REMOVED, OperatorRow, operator_rows
from tvm_ethosu.partition import EthosUOptions, explain_partition
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.tflite_file import TfliteFile, TfliteOperator, load_tflite
from tvm_ethosu.scheduler.errors import UserError

_ACCELERATOR = "ethos-u55-128"

_INTRODUCTION = f"""# Networks and operators on the NPU

Made by `make coverage`; don't edit. Each network was partitioned for {_ACCELERATOR}, and not run:
that results equal those of TFLite Micro, or golden outputs where there are any, is what the tests
in `tests/equivalence` show (`test_conformance.py` names what TFLite Micro has no kernel for, and
the one layer whose golden output it does not give). The reasons are those of
`tvm-ethosu explain`."""


@dataclass(frozen=True)
class Coverage:
    """Where the operators of one network are.

    ``refusal`` says why the network is not taken at all, and is empty otherwise. ``macs`` are the
    multiply-accumulates of the file's operators, ``functions`` the number of NPU functions.
    """

    name: str
    refusal: str
    macs: int = 0
    npu_macs: int = 0
    functions: int = 0
    rows: tuple[OperatorRow, ...] = ()

    @property
    def on_cpu(self) -> tuple[OperatorRow, ...]:
        """Return the operators that the CPU runs; not those that the import takes away."""
        return tuple(row for row in self.rows if not row.npu_function and row.reason != REMOVED)

    @property
    def is_whole(self) -> bool:
        """Return whether the NPU runs all of it."""
        return not self.refusal and not self.on_cpu


def operator_macs(file: TfliteFile, operator: TfliteOperator) -> int:
    """Return the multiply-accumulates of one operator of a file; 0 where there are no weights."""
    shapes = {tensor.name: tensor.shape for tensor in file.tensors}
    match operator.name:
        case "CONV_2D" | "FULLY_CONNECTED":
            per_result = math.prod(shapes[operator.inputs[1]][1:])
        case "DEPTHWISE_CONV_2D":
            per_result = math.prod(shapes[operator.inputs[1]][1:3])
        case "TRANSPOSE_CONV":
            # Each element of the input meets all weights of its channel.
            return math.prod(shapes[operator.inputs[2]]) * math.prod(shapes[operator.inputs[1]][:3])
        case _:
            return 0
    return per_result * math.prod(shapes[operator.outputs[0]])


def coverage_of(path: Path) -> Coverage:
    """Partition a file and say where its operators are; a network that is refused says why."""
    try:
        file = load_tflite(path)
        module = partition_file(file, EthosUOptions(_ACCELERATOR))
    except UserError as error:
        return Coverage(path.stem, str(error).removeprefix(f"{path}: "))
    rows = operator_rows(file, explain_partition(module))
    macs = [operator_macs(file, operator) for operator in file.operators]
    on_npu = [count for count, row in zip(macs, rows, strict=True) if row.npu_function]
    return Coverage(path.stem, "", sum(macs), sum(on_npu), len(npu_functions(module)), rows)


# --- the page -------------------------------------------------------------------------------------


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "no weights"


def _reasons(rows: Sequence[OperatorRow]) -> str:
    """Return the operators on the CPU with the reason of each, equal ones counted."""
    counted = Counter((row.name, row.reason) for row in rows)
    named = [
        f"{name}{f' ({count} times)' if count > 1 else ''}: {reason}"
        for (name, reason), count in counted.items()
    ]
    return _cell("; ".join(named))


def _network_lines(results: Sequence[Coverage]) -> Iterator[str]:
    yield "\n## Networks\n"
    yield "Where there are several NPU functions, the operators on the CPU are what parts them.\n"
    yield "| network | operators | MACs | of these on the NPU | NPU functions | on the CPU |"
    yield "|---|---:|---:|---:|---:|---|"
    for one in results:
        if one.refusal:
            yield f"| {one.name} | | | | | not imported: {_cell(one.refusal)} |"
            continue
        share = _percent(one.npu_macs, one.macs)
        yield (
            f"| {one.name} | {len(one.rows)} | {one.macs} | {share} | {one.functions} "
            f"| {_reasons(one.on_cpu)} |"
        )


def _suite_lines(name: str, results: Sequence[Coverage]) -> Iterator[str]:
    whole = sum(one.is_whole for one in results)
    yield f"\n## {name}\n"
    if whole == len(results):
        yield f"All {whole} networks are on the NPU as a whole."
        return
    yield f"{whole} of {len(results)} networks are on the NPU as a whole. The others:\n"
    yield "| network | why not on the NPU |"
    yield "|---|---|"
    for one in results:
        if one.refusal:
            yield f"| {one.name} | not imported: {_cell(one.refusal)} |"
        elif one.on_cpu:
            yield f"| {one.name} | {_reasons(one.on_cpu)} |"


def coverage_markdown(
    networks: Sequence[Coverage], suites: Sequence[tuple[str, Sequence[Coverage]]]
) -> str:
    """Return the page: a row per network, and what is missing of each suite."""
    lines = [_INTRODUCTION, *_network_lines(networks)]
    for name, results in suites:
        lines += _suite_lines(name, results)
    return "\n".join(lines) + "\n"


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.tflite")) if folder.is_dir() else [folder]
    if not found:
        raise UserError(f"{folder}: holds no .tflite files")
    return found


def _measured(paths: Sequence[Path], what: str, suite: Path | None = None) -> list[Coverage]:
    console = Console(stderr=True)
    shown = track(paths, what, console=console, disable=not console.is_terminal)
    results = [coverage_of(path) for path in shown]
    if suite is None:
        return results
    names = [path.relative_to(suite).with_suffix("").as_posix() for path in paths]
    return [replace(one, name=name) for one, name in zip(results, names, strict=True)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--suite",
    "suites",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of small networks, of which only those not on the NPU are listed.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page here.")
def command(paths: tuple[Path, ...], suites: tuple[Path, ...], output: Path | None) -> None:
    """Say where operators are: of the trained networks, of PATHS (files, folders), of suites."""
    trained = extract([network.name for network in list_networks()]).values()
    files = [*trained, *(file for path in paths for file in _files(path))]
    networks = _measured(files, "networks")
    measured = [(suite.name, _measured(_files(suite), suite.name, suite)) for suite in suites]
    text = coverage_markdown(networks, measured)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(output, text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        command.main(args=arguments, prog_name="coverage", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return told(error, "coverage")
    return 0


if __name__ == "__main__":
    sys.exit(main())
