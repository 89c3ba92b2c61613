"""Pictures of cycles over SRAM: one file per accelerator, one field per network."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tvm_ethosu.backend.bench.results import CaseResult, Point
from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 4
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "tvm-ethosu",  # else names inside the file differ from run to run
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_OURS, _VELA = "#0b6e4f", "#c1440e"


def front(points: Iterable[Point]) -> tuple[tuple[int, float], ...]:
    """Return (SRAM, cycles) of the points that no other beats in both, by growing SRAM."""
    measured = sorted(
        (p.sram_bytes, p.cycles)
        for p in points
        if p.sram_bytes is not None and p.cycles is not None
    )
    kept: list[tuple[int, float]] = []
    for sram_bytes, cycles in measured:
        if not kept or cycles < kept[-1][1]:
            kept.append((sram_bytes, cycles))
    return tuple(kept)


def require_matplotlib() -> None:
    """Check that pictures can be drawn.

    Raises:
        UserError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(
            "plots: the package 'matplotlib' is not installed; pip install 'tvm-ethosu[bench]'"
        )


def picture(results: Sequence[CaseResult]) -> str:
    """Return an SVG file with the curves of both compilers for each network."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rows = math.ceil(len(results) / _COLUMNS)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.0 * _COLUMNS, 2.2 * rows), layout="constrained")
        FigureCanvasSVG(figure)
        for place, result in enumerate(results, start=1):
            _draw(figure.add_subplot(rows, _COLUMNS, place), result)
        curves = figure.axes[0].get_legend_handles_labels()
        figure.legend(*curves, loc="outside upper right", ncols=2)
        case = results[0].case
        figure.suptitle(f"{case.accelerator}, {case.memory_mode.value}: cycles over SRAM")
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _draw(field: Axes, result: CaseResult) -> None:
    field.set_title(result.case.network, fontsize=8)
    field.set_xlabel("SRAM, KiB")
    field.set_ylabel("thousand cycles")
    right = max((p.sram_bytes or 0 for p in (*result.vela, *result.ours)), default=0)
    for label, colour, points in (("Vela", _VELA, result.vela), ("ours", _OURS, result.ours)):
        measured = [p for p in points if p.sram_bytes is not None and p.cycles is not None]
        x = [(p.sram_bytes or 0) / 1024 for p in measured]
        field.plot(x, [(p.cycles or 0) / 1000 for p in measured], ".", color=colour, alpha=0.4)
        curve = front(measured)
        # The best result stays the best with more SRAM.
        ends = [*curve, (right, curve[-1][1])] if curve else []
        field.plot(
            [sram_bytes / 1024 for sram_bytes, _ in ends],
            [cycles / 1000 for _, cycles in ends],
            color=colour,
            drawstyle="steps-post",
            label=label,
        )
    field.set_ylim(bottom=0)
