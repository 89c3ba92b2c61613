from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import chain, plan, random_chain, residual
from tvm_ethosu.scheduler.allocate import Allocation, allocate, check_allocation, peak_operator
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import Shape
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.liveness import Lent, LiveRange, Owner, scratch_beside
from tvm_ethosu.scheduler.plan import Buffer, Overlap, Schedule, plan_whole_tensors
from tvm_ethosu.scheduler.search import Objective


@st.composite
def _buffers(draw: st.DrawFn) -> tuple[Buffer, ...]:
    count = draw(st.integers(1, 14))
    made = []
    for index in range(count):
        start = draw(st.integers(0, 12))
        stop = start + draw(st.integers(1, 6))
        size_bytes = 16 * draw(st.integers(1, 64))
        made.append(Buffer(f"b{index}", size_bytes, LiveRange(start, stop), 1))
    return tuple(made)


@st.composite
def _lent(draw: st.DrawFn) -> tuple[Lent, ...]:
    made = []
    for index in range(draw(st.integers(0, 3))):
        name, size_bytes, owners = f"io{index}", 16 * draw(st.integers(1, 100)), []
        start = 0
        for owner in range(draw(st.integers(1, 2))):
            start += draw(st.integers(0, 12))
            live = LiveRange(start, start + draw(st.integers(0, 6)))
            bytes_of = size_bytes if owner == 0 else draw(st.integers(1, size_bytes))
            owners.append(Owner(name if owner == 0 else f"{name} too", bytes_of, live))
            start = live.stop
        made.append(Lent(name, size_bytes, tuple(owners)))
    return tuple(made)


def _schedule(buffers: tuple[Buffer, ...], lent: tuple[Lent, ...] = ()) -> Schedule:
    whole = plan_whole_tensors(choose_layouts(chain([Shape(1, 1, 1, 16)] * 2)))
    return dataclasses.replace(whole, buffers=buffers, lent=lent)


@given(_buffers(), _lent())
@settings(derandomize=True, deadline=None, max_examples=200)
def test_buffers_in_use_together_never_share_a_byte(
    buffers: tuple[Buffer, ...], lent: tuple[Lent, ...]
) -> None:
    allocation = allocate(_schedule(buffers, lent))
    sizes = {one.tensor: one.size_bytes for one in lent} | {"": allocation.scratch_bytes}
    for moment in range(20):
        used = {
            (one.tensor, byte)
            for one in lent
            for owner in one.owners
            if owner.live.start <= moment < owner.live.stop
            for byte in range(0, owner.size_bytes, 16)
        }
        for buffer in buffers:
            if buffer.live.start <= moment < buffer.live.stop:
                home = allocation.homes.get(buffer.tensor, "")
                start = allocation.addresses[buffer.tensor]
                assert start % 16 == 0
                assert start + buffer.size_bytes <= sizes[home]
                mine = {(home, start + byte) for byte in range(0, buffer.size_bytes, 16)}
                assert not used & mine
                used |= mine


@given(_buffers(), _lent())
@settings(derandomize=True, deadline=None, max_examples=100)
def test_memory_of_the_caller_never_makes_the_scratch_larger(
    buffers: tuple[Buffer, ...], lent: tuple[Lent, ...]
) -> None:
    sizes = [buffer.size_bytes for buffer in buffers]
    idle = [one.size_bytes for one in lent if one.is_idle(LiveRange(0, 20))]
    assert allocate(_schedule(buffers, lent)).scratch_bytes <= sum(sizes)
    assert scratch_beside(sizes, idle) >= sum(sizes) - sum(idle)
    assert scratch_beside(sizes, []) == sum(sizes)


@given(_buffers())
@settings(derandomize=True, deadline=None, max_examples=100)
def test_peak_is_never_below_what_is_in_use_and_rarely_far_above(
    buffers: tuple[Buffer, ...],
) -> None:
    schedule = _schedule(buffers)
    in_use = max(
        sum(b.size_bytes for b in buffers if b.live.start <= moment < b.live.stop)
        for moment in range(20)
    )
    assert in_use <= allocate(schedule).scratch_bytes <= sum(b.size_bytes for b in buffers)


def test_a_chain_needs_its_two_largest_neighbours() -> None:
    shapes = [Shape(1, 8, 8, c) for c in (16, 32, 64, 48, 16, 16)]
    plan = plan_whole_tensors(choose_layouts(chain(shapes)))
    assert allocate(plan).scratch_bytes == 8 * 8 * (64 + 48)


def test_a_residual_block_keeps_its_input_until_the_addition() -> None:
    allocation = allocate(plan_whole_tensors(choose_layouts(residual(Shape(1, 4, 4, 16)))))
    assert allocation.scratch_bytes == 2 * 4 * 4 * 16
    index, buffers = peak_operator(allocation)
    assert allocation.schedule.graph.ops[index].name == "second"
    assert {buffer.tensor for buffer in buffers} == {"a", "b"}


def test_the_checker_sees_a_collision() -> None:
    allocation = allocate(plan_whole_tensors(choose_layouts(residual(Shape(1, 4, 4, 16)))))
    collided = Allocation(allocation.schedule, {"a": 0, "b": 16}, allocation.scratch_bytes)
    with pytest.raises(InternalError, match="overlap"):
        check_allocation(collided)


def test_the_checker_sees_a_buffer_outside() -> None:
    allocation = allocate(plan_whole_tensors(choose_layouts(residual(Shape(1, 4, 4, 16)))))
    short = Allocation(allocation.schedule, allocation.addresses, allocation.scratch_bytes - 16)
    with pytest.raises(InternalError, match="leaves the memory of scratch"):
        check_allocation(short)


def test_the_checker_sees_a_buffer_over_an_argument() -> None:
    lent = (Lent("io", 64, (Owner("io", 64, LiveRange(0, 2)),)),)
    buffer = Buffer("b", 32, LiveRange(1, 3), 1)
    with pytest.raises(InternalError, match="buffers io and b overlap"):
        check_allocation(Allocation(_schedule((buffer,), lent), {"b": 0}, 0, {"b": "io"}))
    with pytest.raises(InternalError, match="leaves the memory of io"):
        check_allocation(Allocation(_schedule((buffer,), lent), {"b": 48}, 0, {"b": "io"}))


def _written_in_place(seed: int) -> tuple[Allocation, Overlap] | None:
    """An allocation in which an addition is written over one of its inputs, if it has one."""
    allocation = plan(random_chain(seed), None, Objective.SIZE)
    homes, addresses = allocation.homes, allocation.addresses
    for overlap in allocation.schedule.overlaps:
        places = [(homes.get(n), addresses.get(n)) for n in (overlap.source, overlap.target)]
        if overlap.in_place and places[0] == places[1]:
            return allocation, overlap
    return None


def test_an_addition_is_written_to_its_inputs_very_address() -> None:
    """Blocks need not go row by row: a shifted result would meet what another block reads."""
    found = [placed for seed in range(60) if (placed := _written_in_place(seed)) is not None]
    assert len(found) > 5
    for allocation, overlap in found:
        addresses = dict(allocation.addresses)
        addresses[overlap.source] += 16
        longer = allocation.scratch_bytes + 16
        with pytest.raises(InternalError, match=r"overlap|leaves the memory"):
            check_allocation(
                dataclasses.replace(allocation, addresses=addresses, scratch_bytes=longer)
            )
