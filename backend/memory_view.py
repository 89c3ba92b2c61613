"""Who holds the memory of a network, call by call: as a table, as JSON, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
import tvm
from rich.table import Table

from tvm_ethosu.backend.network import partition_file
from tvm_ethosu.backend.outputs import check_ending
from tvm_ethosu.partition import EthosUOptions, analyze_used_memory
from tvm_ethosu.partition.liveness import Role
from tvm_ethosu.partition.memory_report import CallReport, LiveTensor, UsedMemoryReport
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.tflite_file import TfliteFile
from tvm_ethosu.scheduler.dump import short_origin
from tvm_ethosu.scheduler.errors import Infeasible

_MOST_HOLDERS = 3


@dataclass(frozen=True)
class MemoryView:
    """The memory report of a network, and the SRAM that it may use (None: no limit)."""

    model: str
    accelerator: str | None
    sram_size: int | None
    report: UsedMemoryReport


def view_memory(file: TfliteFile, options: EthosUOptions | None, size: int | None) -> MemoryView:
    """Analyse a network, partitioned for an NPU if there are options for one."""
    if options is None:
        mod, params = to_relay(file)
        return MemoryView(file.path.name, None, size, analyze_used_memory(mod, params, target="c"))
    target = f"ethos-u/{options.accelerator_config}"
    report = analyze_used_memory(_partitioned(file, options), target=target)
    return MemoryView(file.path.name, options.accelerator_config, size, report)


def _partitioned(file: TfliteFile, options: EthosUOptions) -> tvm.IRModule:
    """Return the network planned for its limit, or with the least memory where that is missed.

    Then the point is to see by how much.
    """
    try:
        return partition_file(file, options)
    except Infeasible:
        return partition_file(file, replace(options, sram_size=None, optimise="size"))


def held_bytes(call: CallReport) -> int:
    """Return the SRAM in use during a call: live tensors, and idle network inputs and outputs."""
    return sum(tensor.aligned_bytes for tensor in (*call.live, *call.idle_io))


def left_bytes(view: MemoryView, call: CallReport) -> int | None:
    """Return what a call leaves of the SRAM; negative if it does not fit, None without a limit."""
    return None if view.sram_size is None else view.sram_size - held_bytes(call)


def _holder(tensor: LiveTensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    what = "scratch" if tensor.role is Role.SCRATCH else f"{tensor.dtype} {shape}"
    return f"{tensor.size_bytes} {what}"


def _holders(call: CallReport) -> str:
    ordered = sorted(call.live, key=lambda tensor: -tensor.size_bytes)
    shown = [_holder(tensor) for tensor in ordered[:_MOST_HOLDERS]]
    more = len(ordered) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "")


def memory_table(view: MemoryView) -> Table:
    """Return one row per call, in order; the peak is marked with an arrow."""
    table = Table("", "#", "function", "live bytes", "used_memory", "held by", box=None)
    for column in (3, 4):
        table.columns[column].justify = "right"
    if view.sram_size is not None:
        table.add_column(f"left of {view.sram_size}", justify="right")
    for index, call in enumerate(view.report.calls):
        mark = "→" if index == view.report.peak_index else ""
        name = call.function + (" (NPU)" if call.is_npu else "")
        cells = [str(call.during_bytes), str(call.used_memory_bytes), _holders(call)]
        left = left_bytes(view, call)
        table.add_row(mark, str(index), name, *cells, *([] if left is None else [str(left)]))
    return table


def memory_json(view: MemoryView) -> dict[str, Any]:
    """Return the view as JSON data."""

    def tensor(of: LiveTensor) -> dict[str, Any]:
        return {
            "name": of.name,
            "shape": list(of.shape),
            "dtype": of.dtype,
            "bytes": of.size_bytes,
            "role": of.role.value,
            "producer": of.producer,
            "last_consumer": of.last_consumer,
        }

    return {
        "model": view.model,
        "accelerator": view.accelerator,
        "sram_size": view.sram_size,
        "peak_bytes": view.report.peak_bytes,
        "peak_call": view.report.peak_index,
        "io_used_memory_bytes": view.report.io_used_memory_bytes,
        "prepared_by": list(view.report.prepared_by),
        "calls": [
            {
                "function": call.function,
                "operators": list(call.operators),
                "is_npu": call.is_npu,
                "used_memory_bytes": call.used_memory_bytes,
                "before_bytes": call.before_bytes,
                "during_bytes": call.during_bytes,
                "after_bytes": call.after_bytes,
                "left_bytes": left_bytes(view, call),
                "live": [tensor(of) for of in call.live],
                "idle_io": [tensor(of) for of in call.idle_io],
            }
            for call in view.report.calls
        ],
    }


# Colours of Okabe and Ito, told apart with any kind of colour vision.
_COLOURS = {
    Role.INPUT: "#56B4E9",
    Role.OUTPUT: "#009E73",
    Role.INNER: "#E69F00",
    Role.SCRATCH: "#CC79A7",
    Role.CONSTANT: "#999999",
}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 420, 80, 50, 60


@dataclass(frozen=True)
class _Bar:
    """One tensor during one call, as a rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str


