"""The command ``tvm-ethosu``: arguments in, tables and files out; the work is done elsewhere."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.console import Console

import tvm_ethosu
from tvm_ethosu.partition.options import EthosUOptions, parse_size
from tvm_ethosu.scheduler.arch import ARCHS
from tvm_ethosu.scheduler.errors import EthosUError, Infeasible, InternalError

EXIT_OUR_FAULT = 1
EXIT_USERS_INPUT = 2
EXIT_INTERRUPTED = 130

_PIPED_COLUMNS = 160

_OUT = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_COLUMNS)
_ERR = Console(stderr=True, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _working(what: str) -> Iterator[None]:
    """Show what takes its time, on stderr and on a terminal only."""
    if _ERR.is_terminal:
        with _ERR.status(what):
            yield
    else:
        yield


_ACCELERATOR_HELP = "NPU: " + ", ".join(arch.accelerator.value for arch in ARCHS) + "."


_NPU_OPTIONS = (
    click.option(
        "--overwrite-inputs",
        is_flag=True,
        help="Let the NPU use an input's memory once it has been read.",
    ),
    click.option(
        "--optimise",
        default="performance",
        show_default=True,
        help="performance: fewest cycles within --sram-size. size: least SRAM.",
    ),
    click.option("--system-config", default=None, help="Memory system, by Vela's name (see docs)."),
    click.option(
        "--memory-mode",
        default="Shared_Sram",
        show_default=True,
        help="Shared_Sram: constants in flash. Sram_Only: constants in SRAM.",
    ),
    click.option(
        "--sram-size",
        default=None,
        help="SRAM for all tensors together, such as 65536, 64K or 1M; no limit by default.",
    ),
    click.option(
        "--accelerator", default="ethos-u55-256", show_default=True, help=_ACCELERATOR_HELP
    ),
)


def _npu_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that decide how a network is compiled; the command gets ``options``."""

    @functools.wraps(command)
    def with_options(
        accelerator: str,
        sram_size: str | None,
        memory_mode: str,
        system_config: str | None,
        optimise: str,
        overwrite_inputs: bool,
        **others: Any,
    ) -> None:
        size_bytes = None if sram_size is None else parse_size(sram_size)
        options = EthosUOptions(
            accelerator, size_bytes, memory_mode, system_config, optimise, overwrite_inputs
        )
        command(options=options, **others)

    return functools.reduce(lambda wrapped, option: option(wrapped), _NPU_OPTIONS, with_options)


_MODEL = click.argument("model", type=click.Path(path_type=Path))
_JSON = click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write the report as JSON."
)


def _with_smallest_size(error: Infeasible, model: Path, options: EthosUOptions) -> Infeasible:
    """Return the error with the smallest sram_size that works, found by compiling for size.

    And with what it would be if the network's inputs need not survive, where that is less.
    """
    from tvm_ethosu.backend.network import compile_for_firmware
    from tvm_ethosu.partition.tflite_file import load_tflite

    unlimited = replace(options, sram_size=None, optimise="size")
    file = load_tflite(model)
    smallest = compile_for_firmware(file, unlimited).sram.total_bytes
    overwriting = replace(unlimited, overwrite_inputs=True)
    less = compile_for_firmware(file, overwriting).sram.total_bytes
    hint = f", or {less} with --overwrite-inputs" if less < smallest else ""
    return Infeasible(
        f"{error}\nthe smallest --sram-size that works is {smallest}{hint}",
        required_bytes=error.required_bytes,
        available_bytes=error.available_bytes,
    )


