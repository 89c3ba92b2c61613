"""The pictures as numbers: where each rectangle lies, in per mille of a picture's width.

Pictures are stretched to whatever width a screen has; all text stands beside them, as HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tvm_ethosu.backend.html.data import Cascade, Holding, Lane, MemoryChart, Moment, Piece

WIDTH = 1000
# A limit that is farther above all memory in use would only flatten the picture.
_FARTHEST_LIMIT = 1.6
_MOST_NUMBERS = 12


@dataclass(frozen=True)
class Box:
    """A rectangle of a picture, its kind of memory as a CSS class, and what it says."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


@dataclass(frozen=True)
class Band:
    """A part of the horizontal axis, in percent, and its label."""

    left: float
    width: float
    label: str
    is_npu: bool


@dataclass(frozen=True)
class MemoryPicture:
    """The memory over the program; heights are bytes, ``top_bytes`` is the height of it all."""

    boxes: tuple[Box, ...]
    scratch: tuple[Box, ...]
    top_bytes: int
    ticks: tuple[tuple[float, int], ...]
    bands: tuple[Band, ...]
    numbers: tuple[tuple[float, str], ...]
    limit_percent: float | None
    arena_percent: float


def css_class(holding: Holding) -> str:
    """Return the class that gives a kind of memory its colour."""
    return f"m-{holding.name.lower().replace('_', '-')}"


def nice_steps(top: int, most: int = 5) -> tuple[int, ...]:
    """Return round numbers from 0 up to ``top``, a power of two apart."""
    step = 16
    while top // step > most:
        step *= 2
    return tuple(range(0, top + 1, step))


def memory_picture(chart: MemoryChart) -> MemoryPicture:
    """Return the picture of a chart that has at least one moment."""
    used = max((moment.used_bytes for moment in chart.moments), default=0)
    used = max(used, chart.arena_bytes, 1)
    limit = chart.limit_bytes
    shown = limit is not None and limit <= used * _FARTHEST_LIMIT
    top = int(max(used, limit if shown and limit is not None else 0) * 1.04)
    step = WIDTH / max(len(chart.moments), 1)

    def box(piece: Piece) -> Box:
        title = f"{piece.name}{piece.detail}: {piece.size_bytes} bytes, {piece.holding.value}"
        height = 1000 * piece.size_bytes / top
        y = 1000 - 1000 * piece.offset_bytes / top - height
        left, right = piece.start * step, piece.stop * step
        return Box(left, y, right - left, height, css_class(piece.holding), title)

    return MemoryPicture(
        tuple(map(box, chart.pieces)),
        tuple(_scratch_boxes(chart.moments, step, top)),
        top,
        tuple((100 * tick / top, tick) for tick in nice_steps(top)),
        tuple(_bands(chart.moments)),
        tuple(_numbers(chart.moments)),
        100 * limit / top if shown and limit is not None else None,
        100 * chart.arena_bytes / top,
    )


def _runs(moments: Sequence[Moment]) -> list[tuple[int, int]]:
    """Return the moments ``[start, stop)`` of each NPU function, and CPU calls taken together."""
    runs: list[tuple[int, int]] = []
    for at, moment in enumerate(moments):
        if runs and moments[runs[-1][0]].place == moment.place:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs


def _scratch_boxes(moments: Sequence[Moment], step: float, top: int) -> Iterable[Box]:
    for start, stop in _runs(moments):
        size = moments[start].scratch_bytes
        if size:
            height = 1000 * size / top
            title = f"scratch of {moments[start].place}: {size} bytes"
            width = (stop - start) * step
            yield Box(start * step, 1000 - height, width, height, "scratch", title)


def _bands(moments: Sequence[Moment]) -> Iterable[Band]:
    share = 100 / max(len(moments), 1)
    for start, stop in _runs(moments):
        place = moments[start].place
        on_npu = place != "CPU"
        label = f"NPU function {place.rpartition('_')[2]}" if on_npu else place
        yield Band(start * share, (stop - start) * share, label, on_npu)


def _numbers(moments: Sequence[Moment]) -> Iterable[tuple[float, str]]:
    """Yield where places are numbered, as they are in the table of operators."""
    every = -(-len(moments) // _MOST_NUMBERS)
    for at, moment in enumerate(moments):
        number = moment.label.split(" ", 1)[0]
        if at % every == 0 and number.isdigit():
            yield 100 * (at + 0.5) / len(moments), number


@dataclass(frozen=True)
class LanePicture:
    """One operator of a cascade: even and odd stripes as outlines of rectangles."""

    lane: Lane
    even: str
    odd: str


def lane_pictures(cascade: Cascade) -> tuple[LanePicture, ...]:
    """Return the stripes of each operator: time to the right, rows downwards."""
    begin = min(stripe.start for lane in cascade.lanes for stripe in lane.stripes)
    scale = WIDTH / cascade.cycles

    def outline(lane: Lane, parity: int) -> str:
        parts = []
        for stripe in lane.stripes[parity::2]:
            x, width = (stripe.start - begin) * scale, (stripe.end - stripe.start) * scale
            y = 100 * stripe.first / lane.height
            height = 100 * (stripe.stop - stripe.first) / lane.height
            parts.append(f"M{x:.2f} {y:.2f}h{width:.2f}v{height:.2f}h-{width:.2f}z")
        return "".join(parts)

    return tuple(LanePicture(lane, outline(lane, 0), outline(lane, 1)) for lane in cascade.lanes)
