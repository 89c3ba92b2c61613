"""``tvm-ethosu report``: a network as one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tvm_ethosu.backend.cli_options import JSON, MODEL, OUT, PROGRESS, npu_options, shows_progress
from tvm_ethosu.backend.html.render import (
    readable_bytes,
    readable_time,
    report_json,
    report_page,
)
from tvm_ethosu.partition.options import EthosUOptions, parse_size


def variants_asked(
    options: EthosUOptions, sizes: tuple[str, ...], accelerators: tuple[str, ...]
) -> dict[str, EthosUOptions]:
    """Return the options of each variant by its label: one thing differs from what is reported.

    Raises:
        UserError: a size or an accelerator is unknown.
    """
    found = {}
    for text in sizes:
        size_bytes = parse_size(text)
        found[f"{readable_bytes(size_bytes)} of SRAM"] = replace(options, sram_size=size_bytes)
    for name in accelerators:
        # The memory system is the other accelerator's usual one where it has none of this name.
        other = EthosUOptions(name)
        same = options.system_config in other.arch.system_configs
        config = options.system_config if same else None
        found[name] = replace(options, accelerator_config=name, system_config=config)
    return found


@click.command("report")
@MODEL
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The page, a .html file that needs no other.",
)
@npu_options
@click.option(
    "--compare-sram-size",
    "sizes",
    multiple=True,
    help="Compare with this much SRAM (64K, 1M); may be repeated.",
)
@click.option(
    "--compare-accelerator",
    "accelerators",
    multiple=True,
    help="Compare with this accelerator; may be repeated.",
)
@JSON
def report(
    model: Path,
    output: Path,
    options: EthosUOptions,
    sizes: tuple[str, ...],
    accelerators: tuple[str, ...],
    json_path: Path | None,
) -> None:
    """Write a page about MODEL: does it fit, how fast is it, where do time and memory go."""
    variants = variants_asked(options, sizes, accelerators)
    from rich.progress import track

    from tvm_ethosu.backend.html.gather import gather, variant
    from tvm_ethosu.backend.outcome import compile_or_least
    from tvm_ethosu.backend.outputs import write_json, write_text
    from tvm_ethosu.partition.tflite_file import load_tflite

    file = load_tflite(model)
    work = [("", options), *variants.items()]
    found = []
    hidden = not shows_progress()
    for label, each in track(
        work, f"compiling {model.name}", console=PROGRESS, transient=True, disable=hidden
    ):
        if label:
            found.append(variant(file, label, each))
        else:
            compilation = compile_or_least(file, each)
    data = gather(compilation, found)
    if json_path is not None:
        write_json(json_path, report_json(data))
    write_text(output, report_page(data))
    outcome = data.outcome
    fits = "fits" if outcome.fits else "does not fit"
    limit = "" if outcome.sram_size is None else f" of {outcome.sram_size} bytes, {fits}"
    OUT.print(f"SRAM: {outcome.sram_bytes} bytes{limit}", highlight=False)
    OUT.print(f"NPU: {outcome.cycles:.0f} cycles, {readable_time(outcome.milliseconds)}")
    OUT.print(f"{outcome.npu_operators} operators on the NPU, {outcome.cpu_operators} on the CPU")
    OUT.print(f"wrote {output}", markup=False)