class _Group(click.Group):
    """The commands; those of the simulator and of firmware are imported when they are asked for."""

    _LATE: ClassVar = {
        "disassemble": "cli_simulate",
        "simulate": "cli_simulate",
        "firmware": "cli_firmware",
        "machine": "cli_firmware",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self._LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._LATE:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"tvm_ethosu.backend.{self._LATE[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(tvm_ethosu.__version__, prog_name="tvm-ethosu")
@click.option("--verbose", is_flag=True, help="Show a traceback when something goes wrong.")
def cli(verbose: bool) -> None:
    """Compile quantized TFLite networks for Arm Ethos-U, run them, explain what happened."""
    del verbose  # read by main, which sees errors


@cli.command("compile")
@_MODEL
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the C sources and headers.",
)
@_npu_options
@_JSON
def compile_command(
    model: Path,
    output: Path,
    options: EthosUOptions,
    json_path: Path | None,
) -> None:
    """Compile MODEL to C: NPU functions with their command streams, CPU operators beside."""
    from tvm_ethosu.backend.network import compile_for_firmware
    from tvm_ethosu.backend.outputs import write_firmware, write_json
    from tvm_ethosu.backend.report import compile_report, memory_table
    from tvm_ethosu.partition.tflite_file import load_tflite

    with _working(f"compiling {model.name} for {options.accelerator_config}"):
        file = load_tflite(model)
        try:
            network = compile_for_firmware(file, options)
        except Infeasible as error:
            raise _with_smallest_size(error, model, options) from None
    report = compile_report(file, network)
    if json_path is not None:
        write_json(json_path, report)
    written = write_firmware(network, output)
    _OUT.print(memory_table(report))
    on_npu, on_cpu = len(report["npu_operators"]), len(report["cpu_operators"])
    _OUT.print(f"{on_npu} operators on the NPU, {on_cpu} on the CPU", highlight=False)
    for row in report["cpu_operators"]:
        _OUT.print(f"  {row['name']}: {row['reason']}", markup=False)
    _OUT.print(f"wrote {len(written)} C files to {output}", markup=False)


@cli.command()
@_MODEL
@_npu_options
@_JSON
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

    with _working(f"partitioning {model.name}"):
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
    _OUT.print(operator_table(rows))


@cli.command()
@_MODEL
@click.option("--npu", "accelerator", default=None, help=_ACCELERATOR_HELP + " CPU only without.")
@click.option(
    "--sram-size", default=None, help="Show what each call leaves of this much SRAM (64K, 1M)."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Write a picture: a file .svg or .html."
)
@_JSON
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
    from tvm_ethosu.backend.memory_view import memory_json, memory_table, plot_text, view_memory
    from tvm_ethosu.backend.outputs import write_json, write_text
    from tvm_ethosu.partition.tflite_file import load_tflite

    with _working(f"analysing {model.name}"):
        view = view_memory(load_tflite(model, quantized=options is not None), options, size)
    if plot is not None:
        write_text(plot, plot_text(view, plot))
    if json_path is not None:
        write_json(json_path, memory_json(view))
    _OUT.print(memory_table(view))


@cli.command()
@_MODEL
@_npu_options
@click.option(
    "--input",
    "input_paths",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A .npy file per input of the network; random inputs by default.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of random inputs.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of random inputs to run.",
)
@click.option("--check", is_flag=True, help="Compare every NPU result with TFLite Micro.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the outputs as .npz.")
@_JSON
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
    from tvm_ethosu.backend.session import inference_table, run_session, session_report
    from tvm_ethosu.partition.tflite_file import load_tflite

    with _working(f"compiling {model.name} for {options.accelerator_config}"):
        network = load_for_host(load_tflite(model), options)
        checker = Checker(network) if check else None
    session = run_session(network, checker, input_paths, seed, count, _ERR)
    if output is not None:
        session.save(output)
    if json_path is not None:
        from tvm_ethosu.backend.outputs import write_json

        write_json(json_path, session_report(session))
    for table in inference_table(session):
        _OUT.print(table)
    if not session.is_equal:
        raise InternalError("an NPU result differs from TFLite Micro's; see the table above")


def explained(error: BaseException) -> tuple[str, int] | None:
    """Return the sentence and exit code of an error that we raised, or None for any other."""
    match error:
        case click.exceptions.Abort() | KeyboardInterrupt():
            return "interrupted", EXIT_INTERRUPTED
        case click.ClickException():
            return error.format_message(), EXIT_USERS_INPUT
        case InternalError():
            return f"{error} (our fault: please report it)", EXIT_OUR_FAULT
        case EthosUError():
            return str(error), EXIT_USERS_INPUT
        case _:
            return None


def unexpected(error: BaseException) -> tuple[str, int]:
    """Return the sentence and exit code of an error that nobody foresaw."""
    lines = str(error).strip().splitlines() or [""]
    text = (
        f"unexpected error, our fault ({type(error).__name__}: {lines[-1]}); please report it with "
        "the output of tvm-ethosu --verbose …"
    )
    return text, EXIT_OUR_FAULT


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 well, 1 our fault, 2 the user's input.

    ``machine run`` has codes of its own for firmware that failed.
    """
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = cli.main(arguments, prog_name="tvm-ethosu", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        # The last resort as well: users never see a bare traceback.
        message, code = explained(error) or unexpected(error)
        if "--verbose" in arguments:
            traceback.print_exc()
        _ERR.print(f"tvm-ethosu: {message}", markup=False)
        return code
    return code if isinstance(code, int) else 0
