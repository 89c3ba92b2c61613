"""The picture of a sweep: cycles over SRAM, a field per network, a line per accelerator."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_ethosu.backend.bench.plots import require_matplotlib
from tvm_ethosu.backend.outputs import check_ending
from tvm_ethosu.backend.sweep import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".svg", ".png")
_COLUMNS = 3
# Colours of Okabe and Ito and a mark each: lines are told apart with any kind of colour vision.
_LOOKS = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#000000", "x"),
)
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "tvm-ethosu",  # else names inside the file differ from run to run
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6e9",
}


def check_plot(path: Path) -> None:
    """Check that a picture of this name can be drawn, before any work is done for it.

    Raises:
        UserError: the ending is unknown, or matplotlib is not installed.
    """
    check_ending("--plot", path, ENDINGS)
    require_matplotlib()


def picture(rows: Sequence[Row], kind: str) -> bytes:
    """Return the picture of rows as a file, ``svg`` or ``png``."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    models = list(dict.fromkeys(row.model for row in rows))
    columns = min(_COLUMNS, len(models)) or 1
    lines = math.ceil(len(models) / columns)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2.0 + 3.6 * columns, 0.6 + 3.0 * lines), layout="constrained")
        FigureCanvasAgg(figure)
        for place, model in enumerate(models, start=1):
            field = figure.add_subplot(lines, columns, place)
            _draw(field, model, [row for row in rows if row.model == model])
        handles: dict[Any, Any] = {}
        for field in figure.axes:
            found, labels = field.get_legend_handles_labels()
            handles |= dict(zip(labels, found, strict=True))
        if handles:
            figure.legend(handles.values(), handles.keys(), loc="outside right upper")
        buffer = io.BytesIO()
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=120, metadata=metadata)
    return buffer.getvalue()


def _draw(field: Axes, model: str, rows: Sequence[Row]) -> None:
    # No part of a name is mathematics, though matplotlib takes text between dollars for it.
    field.set_title(model, fontsize=9, parse_math=False)
    field.set_xlabel("SRAM limit, KiB")
    field.set_ylabel("thousand cycles")
    field.set_xscale("log", base=2)
    field.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    accelerators = list(dict.fromkeys(row.accelerator for row in rows))
    for at, name in enumerate(accelerators):
        colour, mark = _LOOKS[at % len(_LOOKS)]
        own = [row for row in rows if row.accelerator == name]
        points = [
            (row.sram_size / 1024, row.cycles / 1000) for row in own if row.cycles is not None
        ]
        field.plot(*zip(*points, strict=True) if points else ([], []), color=colour, marker=mark,
                   markersize=4, linewidth=1.2, label=name)  # fmt: skip
        needed = {row.needed_bytes for row in own if row.needed_bytes is not None}
        for size_bytes in needed:
            label = f"least of {name}"
            field.axvline(size_bytes / 1024, color=colour, linestyle=":", linewidth=1, label=label)
    field.set_ylim(0, 1.08 * max((row.cycles or 0 for row in rows), default=0) / 1000 or 1)
