"""From a graph and a budget to addresses: the one entry point of this package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from tvm_ethosu.scheduler.allocate import Allocation, allocate, peak_operator
from tvm_ethosu.scheduler.arch import ALIGN_BYTES
from tvm_ethosu.scheduler.columns import fold_columns
from tvm_ethosu.scheduler.dump import short_origin
from tvm_ethosu.scheduler.errors import Infeasible
from tvm_ethosu.scheduler.estimator import Estimator, worth_padding
from tvm_ethosu.scheduler.ir import NpuGraph
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.plan import Schedule, Segment, plan_segments, plan_whole_tensors
from tvm_ethosu.scheduler.ports import Hardware
from tvm_ethosu.scheduler.prefetch import add_transfers, repeat_transfers
from tvm_ethosu.scheduler.search import Objective, PlanSearch
from tvm_ethosu.scheduler.slices import split, split_segments, worth_slicing
from tvm_ethosu.scheduler.tables import fuse_tables
from tvm_ethosu.scheduler.verify import verify_graph

# A plan's peak counts bytes; addresses may need more. So plans for less are tried too, and since
# what they leave holds weights. The sizes between are the same for every budget, so that a larger
# one finds what a smaller one does. Shares are of what the first plan's feature maps take.
_STEP = 1.06
_LEAST_SHARE = 0.55
_MOST_SHARE = 1.5
# Of the fastest plans, so many are also tried with weights in slices: which of them gains most by
# that does not show before.
_SLICED = 3
# As a limit for weights in SRAM.
_NOTHING_MOVED = -1


def schedule(
    graph: NpuGraph,
    budget_bytes: int | None,
    hardware: Hardware,
    objective: Objective = Objective.PERFORMANCE,
) -> Allocation:
    """Plan the graph within ``budget_bytes`` of scratch (None: no limit).

    For performance the plan has the fewest estimated cycles, for size the least memory and then
    the fewest cycles.

    Raises:
        Infeasible: the scratch needs more; the message names the operator at the peak and what
            it holds.
        InternalError: the graph breaks an invariant of ``verify_graph``.
    """
    graph = _prepared(graph, hardware)
    compact = Estimator(choose_layouts(graph), hardware)
    padded = worth_padding(compact)
    if objective is Objective.PERFORMANCE and budget_bytes is None:
        estimator = compact if padded is None else compact.with_layouts(padded)
        whole = allocate(add_transfers(plan_whole_tensors(estimator.layouts), estimator, None))
        # What is found within the memory of the whole plan may be faster than the largest slices.
        sliced = (
            _in_slices(whole.schedule, estimator, limit) for limit in (None, whole.scratch_bytes)
        )
        return min((whole, *chain.from_iterable(sliced)), key=_cycles_first)
    search = PlanSearch(compact)
    searches = [search]
    if padded is not None:
        searches.append(PlanSearch(compact.with_layouts(padded), search.steps))
    if objective is Objective.PERFORMANCE and budget_bytes is not None:
        found = _fastest(searches, budget_bytes)
        if found is not None:
            return found
    least = _least(search, allocate(plan_whole_tensors(search.layouts)))
    if budget_bytes is not None and least.scratch_bytes > budget_bytes:
        raise _infeasible(least, budget_bytes)
    fastest = _fastest(searches, least.scratch_bytes)
    return fastest or allocate(add_transfers(least.schedule, compact, _NOTHING_MOVED))


def _prepared(graph: NpuGraph, hardware: Hardware) -> NpuGraph:
    """Return the graph as its operators are carried out."""
    fused = verify_graph(fuse_tables(verify_graph(graph)))
    return verify_graph(fold_columns(fused, hardware))


@dataclass(frozen=True)
class Decisions:
    """What a plan was found for: with it the plan is made again without a search.

    ``moves`` has for operators whose weights a transfer brings in the segment that it precedes,
    ``padded`` the tensors that lie in bricks although that takes more bytes, ``slices`` the
    operators that are done in slices of so many channels; the others count after that.
    """

    segments: tuple[Segment, ...]
    moves: tuple[tuple[int, int], ...]
    padded: tuple[str, ...] = ()
    slices: tuple[tuple[int, int], ...] = ()


def decisions_of(schedule: Schedule) -> Decisions:
    """Return the decisions behind a schedule."""
    moves = tuple((t.op, t.before) for t in schedule.transfers)
    padded = tuple(sorted(schedule.layouts.padded))
    return Decisions(schedule.segments, moves, padded, schedule.slices)


def repeat(graph: NpuGraph, decisions: Decisions, hardware: Hardware) -> Allocation:
    """Return the plan of a graph that was planned before, with the decisions made then."""
    graph = split(_prepared(graph, hardware), dict(decisions.slices))
    layouts = choose_layouts(graph, decisions.padded)
    plan = replace(plan_segments(layouts, decisions.segments), slices=decisions.slices)
    return allocate(repeat_transfers(plan, Estimator(layouts, hardware), dict(decisions.moves)))


_Variants = Callable[[Schedule, Estimator, int], Iterator[Schedule]]


def _first_that_fits(plans: Iterable[Schedule], budget_bytes: int | None) -> Iterator[Allocation]:
    """Yield the first of some plans that can be placed within a budget, if one can."""
    placed = (allocate(plan) for plan in plans)
    fitting = (a for a in placed if budget_bytes is None or a.scratch_bytes <= budget_bytes)
    return islice(fitting, 1)


def _fastest_first(
    plan: Schedule, estimator: Estimator, budget_bytes: int | None
) -> Iterator[Schedule]:
    """Yield a plan with ever fewer weights in SRAM, none at last; nothing if it can't be placed."""
    if budget_bytes is None:
        yield add_transfers(plan, estimator, None)
    elif allocate(plan).scratch_bytes <= budget_bytes:
        for limit_bytes in _limits(budget_bytes, budget_bytes * _LEAST_SHARE):
            yield add_transfers(plan, estimator, limit_bytes)
        yield add_transfers(plan, estimator, _NOTHING_MOVED)


