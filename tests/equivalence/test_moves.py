"""Concatenations, slices, pads, transpositions and their like against TFLite Micro.

Each stands between two operators that compute, and once alone between the ends of a network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.equivalence import movement as m
from tests.equivalence.cases import CHANNELS, SEEDS, TWO_ACCELERATORS, ZERO_POINTS
from tests.equivalence.families import Families
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    examples_of,
    load,
    partition,
    plan_for_size,
    plan_for_speed,
    run_on_npu,
)
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value
from tvm_ethosu.backend.reference import Reference


@dataclass(frozen=True)
class Case:
    """One operator; its parameters follow from the seed."""

    kind: str
    shape: tuple[int, int, int]
    zero_point: int
    seed: int
    accelerators: tuple[str, ...]


QUICK = 6  # of each kind in the fast tests
Kind = Callable[[NetBuilder, Value, np.random.Generator], Value]


def _amounts(rng: np.random.Generator, limits: tuple[int, ...]) -> list[list[int]]:
    return [[int(rng.integers(0, limit + 1)) for _ in range(2)] for limit in limits]


def _concat(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    axis = int(rng.integers(1, 4))
    others = [m.slice_(net, x, (0, 0, 0, 0), x.shape)]
    shape = list(x.shape)
    shape[axis] = int(rng.integers(1, 20))
    others.append(net.input(shape, x.scale, x.zero_point))
    return m.concat(net, [x, *others, x][: int(rng.integers(1, 5))], axis)


def _pack(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    flat = net.reshape(x, x.shape[1:])
    return m.pack(net, [flat, flat][: int(rng.integers(1, 3))], int(rng.integers(0, 4)))


def _split(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    axis = int(rng.integers(1, 4))
    count = next(n for n in (3, 2, 1) if x.shape[axis] % n == 0)
    parts = m.split(net, x, count, axis)
    return net.add(parts[0], parts[-1])


def _split_v(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    axis = int(rng.integers(1, 4))
    if x.shape[axis] == 1:
        return x
    first = int(rng.integers(1, x.shape[axis]))
    parts = m.split_v(net, x, (first, x.shape[axis] - first), axis)
    net.output(net.max_pool(parts[1], kernel=(1, 1), stride=(1, 1)))
    return parts[0]


def _unpack(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    axis = int(rng.integers(1, 4))
    axis = axis if x.shape[axis] <= 8 else int(np.argmin(x.shape[1:])) + 1
    parts = m.unpack(net, x, axis)
    return net.add(parts[0], parts[-1])


def _slice(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    begin = [int(rng.integers(0, n)) for n in x.shape]
    size = [int(rng.integers(1, n - low + 1)) for n, low in zip(x.shape, begin, strict=True)]
    return m.slice_(net, x, begin, size)


def _strided_slice(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    begin = [int(rng.integers(0, n)) for n in x.shape]
    end = [int(rng.integers(low + 1, n + 1)) for n, low in zip(x.shape, begin, strict=True)]
    return m.strided_slice(net, x, begin, end, [1, *(int(n) for n in rng.integers(1, 4, 3))])


def _pad(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    return m.pad(net, x, _amounts(rng, (0, 3, 3, 3)))


def _pad_v2(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    return m.pad_v2(net, x, _amounts(rng, (0, 2, 9, 1)), int(rng.integers(-128, 128)))


def _mirror_pad(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    symmetric = bool(rng.integers(2))
    limits = [min(2, n - (not symmetric)) for n in x.shape[1:3]]
    return m.mirror_pad(net, x, _amounts(rng, (0, *limits, 0)), symmetric)


def _transpose(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    y = m.transpose(net, x, [int(axis) for axis in rng.permutation(4)])
    return y if y.shape[0] == 1 else net.reshape(y, (1, *y.shape[:2], y.shape[2] * y.shape[3]))


def _tile(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    return m.tile(net, x, [1, *(int(n) for n in rng.integers(1, 4, 3))])


def _gather(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    axis = int(rng.integers(1, 4))
    count = int(rng.integers(1, 6))
    return m.gather(net, x, [int(i) for i in rng.integers(0, x.shape[axis], count)], axis)


def _depth_to_space(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    size = int(rng.integers(2, 4))
    return m.depth_to_space(net, net.conv2d(x, filters=size**2 * int(rng.integers(1, 9))), size)


def _space_to_depth(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    size = int(rng.integers(2, 4))
    padding = [[0, 0], *([0, -n % size] for n in x.shape[1:3]), [0, 0]]
    return m.space_to_depth(net, m.pad(net, x, padding), size)


def _resize(net: NetBuilder, x: Value, rng: np.random.Generator) -> Value:
    aligned, half_pixel = ((False, False), (False, True), (True, False))[int(rng.integers(3))]
    factors = [int(n) for n in rng.integers(1, 5, 2)]
    size = (x.shape[1] * factors[0], x.shape[2] * factors[1])
    if aligned:
        size = (2 * x.shape[1] - 1, 2 * x.shape[2] - 1)
    return m.resize_nearest(net, x, size, aligned, half_pixel)


KINDS: dict[str, Kind] = {
    "concat": _concat,
    "pack": _pack,
    "split": _split,
    "split_v": _split_v,
    "unpack": _unpack,
    "slice": _slice,
    "strided_slice": _strided_slice,
    "pad": _pad,
    "pad_v2": _pad_v2,
    "mirror_pad": _mirror_pad,
    "transpose": _transpose,
    "tile": _tile,
    "gather": _gather,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "resize": _resize,
}


def cases(kind: str) -> st.SearchStrategy[Case]:
    """Draw an operator of this kind between two poolings."""
    sizes = st.integers(1, 7)
    shape = st.tuples(sizes, sizes, CHANNELS)
    return st.builds(Case, st.just(kind), shape, ZERO_POINTS, SEEDS, TWO_ACCELERATORS)


def check(case: Case) -> None:
    """Compare one operator in front of and behind something that computes."""
    net = NetBuilder(seed=case.seed)
    x = net.input((1, *case.shape), 0.05, case.zero_point)
    x = net.max_pool(x, kernel=(2, 2), stride=(1, 1), padding="SAME")
    y = KINDS[case.kind](net, x, np.random.default_rng(case.seed))
    is_image = len(y.shape) == 4 and y.shape[0] == 1
    z = y if is_image else net.reshape(y, (1, 1, y.shape[0], int(np.prod(y.shape[1:]))))
    net.output(y, net.avg_pool(z, kernel=(2, 2), stride=(1, 1), padding="SAME"))
    assert_exact(net.build(), case.accelerators, case.seed, plans=(plan_for_speed,))


def _tests(kind: str) -> tuple[Callable[..., None], Callable[..., None]]:
    return examples_of(cases(kind), check, quick=QUICK)


test_concat, test_concat_thoroughly = _tests("concat")
test_pack, test_pack_thoroughly = _tests("pack")
test_split, test_split_thoroughly = _tests("split")
test_split_v, test_split_v_thoroughly = _tests("split_v")
test_unpack, test_unpack_thoroughly = _tests("unpack")
test_slice, test_slice_thoroughly = _tests("slice")
test_strided_slice, test_strided_slice_thoroughly = _tests("strided_slice")
test_pad, test_pad_thoroughly = _tests("pad")
test_pad_v2, test_pad_v2_thoroughly = _tests("pad_v2")
test_mirror_pad, test_mirror_pad_thoroughly = _tests("mirror_pad")
test_transpose, test_transpose_thoroughly = _tests("transpose")
test_gather, test_gather_thoroughly = _tests("gather")
test_depth_to_space, test_depth_to_space_thoroughly = _tests("depth_to_space")
test_space_to_depth, test_space_to_depth_thoroughly = _tests("space_to_depth")
test_resize, test_resize_thoroughly = _tests("resize")


@pytest.mark.parametrize("times", [(1, 1, 1, 1), (1, 2, 3, 1), (1, 1, 2, 3), (1, 3, 1, 2)])
def test_tile(times: tuple[int, ...]) -> None:
    # TFLite Micro has no such operator; numpy's means the same.
    net = NetBuilder(seed=3)
    x = net.max_pool(net.input((1, 4, 5, 6)), kernel=(1, 1), stride=(1, 1))
    net.output(m.tile(net, x, times))
    data = np.random.default_rng(3).integers(-128, 128, (1, 4, 5, 6)).astype(np.int8)
    network = partition(net.build())
    (result,) = run_on_npu(network, load(network, "ethos-u55-128"), [data])
    np.testing.assert_array_equal(result, np.tile(data, times))


@pytest.mark.parametrize("axes", [(3,), (1,), (1, 2), (-2,)])
def test_reverse(axes: tuple[int, ...]) -> None:
    # TFLite Micro has no such operator; numpy's means the same.
    net = NetBuilder(seed=3)
    net.output(m.reverse(net, net.input((1, 4, 5, 6)), axes))
    data = np.random.default_rng(3).integers(-128, 128, (1, 4, 5, 6)).astype(np.int8)
    network = partition(net.build())
    (result,) = run_on_npu(network, load(network, "ethos-u55-128"), [data])
    np.testing.assert_array_equal(result, np.flip(data, axes))


# --- families: where compilers have gone wrong ----------------------------------------------------

FAMILIES = Families()
family = FAMILIES.add


@family
def concat_of_a_network_input_and_a_constant(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    data = np.arange(64 * 3, dtype=np.int8).reshape(1, 8, 8, 3)
    constant = net.constant(data, x.scale, x.zero_point)
    return (net.max_pool(m.concat(net, (x, constant), 3)),)


@family
def pad_in_front_of_convolutions(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.pad(net, x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = net.conv2d(y, filters=16, stride=(2, 2), padding="VALID", activation="RELU6")
    z = m.pad(net, y, ((0, 0), (2, 1), (1, 2), (0, 0)))
    return (net.depthwise(z, padding="VALID"),)


@family
def pad_wider_than_the_kernel(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.pad(net, x, ((0, 0), (4, 0), (0, 5), (0, 0)))
    return (net.conv2d(y, filters=5, padding="VALID"),)


@family
def pad_with_another_value_than_the_zero_point(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.pad_v2(net, x, ((0, 0), (1, 1), (1, 1), (0, 0)), x.zero_point + 9)
    return (net.conv2d(y, filters=5, padding="VALID"),)


@family
def transposition_of_a_single_pixel(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.avg_pool(net.conv2d(x, filters=16), kernel=(8, 8))
    return (net.dense(net.reshape(m.transpose(net, y, (0, 3, 1, 2)), (1, 16)), units=5),)


@family
def channels_first_and_back(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.transpose(net, net.reshape(x, (1, 8, 8, 8)), (0, 2, 3, 1))
    return (m.transpose(net, net.conv2d(y, filters=3), (0, 3, 1, 2)),)


@pytest.mark.parametrize("name", FAMILIES.makers)
def test_family(name: str) -> None:
    assert_exact(
        FAMILIES.network(name, 11).build(), ACCELERATORS, plans=(plan_for_speed, plan_for_size)
    )


def test_a_folded_pad_is_no_operator() -> None:
    net = NetBuilder(seed=11)
    net.output(*pad_in_front_of_convolutions(net, net.input((1, 8, 8, 8))))
    (graph,) = partition(net.build()).graphs.values()
    assert [type(op).__name__ for op in graph.ops] == ["Conv2D", "DepthwiseConv2D"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("tile", "split_v")])
def test_movement_alone(kind: str) -> None:
    net = NetBuilder(seed=9)
    net.output(KINDS[kind](net, net.input((1, 6, 4, 9)), np.random.default_rng(9)))
    assert assert_exact(net.build(), ("ethos-u55-32",)).graphs


def test_movement_between_an_input_and_a_cpu_operator_stays_there() -> None:
    net = NetBuilder(seed=2)
    x = net.input((1, 4, 4, 8))
    net.output(net.log_softmax(m.transpose(net, x, (0, 3, 1, 2))), m.tile(net, x, (1, 1, 2, 1)))
    (graph,) = partition(net.build()).graphs.values()
    assert [tuple(op.ofm.shape.__dict__.values()) for op in graph.ops] == [(1, 4, 8, 8)]


def test_views_alone_stay_on_the_cpu() -> None:
    net = NetBuilder(seed=2)
    net.output(net.reshape(net.input((1, 4, 4, 8)), (1, 128)))
    assert not partition(net.build()).graphs


def test_movement_between_cpu_operators_stays_there() -> None:
    net = NetBuilder(seed=2)
    x = net.input((1, 4, 4, 8))
    y = m.concat(net, (net.log_softmax(x), net.log_softmax(x)), 3)
    net.output(m.slice_(net, y, (0, 1, 1, 3), (1, 2, 2, 9)))
    network = partition(net.build())
    assert not network.graphs


def test_concat_of_other_scales_stays_on_the_cpu() -> None:
    net = NetBuilder(seed=2)
    x = net.input((1, 4, 4, 8), 0.05)
    y = net.max_pool(net.input((1, 4, 4, 8), 0.07), kernel=(1, 1), stride=(1, 1))
    net.output(m.concat(net, (x, y), 3))
    (reason,) = partition(net.build()).cpu_reasons.values()
    assert "scales and zero points" in reason


# --- more than four dimensions --------------------------------------------------------------------


@dataclass(frozen=True)
class Shuffled:
    """A tensor of five dimensions between two reshapes; ``size`` is without the batch."""

    kind: str
    size: tuple[int, int, int, int]
    axis: int
    order: tuple[int, ...]
    between: bool
    dtype: str
    accelerator: str
    seed: int


FIVE_DIMENSIONS = st.builds(
    Shuffled,
    st.sampled_from(("transpose", "concat", "split", "pad", "stay")),
    st.tuples(*[st.integers(1, 6)] * 4),
    st.integers(1, 4),
    st.permutations((1, 2, 3, 4)).map(tuple),
    st.booleans(),
    st.sampled_from(("int8", "int16")),
    st.sampled_from(ACCELERATORS),
    SEEDS,
)


def _in_five(net: NetBuilder, x: Value, case: Shuffled) -> Value:
    match case.kind:
        case "transpose":
            return m.transpose(net, x, (0, *case.order))
        case "concat":
            return m.concat(net, [x, x], case.axis)
        case "split":
            return m.concat(net, m.split(net, x, x.shape[case.axis], case.axis)[::-1], case.axis)
        case "pad":
            amounts = np.zeros((5, 2), int)
            amounts[case.axis] = 1, 2
            return m.pad(net, x, amounts.tolist())
        case _:
            return x


def _check_five_dimensions(case: Shuffled) -> None:
    """Compare with TFLite Micro; between convolutions, or where five are a network's ends."""
    net = NetBuilder(case.dtype, seed=case.seed)
    five, (height, width, groups, each) = (1, *case.size), case.size
    if case.between:
        flat = (1, height, width, groups * each)
        x = net.reshape(net.conv2d(net.input(flat), filters=flat[3]), five)
    else:
        x = net.input(five)
    made = _in_five(net, x, case)
    rows, columns = made.shape[1] * made.shape[2], made.shape[3] * made.shape[4]
    y = net.reshape(made, (1, 1, rows, columns))
    y = net.conv2d(y, filters=columns, kernel=(1, 1))
    net.output(y if case.between else net.reshape(y, made.shape))
    assert_exact(net.build(), (case.accelerator,), case.seed)


