"""The command ``tvm-ethosu``: arguments in, tables and files out; the work is done elsewhere."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import ClassVar

import click

import tvm_ethosu
from tvm_ethosu.backend.cli_options import (
    ACCELERATOR_HELP,
    ERR,
    JSON,
    LOG,
    MODEL,
    OUT,
    PROGRESS,
    VOICE,
    compile_or_explain,
    input_options,
    npu_options,
    reset_consoles,
    with_voice,
    working,
)
from tvm_ethosu.backend.failures import EXIT_INTERRUPTED, EXIT_NO_READER, explained, unexpected
from tvm_ethosu.partition.options import EthosUOptions, parse_size
from tvm_ethosu.scheduler.errors import InternalError


class _Group(click.Group):
    """The commands; those of the simulator and of firmware are imported when they are asked for."""

    _LATE: ClassVar = {
        "disassemble": "cli_simulate",
        "simulate": "cli_simulate",
        "firmware": "cli_firmware",
        "machine": "cli_firmware",
        "report": "cli_report",
        "sweep": "cli_sweep",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self._LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if cmd_name in self._LATE:
            module = importlib.import_module(f"tvm_ethosu.backend.{self._LATE[cmd_name]}")
            command = getattr(module, cmd_name)
        return None if command is None else with_voice(command)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(tvm_ethosu.__version__, prog_name="tvm-ethosu")
@VOICE[0]
@VOICE[1]
def cli() -> None:
    """Compile quantized TFLite networks for Arm Ethos-U, run them, explain what happened."""


@cli.command("compile")
@MODEL
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the C sources and headers.",
)
@npu_options
@JSON
def compile_command(
    model: Path,
    output: Path,
    options: EthosUOptions,
    json_path: Path | None,
) -> None:
    """Compile MODEL to C: NPU functions with their command streams, CPU operators beside."""
    from tvm_ethosu.backend.outputs import write_firmware, write_json
    from tvm_ethosu.backend.report import compile_report, memory_table
    from tvm_ethosu.partition.tflite_file import load_tflite

    file = load_tflite(model)
    network = compile_or_explain(file, options)
    report = compile_report(file, network)
    if json_path is not None:
        write_json(json_path, report)
    written = write_firmware(network, output)
    OUT.print(memory_table(report))
    on_npu, on_cpu = len(report["npu_operators"]), len(report["cpu_operators"])
    OUT.print(f"{on_npu} operators on the NPU, {on_cpu} on the CPU", highlight=False)
    for row in report["cpu_operators"]:
        OUT.print(f"  {row['name']}: {row['reason']}", markup=False)
    OUT.print(f"wrote {len(written)} C files to {output}", markup=False)


@cli.command()
@MODEL
@npu_options
@JSON
def explain(
    model: Path,
    options: EthosUOptions,
    json_path: Path | None,
) -> None:
    """List MODEL's operators: which run on the NPU, which on the CPU, and why."""
    from tvm_ethosu.backend.network import partition_file
    from tvm_ethosu.backend.outputs import write_json
    from tvm_ethosu.backend.report import operator_rows, operator_table
    from tvm_ethosu.partition import explain_partition
    from tvm_ethosu.partition.tflite_file import load_tflite

    with working(f"partitioning {model.name}"):
        file = load_tflite(model)
        rows = operator_rows(file, explain_partition(partition_file(file, options)))
    if json_path is not None:
        data = [
            {
                "operator": r.name,
                "origin": r.origin,
                "npu_function": r.npu_function,
                "reason": r.reason,
            }
            for r in rows
        ]
        write_json(json_path, {"model": model.name, "operators": data})
    OUT.print(operator_table(rows))


@cli.command()
@MODEL
@click.option("--npu", "accelerator", default=None, help=ACCELERATOR_HELP + " CPU only without.")
@click.option(
    "--sram-size", default=None, help="Show what each call leaves of this much SRAM (64K, 1M)."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Write a picture: a file .svg or .html."
)
@JSON
def memory(
    model: Path,
    accelerator: str | None,
    sram_size: str | None,
    plot: Path | None,
    json_path: Path | None,
) -> None:
    """Show who holds MODEL's memory at each call, and where the peak is."""
    size = None if sram_size is None else parse_size(sram_size)
    options = None if accelerator is None else EthosUOptions(accelerator, size)
    from tvm_ethosu.backend.memory_view import (
        check_plot,
        memory_json,
        memory_table,
        plot_text,
        view_memory,
    )
    from tvm_ethosu.backend.outputs import write_json, write_text
    from tvm_ethosu.partition.tflite_file import load_tflite

    if plot is not None:
        check_plot(plot)
    with working(f"analysing {model.name}"):
        view = view_memory(load_tflite(model, quantized=options is not None), options, size)
    if plot is not None:
        write_text(plot, plot_text(view, plot))
    if json_path is not None:
        write_json(json_path, memory_json(view))
    OUT.print(memory_table(view))


@cli.command()
@MODEL
@npu_options
@input_options
@click.option("--check", is_flag=True, help="Compare every NPU result with TFLite Micro.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the outputs as .npz.")
@JSON
def run(
    model: Path,
    options: EthosUOptions,
    input_paths: tuple[Path, ...],
    seed: int,
    count: int,
    check: bool,
    output: Path | None,
    json_path: Path | None,
) -> None:
    """Run MODEL with its NPU functions on the simulator."""
    from tvm_ethosu.backend.check import Checker, load_for_host
    from tvm_ethosu.backend.outputs import check_ending, write_json
    from tvm_ethosu.backend.session import inference_table, run_session, session_report
    from tvm_ethosu.partition.tflite_file import load_tflite

    if output is not None:
        check_ending("--output", output, (".npz",))
    with working(f"compiling {model.name} for {options.accelerator_config}"):
        network = load_for_host(load_tflite(model), options)
        checker = Checker(network) if check else None
    session = run_session(network, checker, input_paths, seed, count, PROGRESS)
    if output is not None:
        session.save(output)
    if json_path is not None:
        write_json(json_path, session_report(session))
    for table in inference_table(session):
        OUT.print(table)
    if not session.is_equal:
        raise InternalError("an NPU result differs from TFLite Micro's; see the table above")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 well, 1 our fault, 2 the user's input.

    ``machine run`` has codes of its own for firmware that failed.
    """
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    reset_consoles()
    try:
        # Not cli.main: it has its own ways with Ctrl-C and with readers that go away.
        with cli.make_context("tvm-ethosu", list(arguments)) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (Exception, KeyboardInterrupt) as error:
        # The last resort as well: users never see a bare traceback.
        message, code = explained(error) or unexpected(error)
        if not LOG.quiet:
            traceback.print_exc()
        if code == EXIT_NO_READER:
            # What is left in the buffer has nowhere to go, and Python would complain at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            # A terminal shows ^C first.
            before = "\n" if code == EXIT_INTERRUPTED and ERR.is_terminal else ""
            ERR.print(f"{before}tvm-ethosu: {message}", markup=False)
        return code
