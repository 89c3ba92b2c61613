"""docs/benchmarks.md from results: text and tables, no measuring."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from tvm_ethosu.backend.bench.judge import (
    MAX_RISE,
    TARGET_AT_FASTEST,
    TARGET_AT_LEAST,
    TARGET_LEAST_SRAM,
    Duel,
    best,
    duel,
    geometric_mean,
    growth,
    is_whole_on_npu,
    largest_rise,
    least_ratio,
    opponent,
    refusals,
)
from tvm_ethosu.backend.bench.measure_ours import CHECKED_INPUTS
from tvm_ethosu.backend.bench.results import (
    AT_FASTEST,
    AT_LEAST,
    OWN_LEAST,
    TIME_LIMIT_SECONDS,
    CaseResult,
    Chain,
    Point,
    Results,
)

_SETTINGS = ("Performance", "Size", "75 %", "50 %", "25 %")
_CORES = ("regor", "legacy")
_SMALL_BYTES = 1_000_000
_SMALL_SECONDS, _LARGE_SECONDS = 6.0, 20.0

_INTRODUCTION = f"""# Benchmarks

Made by `make bench`; don't edit. Networks on accelerators at several limits of SRAM, compiled by
this project and by ethos-u-vela, both of its cores. Another run of the same sources gives the same
figures, seconds apart.

What is counted:

- **Cycles** are the simulator's estimate ([cycle-model.md](cycle-model.md)) of all NPU calls of one
  inference, for both compilers alike. They have not been compared with silicon. An operator on the
  CPU costs no cycles here, in either: where the two columns of CPU operators differ, so does the
  work.
- **SRAM**, Shared_Sram: the whole arena, network inputs and outputs included. Ours is what TVM
  planned, with the working memory of CPU operators. Vela's is its arena, in which tensors between
  CPU operators are; what the runtime needs besides to run them is not known to it, and not counted.
  Both may overwrite network inputs and put the output in their memory (`--share-io`), as Vela
  always does.
  Dedicated_Sram: the SRAM alone; the arena is in DRAM.
- **At NPU calls**: the most bytes that TVM counts as live at any call of an NPU function of ours,
  raw, and without inputs and outputs that are not live then. What the arena has beyond that belongs
  to CPU operators, to idle inputs and outputs, to alignment, or is lost between tensors.
- **Vela at a limit**: the result with the fewest cycles that fits it, out of both cores in
  Performance, in Size, and in Performance with `--arena-cache-size` at 75, 50 and 25 % of what
  Performance took. Vela may exceed what it was asked for.
- **Right**: what our NPU functions gave on the simulator are TFLite Micro's values, byte by byte,
  on {CHECKED_INPUTS} random inputs, and the simulator reported no race, no access outside of a
  region, and no read of a byte that nobody wrote. Where one of ours is not right there is no ratio.
  Vela's results count in any case; what is not right of them is marked.
