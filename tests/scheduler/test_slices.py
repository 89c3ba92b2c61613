"""Convolutions in slices of channels: the same bytes, sooner, where weights don't fit whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiling import emit, hardware, plan
from tests.scheduler.builders import chain, random_chain
from tvm_ethosu.backend.host import load_program, run_on
from tvm_ethosu.scheduler.allocate import Allocation, allocate
from tvm_ethosu.scheduler.arch import ARCHS, Accelerator, Arch
from tvm_ethosu.scheduler.compile import decisions_of, repeat
from tvm_ethosu.scheduler.estimator import Estimator
from tvm_ethosu.scheduler.integers import ceil_div
from tvm_ethosu.scheduler.ir import Conv2D, NpuGraph, Shape
from tvm_ethosu.scheduler.layouts import choose_layouts
from tvm_ethosu.scheduler.plan import plan_segments, whole_segments
from tvm_ethosu.scheduler.prefetch import add_transfers
from tvm_ethosu.scheduler.slices import split, split_segments
from tvm_ethosu.scheduler.verify import verify_graph

U55_128 = next(arch for arch in ARCHS if arch.accelerator is Accelerator.U55_128)


def _cut_up(graph: NpuGraph, channels: int) -> dict[int, int]:
    """Every convolution of which more than one slice can be made."""
    return {
        index: channels
        for index, op in enumerate(graph.ops)
        if isinstance(op, Conv2D) and op.ofm.shape.c > channels
    }


def _planned(graph: NpuGraph, arch: Arch, slices: dict[int, int], *, padded: bool) -> Allocation:
    pieces = verify_graph(split(graph, slices))
    layouts = choose_layouts(pieces, pieces.tensors if padded else ())
    segments = split_segments(whole_segments(graph), graph, slices)
    estimator = Estimator(layouts, hardware(arch))
    return allocate(add_transfers(plan_segments(layouts, segments), estimator, None))


@given(st.integers(0, 100_000), st.booleans(), st.sampled_from(ARCHS))
@settings(derandomize=True, deadline=None, max_examples=25)
def test_slices_give_the_bytes_of_whole_convolutions(seed: int, padded: bool, arch: Arch) -> None:
    graph = random_chain(seed)
    data = np.random.default_rng(seed).integers(0, 256, graph.tensors["x"].size_bytes)
    inputs = [data.astype(np.uint8)]
    sliced = _planned(graph, arch, _cut_up(graph, 16), padded=padded)
    (expected,) = run_on(load_program(emit(plan(graph, arch), arch)), inputs)
    (made,) = run_on(load_program(emit(sliced, arch)), inputs)
    np.testing.assert_array_equal(made, expected)


def _deep_graph() -> NpuGraph:
    """Three convolutions with 64 KB of weights each, on planes of several blocks."""
    graph = chain([Shape(1, 14, 14, 256)] * 4)
    rng = np.random.default_rng(1)
    constants = {
        name: dataclasses.replace(
            constant, data=rng.integers(-127, 128, constant.data.shape).astype(np.int16)
        )
        if constant.data.ndim == 4
        else constant
        for name, constant in graph.constants.items()
    }
    return dataclasses.replace(graph, constants=constants)


def test_weights_come_in_slices_where_they_do_not_fit_as_a_whole() -> None:
    graph = _deep_graph()
    budget = 14 * 14 * 256 + 40_000
    tight = plan(graph, U55_128, budget)
    assert tight.schedule.slices
    assert tight.scratch_bytes <= budget
    estimator = Estimator(choose_layouts(graph), hardware(U55_128))
    streamed = sum(estimator.whole_cycles(index) for index in range(len(graph.ops)))
    assert tight.schedule.cycles < 0.85 * streamed
    moved = [transfer.size_bytes for transfer in tight.schedule.transfers]
    assert len(moved) > len(graph.ops)
    assert max(moved) <= 20_000


def test_a_plan_with_slices_is_made_again_from_its_decisions() -> None:
    graph = _deep_graph()
    found = plan(graph, U55_128, 14 * 14 * 256 + 40_000)
    again = repeat(graph, decisions_of(found.schedule), hardware(U55_128))
    assert again.schedule.slices == found.schedule.slices
    assert emit(again, U55_128) == emit(found, U55_128)


@pytest.mark.parametrize("channels", [16, 32, 48, 240])
def test_segments_of_a_split_graph_are_one_per_slice(channels: int) -> None:
    graph = _deep_graph()
    slices = {1: channels}
    made = split_segments(whole_segments(graph), graph, slices)
    pieces = split(graph, slices)
    assert [segment.start for segment in made] == list(range(len(pieces.ops)))
    assert len(made) == 2 + ceil_div(256, channels)
    assert sum(op.macs for op in pieces.ops) == sum(op.macs for op in graph.ops)