test_five_dimensions, test_five_dimensions_thoroughly = examples_of(
    FIVE_DIMENSIONS, _check_five_dimensions, quick=20
)


def test_a_shuffle_of_channels_is_part_of_one_function() -> None:
    net = NetBuilder(seed=1)
    y = net.reshape(net.conv2d(net.input((1, 7, 7, 24)), filters=24), (1, 7, 7, 3, 8))
    y = net.reshape(m.transpose(net, y, (0, 1, 2, 4, 3)), (1, 7, 7, 24))
    net.output(net.conv2d(y, filters=8))
    network = partition(net.build())
    assert len(network.graphs) == 1
    assert not network.cpu_reasons
    assert_exact(net.build(), ACCELERATORS)


def _tiled(dims: tuple[int, ...], axes: tuple[int, ...]) -> bytes:
    """Return a network that cuts images into windows by a transposition of some dimensions."""
    net = NetBuilder(seed=2)
    y = net.reshape(net.conv2d(net.input((1, 8, 12, 16), zero_point=3), filters=16), dims)
    y = net.reshape(m.transpose(net, y, axes), (1, 8, 12, 16))
    net.output(net.conv2d(y, filters=5))
    return net.build()


def test_six_dimensions_are_those_that_can_be_said_with_four() -> None:
    """TFLite Micro transposes up to five."""
    six = _tiled((1, 2, 4, 3, 4, 16), (0, 1, 3, 2, 4, 5))
    four = _tiled((2, 4, 3, 64), (0, 2, 1, 3))
    inputs = [np.random.default_rng(5).integers(-128, 128, (1, 8, 12, 16)).astype(np.int8)]
    expected = Reference(four).run(inputs)
    for accelerator in ACCELERATORS:
        network = partition(six, accelerator)
        (actual,) = run_on_npu(network, load(network, accelerator), inputs)
        assert np.array_equal(actual, expected[0])