def _memory_only(plan: Schedule, _estimator: Estimator, _budget_bytes: int) -> Iterator[Schedule]:
    """Yield the plan itself."""
    yield plan


def _fastest(searches: Sequence[PlanSearch], budget_bytes: int) -> Allocation | None:
    """Return the fastest of the plans that are found within a budget, or None if there is none.

    A plan for a little less may be the faster one: what it leaves holds weights.
    """
    budget_bytes = budget_bytes // ALIGN_BYTES * ALIGN_BYTES
    found: list[tuple[Allocation, float]] = []
    for search in searches:
        for segments in _paths(search, budget_bytes):
            least = search.least_cycles(segments)
            if all(least < plan.schedule.cycles for plan, _ in found):
                placed = _placed(search, segments, budget_bytes, _fastest_first)
                found += ((plan, least) for plan in placed)
    # Of plans that are as fast, the first found has fewest stripes, which can't be sliced.
    found.sort(key=lambda pair: pair[0].schedule.cycles)
    plans = [plan for plan, _ in found]
    for plan, least in found[:_SLICED]:
        if all(least < other.schedule.cycles for other in plans):
            plans += _in_slices(plan.schedule, searches[0].estimator, budget_bytes)
    return min(plans, key=_cycles_first, default=None)


def _cycles_first(allocation: Allocation) -> tuple[float, int]:
    return allocation.schedule.cycles, allocation.scratch_bytes


