"""From points to verdicts: opponents, budgets, ratios. Numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tvm_ethosu.backend.bench.results import (
    AT_FASTEST,
    AT_LEAST,
    OWN_LEAST,
    CaseResult,
    Chain,
    Point,
)
from tvm_ethosu.scheduler.arch import ALIGN_BYTES

TARGET_AT_FASTEST = 0.95
TARGET_AT_LEAST = 0.70
TARGET_LEAST_SRAM = 0.65
MAX_RISE = 0.01
_SHARES = (75, 50, 25)


def opponent(vela: Iterable[Point], limit_bytes: int) -> Point | None:
    """Return the one of Vela's results within so much SRAM that takes the fewest cycles."""
    return best(point for point in vela if point.is_measured and _sram(point) <= limit_bytes)


def best(points: Iterable[Point]) -> Point | None:
    """Return the point with the fewest cycles, of equal ones that with the least SRAM."""
    measured = (point for point in points if point.is_measured)
    return min(measured, key=lambda p: (_cycles(p), _sram(p)), default=None)


def least_sram(points: Iterable[Point]) -> Point | None:
    """Return the point with the least SRAM, of equal ones that with the fewest cycles."""
    measured = (point for point in points if point.is_measured)
    return min(measured, key=lambda p: (_sram(p), _cycles(p)), default=None)


def budgets(vela: Sequence[Point]) -> dict[str, int]:
    """Return the budgets at which ours is measured against Vela, by name, the largest first.

    Steps between Vela's fastest and its least are multiples of 16 bytes; equal ones appear once.
    """
    fastest, least = best(vela), least_sram(vela)
    if fastest is None or least is None:
        return {}
    high, low = _sram(fastest), _sram(least)
    named = {AT_FASTEST: high}
    for share in _SHARES:
        step = low + (high - low) * share // 100
        named[f"{share} % between"] = step // ALIGN_BYTES * ALIGN_BYTES
    named[AT_LEAST] = low
    if high == low:
        return {AT_FASTEST: high, AT_LEAST: low}
    return {name: size for name, size in named.items() if size >= low}


@dataclass(frozen=True)
class Duel:
    """Ours and the opponent at one budget; either may be missing."""

    limit_bytes: int
    ours: Point | None
    vela: Point | None

    @property
    def ratio(self) -> float | None:
        """Return our cycles over the opponent's; None where one is missing, wrong or 0.

        No cycles at all means that the whole network is on the CPU.
        """
        if self.ours is None or self.vela is None or not self.ours.is_right:
            return None
        mine, theirs = _cycles(self.ours), _cycles(self.vela)
        return mine / theirs if mine and theirs else None


def duel(result: CaseResult, setting: str) -> Duel | None:
    """Return what both reach at a budget; None if Vela compiled nothing."""
    limit_bytes = budgets(result.vela).get(setting)
    if limit_bytes is None:
        return None
    ours = next((p for p in result.ours if p.setting == setting), None)
    return Duel(limit_bytes, ours, opponent(result.vela, limit_bytes))


def least_ratio(result: CaseResult) -> float | None:
    """Return our least SRAM over Vela's least; None where one is missing, wrong or 0."""
    vela = least_sram(result.vela)
    ours = next((p for p in result.ours if p.setting == OWN_LEAST), None)
    if vela is None or ours is None or not ours.is_right or not _sram(vela):
        return None
    return _sram(ours) / _sram(vela)


def largest_rise(ours: Sequence[Point]) -> float | None:
    """Return by what share cycles rise at most as the budget grows; None below two budgets.

    Each point is compared with the fastest one of any smaller budget. A point without a limit
    has the largest budget; the one optimised for size is no point of this curve.
    """
    curve = sorted(
        (p for p in ours if p.is_measured and p.setting != OWN_LEAST),
        key=lambda p: math.inf if p.limit_bytes is None else p.limit_bytes,
    )
    if len(curve) < 2:
        return None
    fewest, rise = _cycles(curve[0]), 0.0
    for point in curve[1:]:
        if fewest:
            rise = max(rise, _cycles(point) / fewest - 1)
        fewest = min(fewest, _cycles(point))
    return rise


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the ratios that are there; None if there is none."""
    logs = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def is_whole_on_npu(result: CaseResult) -> bool:
    """Return whether neither compiler left an operator to the CPU."""
    measured = [p for p in (*result.vela, *result.ours) if p.is_measured]
    return bool(measured) and not any(point.cpu_operators for point in measured)


def refusals(results: Iterable[CaseResult]) -> Mapping[str, str]:
    """Return network -> reason where ours compiled nothing at any budget."""
    return {
        r.case.network: r.ours[0].refusal or r.ours[0].complaint
        for r in results
        if r.ours and not any(point.is_measured for point in r.ours)
    }


def growth(chains: Sequence[Chain]) -> float | None:
    """Return the power of the number of operators by which seconds grow, last step of a chain.

    The seconds of the shortest chain are subtracted: starting Python and TVM does not grow.
    """
    finite = (chain for chain in chains if math.isfinite(chain.seconds))
    ordered = sorted(finite, key=lambda chain: chain.operators)
    if len(ordered) < 3:
        return None
    base, before, last = ordered[0].seconds, ordered[-2], ordered[-1]
    if before.seconds <= base or last.seconds <= base:
        return None
    seconds = (last.seconds - base) / (before.seconds - base)
    operators = (last.operators - ordered[0].operators) / (before.operators - ordered[0].operators)
    return math.log(seconds) / math.log(operators)


def _sram(point: Point) -> int:
    assert point.sram_bytes is not None
    return point.sram_bytes


def _cycles(point: Point) -> float:
    assert point.cycles is not None
    return point.cycles