def _bars(view: MemoryView, step: float, scale: float) -> list[_Bar]:
    bars = []
    for index, call in enumerate(view.report.calls):
        top = float(_HEIGHT - _BOTTOM)
        for tensor in call.live:
            height = tensor.size_bytes * scale
            top -= height
            title = (
                f"{short_origin(tensor.name)}: {_holder(tensor)} bytes, from {tensor.producer} "
                f"to {tensor.last_consumer}"
            )
            x = _LEFT + index * step
            bars.append(_Bar(x, top, step * 0.92, height, _COLOURS[tensor.role], title))
    return bars


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("tvm_ethosu.backend", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def memory_svg(view: MemoryView) -> str:
    """Return the picture: a column per call, its live tensors stacked, the peak marked."""
    calls = view.report.calls
    highest = max(view.report.peak_bytes, view.sram_size or 0, 1)
    scale = (_HEIGHT - _TOP - _BOTTOM) / highest
    step = (_WIDTH - _LEFT - 20) / max(len(calls), 1)
    base = _HEIGHT - _BOTTOM
    peak = view.report.peak_index
    return (
        _environment()
        .get_template("memory.svg.in")
        .render(
            width=_WIDTH,
            height=_HEIGHT,
            left=_LEFT,
            base=base,
            step=step,
            view=view,
            bars=_bars(view, step, scale),
            calls=[(index, call, _LEFT + index * step) for index, call in enumerate(calls)],
            peak_x=_LEFT + peak * step + step / 2,
            peak_y=base - view.report.peak_bytes * scale,
            limit_y=None if view.sram_size is None else base - view.sram_size * scale,
            ticks=[(base - highest * scale * part / 4, highest * part // 4) for part in range(5)],
            legend=[
                (role.value, colour) for role, colour in _COLOURS.items() if _shown(view, role)
            ],
        )
    )


def _shown(view: MemoryView, role: Role) -> bool:
    return any(tensor.role is role for call in view.report.calls for tensor in call.live)


def memory_page(view: MemoryView) -> str:
    """Return a self-contained HTML page: the picture and the table."""
    rows = [
        (index, call, _holders(call), left_bytes(view, call))
        for index, call in enumerate(view.report.calls)
    ]
    template = _environment().get_template("memory.html.in")
    return template.render(view=view, svg=memory_svg(view), rows=rows)


_PLOTS: Mapping[str, Callable[[MemoryView], str]] = MappingProxyType(
    {".svg": memory_svg, ".html": memory_page}
)


def check_plot(path: Path) -> None:
    """Check that a picture can be written to a file of this name, before there is one.

    Raises:
        UserError: the name ends neither in .svg nor in .html.
    """
    check_ending("--plot", path, tuple(_PLOTS))


def plot_text(view: MemoryView, path: Path) -> str:
    """Return the picture in the form that the name of a checked file asks for."""
    return _PLOTS[path.suffix.lower()](view)
