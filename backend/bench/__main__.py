"""``python -m tvm_ethosu.backend.bench [MODEL.tflite ...]``: measure, then write page and plots."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.bench.cache import Cache
from tvm_ethosu.backend.bench.page import markdown
from tvm_ethosu.backend.bench.plots import picture, require_matplotlib
from tvm_ethosu.backend.bench.runner import Plan, measure
from tvm_ethosu.backend.demo_network import cache_folder, extract, list_networks
from tvm_ethosu.backend.failures import told
from tvm_ethosu.backend.outputs import write_text
from tvm_ethosu.scheduler.errors import UserError

ACCELERATORS = ("ethos-u55-128", "ethos-u55-256", "ethos-u65-512")


def choose_models(models: tuple[Path, ...], networks: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the files to measure: those of the package by name, then the paths.

    Without names all networks of the package are taken.

    Raises:
        UserError: a name is not known, a file is missing, or two have the same name.
    """
    names = networks or tuple(network.name for network in list_networks())
    chosen = (*extract([name for name in names if name != "none"]).values(), *models)
    for path in chosen:
        if not path.is_file():
            raise UserError(f"{path}: no such file")
    stems = [path.stem for path in chosen]
    double = next((stem for stem in stems if stems.count(stem) > 1), None)
    if double is not None:
        raise UserError(f"bench: two networks have the same name (got {double!r} twice)")
    if not chosen:
        raise UserError("bench: no network to measure (give a path, or not --networks none)")
    return chosen


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("models", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the page here.")
@click.option("--networks", multiple=True, help="A network of the package; 'none' for paths only.")
@click.option(
    "--accelerators",
    multiple=True,
    type=click.Choice([accelerator.value for accelerator in sim.Accelerator]),
    default=ACCELERATORS,
    show_default=True,
)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@click.option("--no-cache", is_flag=True, help="Measure again what was measured before.")
def command(
    models: tuple[Path, ...],
    output: Path | None,
    networks: tuple[str, ...],
    accelerators: tuple[str, ...],
    workers: int,
    no_cache: bool,
) -> None:
    """Measure networks with both compilers; MODELS are further .tflite files."""
    if output is not None:
        require_matplotlib()
    plan = Plan(choose_models(models, networks), tuple(dict.fromkeys(accelerators)))
    cache = Cache(cache_folder().parent / "bench", reads=not no_cache)
    results = measure(plan, cache, workers, Console(stderr=True))
    text = markdown(results)
    if output is None:
        click.echo(text)
        return
    for accelerator in results.accelerators:
        path = output.with_suffix("") / f"{accelerator}.svg"
        write_text(path, picture(results.on(accelerator)))
    write_text(output, text)
    click.echo(f"wrote {output}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        command.main(args=arguments, prog_name="bench", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return told(error, "bench", "; the next run goes on from here")
    return 0


if __name__ == "__main__":
    sys.exit(main())
