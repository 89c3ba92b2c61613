"""``tvm-ethosu firmware`` and ``tvm-ethosu machine run``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from tvm_ethosu.backend.cli_options import (
    ACCELERATOR_HELP,
    JSON,
    MODEL,
    OUT,
    compile_or_explain,
    input_options,
    npu_options,
    say,
    working,
)
from tvm_ethosu.backend.machine import RUNNABLE
from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.scheduler.errors import UserError

EXIT_FIRMWARE_FAILED: Final = 3
EXIT_NOT_ENDED: Final = 4


@click.command()
@MODEL
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for the project, or file for the archive.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(("project", "mlf")),
    default="project",
    show_default=True,
    help="project: a folder that builds. mlf: C and driver as a Model Library Format archive.",
)
@npu_options
@input_options
@JSON
@click.pass_context
def firmware(
    ctx: click.Context,
    model: Path,
    output: Path,
    kind: str,
    options: EthosUOptions,
    input_paths: tuple[Path, ...],
    seed: int,
    count: int,
    json_path: Path | None,
) -> None:
    """Write MODEL as a bare-metal project that builds with make and arm-none-eabi-gcc."""
    from tvm_ethosu.backend.check import load_inputs
    from tvm_ethosu.backend.mlf import write_mlf
    from tvm_ethosu.backend.outputs import write_json
    from tvm_ethosu.backend.project import make_cases, write_project
    from tvm_ethosu.backend.report import compile_report, memory_table
    from tvm_ethosu.partition.tflite_file import load_tflite

    if kind == "mlf":
        _refuse_inputs(ctx)
    file = load_tflite(model)
    inputs = [load_inputs(file, input_paths)] if input_paths else []
    network = compile_or_explain(file, options)
    if kind == "mlf":
        write_mlf(network.factory, output)
        done = f"wrote an archive to {output}"
    else:
        with working(f"running {model.name} for the results to expect"):
            cases = make_cases(file, options, inputs, count=count, seed=seed)
        write_project(file, network, cases, output)
        sets = "1 set" if len(cases) == 1 else f"{len(cases)} sets"
        folder = shlex.quote(str(output))
        done = f"wrote a project with {sets} of inputs to {output}\nnext: make -C {folder} run"
    report = compile_report(file, network)
    if json_path is not None:
        write_json(json_path, report)
    OUT.print(memory_table(report))
    OUT.print(done, markup=False)


def _refuse_inputs(ctx: click.Context) -> None:
    """Refuse what only a project can hold.

    Raises:
        UserError: an option of inputs was given.
    """
    for name, option in (("input_paths", "--input"), ("count", "--count"), ("seed", "--seed")):
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise UserError(
                f"firmware: {option} is for --format project, an archive of --format mlf holds no "
                f"inputs; leave {option} out"
            )


@click.group()
def machine() -> None:
    """Run firmware without a board."""


@machine.command("run")
@click.argument("elf", type=click.Path(path_type=Path))
@click.option(
    "--machine",
    "name",
    type=click.Choice(RUNNABLE),
    default=RUNNABLE[0],
    show_default=True,
    help="unicorn: the machine that comes with tvm-ethosu. fvp: Arm's, where it is installed.",
)
@click.option(
    "--accelerator", default=None, help=ACCELERATOR_HELP + " The one that ELF names by default."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds after which a run is ended.",
)
@JSON
def machine_run(
    elf: Path, name: str, accelerator: str | None, timeout: float, json_path: Path | None
) -> None:
    """Run the firmware ELF, show what it prints, and end as it ends."""
    try:
        from tvm_ethosu.backend.machine.run import run_elf
    except ModuleNotFoundError as error:
        if error.name not in ("unicorn", "elftools"):
            raise
        raise UserError(
            f"machine: the package '{error.name}' is not installed; "
            "pip install 'tvm-ethosu[machine]'"
        ) from None
    from tvm_ethosu.backend.outputs import write_json

    with working(f"running {elf.name}"):
        result = run_elf(elf, name, accelerator, timeout)
    if json_path is not None:
        write_json(json_path, result.report())
    say(result.console.removesuffix("\n"))
    say(str(result))
    if result.status is None:
        raise click.exceptions.Exit(EXIT_NOT_ENDED)
    if result.status != 0:
        raise click.exceptions.Exit(EXIT_FIRMWARE_FAILED)
