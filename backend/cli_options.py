"""What the commands share: consoles, common options, a compilation that explains its refusal."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tvm_ethosu import interrupts
from tvm_ethosu.backend.outputs import STDOUT
from tvm_ethosu.partition.options import OPTION_HELP, EthosUOptions, parse_size
from tvm_ethosu.scheduler.errors import Infeasible

if TYPE_CHECKING:
    from tvm_ethosu.backend.network import FirmwareNetwork
    from tvm_ethosu.partition.tflite_file import TfliteFile

_PIPED_COLUMNS = 160

# What a command found; errors; what it does meanwhile; and with --verbose, how long that took.
OUT = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_COLUMNS)
ERR = Console(stderr=True, highlight=False, soft_wrap=True)
PROGRESS = Console(stderr=True, highlight=False)
LOG = Console(stderr=True, highlight=False, soft_wrap=True, quiet=True)


def reset_consoles() -> None:
    """Let the consoles speak as without any option."""
    OUT.quiet = PROGRESS.quiet = False
    LOG.quiet = True


def say(text: str) -> None:
    """Print a line as it is, whatever it holds, unless results are not wanted as text."""
    if not OUT.quiet:
        click.echo(text)


def shows_progress() -> bool:
    """Return whether somebody sees progress, and wants to."""
    return PROGRESS.is_terminal and not PROGRESS.quiet


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show what takes its time, on stderr and on a terminal only; with --verbose note the time."""
    start = time.perf_counter()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not shows_progress()
    with Progress(*columns, console=PROGRESS, transient=True, disable=hidden) as progress:
        progress.add_task(what, total=None)
        yield
    interrupts.check()
    LOG.print(f"{what}: {time.perf_counter() - start:.1f} s", markup=False)


def _quiet(_context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    if is_given:
        OUT.quiet = PROGRESS.quiet = True


def _verbose(_context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    if is_given:
        LOG.quiet = False


def _json(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    if path == STDOUT:
        OUT.quiet = True
    return path


# Every command has these two, and they may stand in front of the command as well.
VOICE = (
    click.option(
        "-q",
        "--quiet",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_quiet,
        help="Print no tables and no progress, only errors.",
    ),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_verbose,
        help="Print how long each step took, and a traceback when something goes wrong.",
    ),
)


def with_voice(command: click.Command) -> click.Command:
    """Add the options of ``VOICE`` to a command and those below it; a second call adds none."""
    if not any(parameter.name == "quiet" for parameter in command.params):
        for option in VOICE:
            option(command)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        with_voice(inner)
    return command


ACCELERATOR_HELP = OPTION_HELP["accelerator_config"]

_NPU_OPTIONS = (
    click.option("--share-io", is_flag=True, help=OPTION_HELP["share_io"]),
    click.option("--overwrite-inputs", is_flag=True, help=OPTION_HELP["overwrite_inputs"]),
    click.option(
        "--optimise", default="performance", show_default=True, help=OPTION_HELP["optimise"]
    ),
    click.option("--system-config", default=None, help=OPTION_HELP["system_config"]),
    click.option(
        "--memory-mode", default="Shared_Sram", show_default=True, help=OPTION_HELP["memory_mode"]
    ),
    click.option("--sram-size", default=None, help=OPTION_HELP["sram_size"]),
    click.option(
        "--accelerator", default="ethos-u55-256", show_default=True, help=ACCELERATOR_HELP
    ),
)


def npu_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that decide how a network is compiled; the command gets ``options``."""

    @functools.wraps(command)
    def with_options(
        accelerator: str,
        sram_size: str | None,
        memory_mode: str,
        system_config: str | None,
        optimise: str,
        overwrite_inputs: bool,
        share_io: bool,
        **others: Any,
    ) -> None:
        size_bytes = None if sram_size is None else parse_size(sram_size)
        options = EthosUOptions(
            accelerator,
            size_bytes,
            memory_mode,
            system_config,
            optimise,
            overwrite_inputs,
            share_io,
        )
        command(options=options, **others)

    return _with(_NPU_OPTIONS, with_options)


_INPUT_OPTIONS = (
    click.option(
        "--count",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of random inputs.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Seed of random inputs.",
    ),
    click.option(
        "--input",
        "input_paths",
        type=click.Path(path_type=Path),
        multiple=True,
        help="A .npy file per input of the network; random inputs by default.",
    ),
)


def input_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that give a network inputs."""
    return _with(_INPUT_OPTIONS, command)


def _with(
    options: Iterable[Callable[..., Any]], command: Callable[..., None]
) -> Callable[..., None]:
    return functools.reduce(lambda wrapped, option: option(wrapped), options, command)


MODEL = click.argument("model", type=click.Path(path_type=Path))
JSON = click.option(
    "--json",
    "json_path",
    metavar="[FILE]",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=str(STDOUT),
    callback=_json,
    help="Write the report as JSON; without FILE to stdout, in place of the tables.",
)


def compile_or_explain(file: TfliteFile, options: EthosUOptions) -> FirmwareNetwork:
    """Compile a network to C; where it does not fit, say which size would do.

    Raises:
        UserError: TVM's importer does not take the network.
        Infeasible: it does not fit; the smallest ``--sram-size`` that works is in the message.
    """
    from tvm_ethosu.backend.network import compile_for_firmware

    try:
        with working(f"compiling {file.path.name} for {options.accelerator_config}"):
            return compile_for_firmware(file, options)
    except Infeasible as error:
        with working("looking for the smallest size that works"):
            raise _with_smallest_size(error, file, options) from None


def _with_smallest_size(error: Infeasible, file: TfliteFile, options: EthosUOptions) -> Infeasible:
    """Return the error with the smallest sram_size that works, found by compiling for size.

    And with what it would be if the network's inputs need not survive, and if an output may lie in
    the memory of one, where that is less.
    """
    from tvm_ethosu.backend.network import compile_for_firmware

    unlimited = replace(options, sram_size=None, optimise="size")
    smallest = compile_for_firmware(file, unlimited).sram.total_bytes
    hint, least = "", smallest
    for flag, allowed in (
        ("--overwrite-inputs", replace(unlimited, overwrite_inputs=True)),
        ("--share-io", replace(unlimited, share_io=True)),
    ):
        size_bytes = compile_for_firmware(file, allowed).sram.total_bytes
        if size_bytes < least:
            hint += f", or {size_bytes} with {flag}"
            least = size_bytes
    return Infeasible(
        f"{error}\nthe smallest --sram-size that works is {smallest}{hint}",
        required_bytes=error.required_bytes,
        available_bytes=error.available_bytes,
    )
