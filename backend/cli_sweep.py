"""``tvm-ethosu sweep``: many networks, accelerators and sizes of SRAM in one table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.progress import track
from rich.table import Table

from tvm_ethosu.backend.bench.cache import Cache
from tvm_ethosu.backend.cli_options import JSON, OUT, PROGRESS, shows_progress
from tvm_ethosu.backend.html.render import readable_bytes, readable_time
from tvm_ethosu.backend.outputs import write_bytes, write_json, write_text
from tvm_ethosu.backend.sweep import (
    Row,
    Status,
    Sweep,
    jobs_of,
    parse_sizes,
    require_joblib,
    row_json,
    to_csv,
)
from tvm_ethosu.backend.sweep_plot import check_plot, picture
from tvm_ethosu.partition.options import OPTION_HELP, EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite
from tvm_ethosu.scheduler.arch import ARCHS
from tvm_ethosu.scheduler.errors import InternalError, UserError

_CACHE = Path(".cache/sweep")
_DEFAULT_ACCELERATORS = ",".join(arch.accelerator.value for arch in ARCHS)


def options_of(
    accelerators: str,
    memory_mode: str,
    system_config: str | None,
    overwrite_inputs: bool,
    share_io: bool = False,
) -> tuple[EthosUOptions, ...]:
    """Return the options of each accelerator in a list, in its order.

    Raises:
        UserError: a name is unknown.
    """
    names = dict.fromkeys(name.strip() for name in accelerators.split(","))
    return tuple(
        EthosUOptions(
            name,
            memory_mode=memory_mode,
            system_config=system_config,
            overwrite_inputs=overwrite_inputs,
            share_io=share_io,
        )
        for name in names
    )


def read_models(paths: Sequence[Path]) -> list[tuple[str, bytes]]:
    """Return the networks by the names of their files.

    Raises:
        UserError: one cannot be read, or two have one name.
    """
    found: dict[str, bytes] = {}
    for path in dict.fromkeys(paths):
        if path.name in found:
            raise UserError(f"{path}: another network of this sweep has the same name; rename one")
        found[path.name] = load_tflite(path).data
    return list(found.items())


def table(rows: Sequence[Row]) -> Table:
    """Return rows as a table for people."""
    made = Table("network", "accelerator", "SRAM limit", "SRAM used", "cycles", "time", box=None)
    for column in made.columns[2:]:
        column.justify = "right"
    for row in rows:
        head = (row.model, row.accelerator, readable_bytes(row.sram_size))
        if row.cycles is not None and row.milliseconds is not None:
            time = readable_time(row.milliseconds)
            made.add_row(*head, str(row.sram_bytes), f"{row.cycles:.0f}", time)
        elif row.needed_bytes is not None:
            made.add_row(*head, f"needs {row.needed_bytes}", "", "")
        else:
            made.add_row(*head, row.status.value, "", "")
    return made


@click.command("sweep")
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--accelerators",
    default=_DEFAULT_ACCELERATORS,
    help="NPUs, separated by commas; all by default.",
)
@click.option(
    "--sram",
    default="32K:1M",
    show_default=True,
    help="Sizes of SRAM: 32K,48K; or 32K:1M, doubled each time; or 32K:1M:9, nine of them.",
)
@click.option("--memory-mode", default="Shared_Sram", help=OPTION_HELP["memory_mode"])
@click.option("--system-config", default=None, help=OPTION_HELP["system_config"])
@click.option("--overwrite-inputs", is_flag=True, help=OPTION_HELP["overwrite_inputs"])
@click.option("--share-io", is_flag=True, help=OPTION_HELP["share_io"])
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the rows as a .csv file."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Write a picture: a file .svg or .png."
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=None,
    help="Processes; one per core by default.",
)
@click.option("--cluster", default=None, help="Work on a Dask cluster at this address instead.")
@click.option("--no-cache", is_flag=True, help="Compile again what was compiled before.")
@JSON
def sweep(
    models: tuple[Path, ...], accelerators: str, sram: str, memory_mode: str,
    system_config: str | None, overwrite_inputs: bool, share_io: bool, output: Path | None,
    plot: Path | None, workers: int | None, cluster: str | None, no_cache: bool,
    json_path: Path | None,
) -> None:  # fmt: skip
    """Compile MODELS for all accelerators within all sizes of SRAM, and compare."""
    require_joblib()
    sizes = parse_sizes(sram)
    options = options_of(accelerators, memory_mode, system_config, overwrite_inputs, share_io)
    if plot is not None:
        check_plot(plot)
    jobs = jobs_of(read_models(models), options, sizes)
    cache = Cache(_CACHE, reads=not no_cache)
    made = Sweep(jobs, cache, workers or os.cpu_count() or 1, cluster)
    try:
        run(made)
    finally:
        # Interrupted as well: what is done is a result.
        rows = made.rows()
        if rows:
            write(rows, output, plot, json_path)
    OUT.print(table(rows))
    for path in filter(None, (output, plot)):
        OUT.print(f"wrote {path}", markup=False)
    failed = [row for row in rows if row.status is Status.FAILED]
    if failed:
        raise InternalError(
            f"{len(failed)} of {len(rows)} combinations failed, the first with: {failed[0].reason}"
        )


def run(made: Sweep) -> None:
    """Do what is not done yet, with a bar on a terminal."""
    while missing := made.missing():
        bar = track(
            made.run(missing),
            f"compiling {len(missing)}, {len(made.jobs) - len(missing)} done before",
            total=len(missing),
            console=PROGRESS,
            transient=True,
            disable=not shows_progress(),
        )
        for _ in bar:
            pass


def write(
    rows: Sequence[Row], output: Path | None, plot: Path | None, json_path: Path | None
) -> None:
    """Write rows into each file that was asked for, each whole or not at all."""
    if output is not None:
        write_text(output, to_csv(rows))
    if json_path is not None:
        write_json(json_path, [row_json(row) for row in rows])
    if plot is not None:
        write_bytes(plot, picture(rows, plot.suffix.lower()[1:]))
