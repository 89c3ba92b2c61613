"""The page itself: one file that needs nothing else, whatever names a model has."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from importlib import resources
from typing import Any

import jinja2

import tvm_ethosu
from tvm_ethosu.backend.html.data import Holding, MemoryChart, OperatorRow, ReportData
from tvm_ethosu.backend.html.pictures import css_class, lane_pictures, memory_picture

_PACKAGE = "tvm_ethosu.backend"
_MOST_PIECES = 12


def group_digits(value: float) -> str:
    """Return a number rounded to an integer, its digits in groups of three."""
    return f"{round(value):,}".replace(",", "\u202f")


def readable_bytes(size_bytes: int) -> str:
    """Return a size as a person would say it: in bytes, KiB or MiB."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    if size_bytes < 1024 * 1024:
        return f"{size_bytes / 1024:.1f}".removesuffix(".0") + " KiB"
    return f"{size_bytes / (1024 * 1024):.2f}".removesuffix(".00") + " MiB"


def readable_time(milliseconds: float) -> str:
    """Return a time with three digits that matter."""
    if milliseconds < 1:
        return f"{1000 * milliseconds:.3g} µs"
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        digits=group_digits, bytes=readable_bytes, time=readable_time, percent=_percent
    )
    return environment


def _own(name: str) -> str:
    """Return a file of ours that becomes part of the page as it is."""
    return (resources.files(_PACKAGE) / "templates" / name).read_text(encoding="utf-8")


def _script_hash(script: str) -> str:
    """Return what the page's policy allows to run: this script and no other."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def moments_json(chart: MemoryChart) -> list[dict[str, Any]]:
    """Return what the page shows of each place of the program when it is chosen."""

    def pieces(at: int) -> list[dict[str, Any]]:
        return [
            {
                "name": piece.name,
                "kind": css_class(piece.holding),
                "what": piece.holding.value + piece.detail,
                "bytes": group_digits(piece.size_bytes),
            }
            for piece in chart.at(at)[:_MOST_PIECES]
        ]

    return [
        {
            "label": moment.label,
            "place": moment.place,
            "used": group_digits(moment.used_bytes),
            "pieces": pieces(at),
            "more": max(len(chart.at(at)) - _MOST_PIECES, 0),
        }
        for at, moment in enumerate(chart.moments)
    ]


def limits_of_speed(data: ReportData) -> tuple[tuple[str, float], ...]:
    """Return the share of the time of each thing that is waited for, the largest first."""
    cycles: dict[str, float] = {}
    for row in data.operators:
        if row.cycles:
            cycles[row.limited_by] = cycles.get(row.limited_by, 0.0) + row.cycles
    waiting = sum(function.waiting_cycles for function in data.functions)
    if waiting:
        cycles["weights on their way to SRAM"] = waiting
    total = sum(cycles.values())
    ordered = sorted(cycles.items(), key=lambda item: (-item[1], item[0]))
    return tuple((name, value / total) for name, value in ordered)


def report_json(data: ReportData) -> dict[str, Any]:
    """Return all that the page shows as JSON data."""

    def plain(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value.value if isinstance(value, Enum) else value for key, value in pairs}

    return asdict(data, dict_factory=plain)


def _holdings(chart: MemoryChart) -> Sequence[tuple[str, str]]:
    used = {piece.holding for piece in chart.pieces}
    return [(css_class(holding), holding.value) for holding in Holding if holding in used]


def on_cpu(data: ReportData) -> tuple[tuple[str, list[OperatorRow]], ...]:
    """Return the operators on the CPU by the reason why they are there."""
    found: dict[str, list[OperatorRow]] = {}
    for row in data.operators:
        if not row.on_npu:
            found.setdefault(row.reason, []).append(row)
    return tuple(found.items())


def report_page(data: ReportData) -> str:
    """Return the page."""
    script = _own("report.js")
    longest = max((row.cycles for row in data.operators), default=0.0)
    slowest = max([data.outcome.cycles, *(v.outcome.cycles for v in data.variants if v.outcome)])
    template = _environment().get_template("report.html.in")
    return template.render(
        data=data,
        version=tvm_ethosu.__version__,
        style=_own("report.css"),
        script=script,
        script_hash=_script_hash(script),
        picture=memory_picture(data.memory),
        moments=moments_json(data.memory),
        legend=_holdings(data.memory),
        limits=limits_of_speed(data),
        on_cpu=on_cpu(data),
        lanes=[(cascade, lane_pictures(cascade)) for cascade in data.cascades],
        longest=longest,
        slowest=slowest,
    )