def _in_slices(
    plan: Schedule, estimator: Estimator, budget_bytes: int | None
) -> Iterator[Allocation]:
    """Yield a plan with weights in slices, where that may be faster and can be placed."""
    graph, padded = plan.graph, plan.layouts.padded
    own = estimator.with_layouts(plan.layouts)
    for slices in worth_slicing(plan, own, budget_bytes):
        layouts = choose_layouts(split(graph, slices), padded)
        pieces = plan_segments(layouts, split_segments(plan.segments, graph, slices))
        pieces = replace(pieces, slices=tuple(sorted(slices.items())))
        variants = _fastest_first(pieces, own.with_layouts(layouts), budget_bytes)
        yield from _first_that_fits(variants, budget_bytes)


def _placed(
    search: PlanSearch, segments: tuple[Segment, ...], budget_bytes: int, variants: _Variants
) -> Iterator[Allocation]:
    """Yield the first variant of a plan that can be placed within a budget, if one can."""
    plan = plan_segments(search.layouts, segments, search.steps)
    yield from _first_that_fits(variants(plan, search.estimator, budget_bytes), budget_bytes)


def _paths(search: PlanSearch, budget_bytes: int) -> Iterator[tuple[Segment, ...]]:
    """Yield the different paths within a budget, and within sizes below what the first one takes.

    A budget may be much more than feature maps and weights need together.
    """
    first = search.find(budget_bytes)
    if first is None:
        return
    yield first
    seen = {first}
    peak = max(search.peak_bytes(segment) for segment in first)
    for limit_bytes in _limits(min(budget_bytes, int(peak * _MOST_SHARE)), peak * _LEAST_SHARE):
        found = search.find(limit_bytes)
        if found is None:
            return
        if found not in seen:
            seen.add(found)
            yield found


def _limits(budget_bytes: int, least_bytes: float) -> Iterator[int]:
    """Yield a budget and sizes below it, the largest first."""
    yield budget_bytes
    step = int(math.log(max(budget_bytes, 1), _STEP))
    while (limit_bytes := int(_STEP**step)) >= least_bytes and step > 0:
        if limit_bytes < budget_bytes:
            yield limit_bytes
        step -= 1


def _least(search: PlanSearch, whole: Allocation) -> Allocation:
    """Return the plan with the least memory.

    The path with the lowest peak, or where it can't be placed so low, what is found between by
    halving.
    """
    peak, segments = search.lowest()
    lowest = allocate(plan_segments(search.layouts, segments, search.steps))
    best = min(whole, lowest, key=lambda allocation: allocation.scratch_bytes)
    impossible = peak - ALIGN_BYTES
    while best.scratch_bytes - impossible > ALIGN_BYTES:
        middle = (best.scratch_bytes + impossible) // 2 // ALIGN_BYTES * ALIGN_BYTES
        # At last the next smaller size is tried, so that nothing below is possible.
        budget = min(max(middle, impossible + ALIGN_BYTES), best.scratch_bytes - ALIGN_BYTES)
        plans = (_placed(search, path, budget, _memory_only) for path in _paths(search, budget))
        found = next(chain.from_iterable(plans), None)
        if found is None:
            impossible = budget
        else:
            best = found
    return best


def _infeasible(allocation: Allocation, budget_bytes: int) -> Infeasible:
    graph = allocation.schedule.graph
    excess = allocation.scratch_bytes - budget_bytes
    text = (
        f"{graph.name}: scratch memory does not fit (needs {allocation.scratch_bytes} bytes, "
        f"{max(budget_bytes, 0)} bytes are left for it, {excess} bytes too few)"
    )
    if allocation.schedule.buffers:
        index, buffers = peak_operator(allocation)
        held = ", ".join(
            f"{b.rows} rows of {graph.tensors[b.tensor].shape} "
            f"{graph.tensors[b.tensor].dtype.value} ({b.size_bytes} bytes)"
            for b in buffers
            if b.rows
        )
        operator = short_origin(graph.ops[index].origin)
        text += f"; most is in use at operator '{operator}', which holds {held}"
    return Infeasible(
        text, required_bytes=allocation.scratch_bytes, available_bytes=max(budget_bytes, 0)
    )