- All streams of both compilers are run on the simulator, Vela's on one random input.
"""


def markdown(results: Results) -> str:
    """Return the page; pictures are in the folder ``benchmarks`` beside it."""
    parts = [_INTRODUCTION, _verdicts(results)]
    parts += [_accelerator(results.on(name)) for name in results.accelerators]
    parts += [_compile_times(results), _chains(results.chains)]
    return "\n".join(part for part in parts if part)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar in a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _cycles(point: Point | None) -> str:
    return "-" if point is None or point.cycles is None else f"{point.cycles:.0f}"


def _sram(point: Point | None) -> str:
    return "-" if point is None or point.sram_bytes is None else str(point.sram_bytes)


# --- the verdict --------------------------------------------------------------------------------


def _verdicts(results: Results) -> str:
    names = results.accelerators
    questions: list[tuple[str, Callable[[Sequence[CaseResult]], str]]] = [
        (
            f"cycles at Vela's fastest SRAM, ours / Vela, geometric mean <= {TARGET_AT_FASTEST}",
            lambda r: _mean(_ratios(r, AT_FASTEST), TARGET_AT_FASTEST),
        ),
        (
            "… networks on which ours takes more cycles than Vela: none",
            lambda r: _slower(_ratios(r, AT_FASTEST)),
        ),
        (
            "… geometric mean where neither leaves an operator to the CPU",
            lambda r: _mean(_ratios([x for x in r if is_whole_on_npu(x)], AT_FASTEST), None),
        ),
        (
            f"cycles at Vela's least SRAM, ours / Vela, geometric mean <= {TARGET_AT_LEAST:.2f}",
            lambda r: _mean(_ratios(r, AT_LEAST), TARGET_AT_LEAST),
        ),
        (
            f"least SRAM, ours / Vela, geometric mean <= {TARGET_LEAST_SRAM}",
            lambda r: _mean([least_ratio(x) for x in r], TARGET_LEAST_SRAM),
        ),
        (
            f"largest rise of cycles as SRAM grows <= {MAX_RISE:.0%}",
            _worst_rise,
        ),
        ("our results that are not right: none", _wrong),
    ]
    rows = [[text, *(answer(results.on(name)) for name in names)] for text, answer in questions]
    return "\n## Targets\n\n" + table(["target", *names], rows)


def _ratios(results: Iterable[CaseResult], setting: str) -> list[float | None]:
    return [d.ratio if (d := duel(result, setting)) else None for result in results]


def _judged(text: str, is_met: bool) -> str:
    return f"{text}, {'met' if is_met else 'MISSED'}"


def _mean(ratios: Sequence[float | None], target: float | None) -> str:
    mean = geometric_mean(ratios)
    if mean is None:
        return "no result"
    count = sum(ratio is not None for ratio in ratios)
    text = f"{mean:.3f} ({count} of {len(ratios)} networks)"
    # A mean over some of the networks proves nothing of the others.
    return text if target is None else _judged(text, mean <= target and count == len(ratios))


def _slower(ratios: Sequence[float | None]) -> str:
    found = [ratio for ratio in ratios if ratio is not None]
    slower = sum(ratio > 1 for ratio in found)
    return _judged(f"{slower} of {len(found)}", slower == 0) if found else "no result"


def _worst_rise(results: Iterable[CaseResult]) -> str:
    rises = [(r, x.case.network) for x in results if (r := largest_rise(x.ours)) is not None]
    if not rises:
        return "no result"
    rise, network = max(rises)
    return _judged(f"{rise:.1%} ({network})" if rise else "0 %", rise <= MAX_RISE)


def _wrong(results: Iterable[CaseResult]) -> str:
    points = [p for result in results for p in result.ours if p.is_measured or p.is_wrong]
    wrong = sum(point.is_wrong for point in points)
    return _judged(f"{wrong} of {len(points)}", wrong == 0) if points else "no result"


# --- one accelerator ----------------------------------------------------------------------------


def _accelerator(results: Sequence[CaseResult]) -> str:
    case = results[0].case
    text = (
        f"\n## {case.accelerator}, {case.memory_mode.value}\n\nSystem "
        f"{case.vela_options.system_config}.\n\n"
        f"![cycles over SRAM](benchmarks/{case.accelerator}.svg)\n"
    )
    text += "\n### At Vela's two ends\n\n" + _ends(results)
    text += "\n### All our results\n\n" + _our_points(results)
    text += "\n### All of Vela's results\n\nSRAM in bytes / cycles.\n\n" + _vela_points(results)
    return text + _notes(results)


def _cpu_operators(points: Iterable[Point]) -> str:
    counts = sorted({point.cpu_operators for point in points if point.is_measured})
    return "-" if not counts else "…".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))


def _ends(results: Sequence[CaseResult]) -> str:
    heads = ["network", "CPU operators, ours", "Vela", "SRAM of Vela's fastest", "Vela's cycles"]
    heads += ["ours", "ratio", "Vela's least SRAM", "Vela's cycles", "ours", "ratio"]
    heads += ["our least SRAM", "ratio"]
    rows = []
    for result in results:
        row = [result.case.network, _cpu_operators(result.ours), _cpu_operators(result.vela)]
        row += [cell for setting in (AT_FASTEST, AT_LEAST) for cell in _duel(duel(result, setting))]
        own = next((p for p in result.ours if p.setting == OWN_LEAST), None)
        rows.append([*row, _sram(own), _number(least_ratio(result), 2)])
    means: list[str] = ["geometric mean", "", ""]
    for setting in (AT_FASTEST, AT_LEAST):
        means += ["", "", "", _number(geometric_mean(_ratios(results, setting)), 3)]
    ratios = [least_ratio(result) for result in results]
    return table(heads, [*rows, [*means, "", _number(geometric_mean(ratios), 3)]])


def _duel(found: Duel | None) -> list[str]:
    if found is None:
        return ["-"] * 4
    ours = "not in SRAM" if found.ours and found.ours.refusal else _cycles(found.ours)
    return [str(found.limit_bytes), _cycles(found.vela), ours, _number(found.ratio, 2)]


def _verdict(point: Point) -> str:
    if point.complaint:
        return "NO: see below"
    return f"NO: {point.differing} of {point.compared}" if point.differing else "yes"


def _our_points(results: Sequence[CaseResult]) -> str:
    heads = ["network", "limit", "bytes", "SRAM", "at NPU calls", "cycles"]
    heads += ["Vela's cycles", "ratio", "right"]
    rows = []
    for result in results:
        for point in result.ours:
            rows.append(_our_row(result, point))
    return table(heads, rows)


def _our_row(result: CaseResult, point: Point) -> list[str]:
    limit = point.limit_bytes if point.setting != OWN_LEAST else point.sram_bytes
    rival = best(result.vela) if limit is None else opponent(result.vela, limit)
    row = [result.case.network, point.setting, _number(point.limit_bytes)]
    if not point.is_measured:
        why = _short(f"refused: {point.refusal}") if point.refusal else _verdict(point)
        return [*row, "-", "-", "-", _cycles(rival), "-", why]
    ratio = Duel(0, point, rival).ratio
    live = _number(point.npu_live_bytes)
    return [
        *(*row, _sram(point), live, _cycles(point)),
        *(_cycles(rival), _number(ratio, 2), _verdict(point)),
    ]


def _short(text: str, most: int = 160) -> str:
    """Return the first clause of a refusal: the rest names what lies where."""
    first = text.partition("; ")[0]
    return first if len(first) <= most else f"{first[: most - 1]}…"


def _vela_points(results: Sequence[CaseResult]) -> str:
    rows = []
    for result in results:
        for core in _CORES:
            points = {p.setting: p for p in result.vela if p.compiler == core}
            cells = [_vela_cell(points.get(setting)) for setting in _SETTINGS]
            rows.append([result.case.network, core, *cells])
    return table(["network", "core", *_SETTINGS], rows)


def _vela_cell(point: Point | None) -> str:
    if point is None or not point.is_measured:
        return "fails"
    return f"{point.sram_bytes} / {_cycles(point)}{' (!)' if not point.is_right else ''}"


def _notes(results: Sequence[CaseResult]) -> str:
    """Return what else must be said of the points: refusals, and what the simulator reported."""
    lines = [f"- {name} is not compiled: {_short(why)}" for name, why in refusals(results).items()]
    for result in results:
        for point in (*result.ours, *result.vela):
            if point.is_wrong:
                what = point.complaint or (
                    f"{point.differing} of {point.compared} values are not TFLite Micro's"
                )
                who = f"{result.case.network}, {point.compiler}, {point.setting}"
                lines.append(f"- {who}: {_short(what)}")
    # No network on the CPU alone says anything of an NPU.
    lines += [
        f"- {result.case.network}: nothing of it runs on the NPU"
        for result in results
        if result.ours and any(p.is_measured and not p.cycles for p in result.ours)
    ]
    text = "\n".join(dict.fromkeys(lines))
    return f"\n### Notes\n\n(!) marks results that are not right.\n\n{text}\n" if text else ""


# --- compile time -------------------------------------------------------------------------------


def _compile_times(results: Results) -> str:
    rows = []
    for result in results.cases:
        if result.compile_seconds is None:
            continue
        is_small = result.case.model.stat().st_size < _SMALL_BYTES
        limit = _SMALL_SECONDS if is_small else _LARGE_SECONDS
        seconds = _judged(_seconds(result.compile_seconds), result.compile_seconds < limit)
        rows.append([result.case.network, result.case.accelerator, f"{limit:.0f}", seconds])
    if not rows:
        return ""
    return (
        "\n## Compile time\n\nSeconds of `tvm-ethosu compile`, start of Python and import of TVM "
        "included, at the middle one of the limits above that can be kept. Nothing else of the "
        "benchmark ran beside it, but whatever else the machine had to do is in these figures.\n\n"
        f"The target is {_SMALL_SECONDS:.0f} s for a file below 1 MB, else "
        f"{_LARGE_SECONDS:.0f} s.\n\n"
        + table(["network", "accelerator", "target", "seconds"], rows)
    )


def _seconds(value: float | None) -> str:
    return f"over {TIME_LIMIT_SECONDS}" if value == math.inf else _number(value, 1)


def _chains(chains: Sequence[Chain]) -> str:
    if not chains:
        return ""
    modes = tuple(dict.fromkeys(chain.optimise for chain in chains))
    seconds = {(chain.operators, chain.optimise): chain.seconds for chain in chains}
    rows = [
        [str(length), *(_seconds(seconds.get((length, mode))) for mode in modes)]
        for length in sorted({chain.operators for chain in chains})
    ]
    powers = [growth([c for c in chains if c.optimise == mode]) for mode in modes]
    rows.append(["power of the last doubling", *(_number(power, 2) for power in powers)])
    return (
        "\n## Growth with the number of operators\n\nSeconds of a process that compiles a chain of "
        "3x3 convolutions of 32x32x16, every second one depthwise, for ethos-u55-128. The last row "
        "is the power of the number of operators by which the time grew at the end, the start of "
        "the process taken off: 1 is proportional, 2 is quadratic.\n\n"
        + table(["operators", *(f"optimise {mode}" for mode in modes)], rows)
    )
