"""Networks of several operators on the NPU, in plans for speed and for little memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.families import Families
from tests.equivalence.graphs import Graph, build, graphs
from tests.equivalence.harness import (
    ACCELERATORS,
    Array,
    assert_exact,
    examples_of,
    load,
    partition,
    plan_between,
    plan_for_size,
    plan_for_speed,
)
from tests.equivalence.shifted import assert_exact_in_uint8
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

PLANS = (plan_for_speed, plan_for_size, plan_between)


def check(graph: Graph) -> None:
    """Compare all outputs of one network.

    For one in a thousand triples of scales no way is known to add exactly (test_add.py has them).
    """
    rare = "scales for which its rounding is certain"
    data = build(graph).build()
    assert_exact(data, graph.accelerators, graph.seed, plans=PLANS, unless=rare)


test_graphs, test_graphs_thoroughly = examples_of(graphs(), check, quick=40)
test_many_outputs, test_many_outputs_thoroughly = examples_of(
    graphs(steps=16, outputs=12), check, quick=15
)
test_chains, test_chains_thoroughly = examples_of(
    graphs(("conv", "depthwise", "pool", "halve"), steps=6, outputs=1, largest=24), check, quick=20
)
test_reshapes, test_reshapes_thoroughly = examples_of(
    graphs(("conv", "reshape", "reshape", "add", "quantize"), steps=8), check, quick=20
)

FAMILIES = Families()
family = FAMILIES.add


@family
def reshape_first(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return (net.conv2d(net.reshape(x, (1, 4, 16, 8)), filters=5),)


@family
def reshape_last(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return (net.reshape(net.conv2d(x, filters=16), (1, 4, 16, 16)),)


@family
def reshape_between(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return (net.conv2d(net.reshape(net.conv2d(x, filters=16), (1, 4, 8, 32)), filters=16),)


@family
def reshape_of_an_output_is_an_output(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return y, net.reshape(y, (1, 1024))


@family
def two_reshapes_of_one_tensor_are_outputs(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return net.reshape(y, (1, 1024)), net.reshape(y, (32, 32)), net.conv2d(y, filters=3)


@family
def reshape_of_an_input_is_an_output(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    view = net.reshape(x, (1, 4, 16, 8))
    return view, net.conv2d(view, filters=4)


@family
def input_is_an_output(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return x, net.conv2d(x, filters=4)


@family
def output_is_read_inside(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    z = net.conv2d(y, filters=16)
    return y, z, net.add(y, z)


@family
def unused_input(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    net.input((1, 3))
    return (net.conv2d(x, filters=4),)


@family
def residual_blocks(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    for filters in (16, 16, 24):
        y = net.conv2d(x, filters=filters, activation="RELU")
        y = net.conv2d(y, filters=filters)
        skip = x if x.shape == y.shape else net.conv2d(x, filters=filters, kernel=(1, 1))
        x = net.add(skip, y, activation="RELU")
    return (x,)


@family
def inverted_bottlenecks(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    for _ in range(2):
        y = net.conv2d(x, filters=48, kernel=(1, 1), activation="RELU6")
        y = net.depthwise(y, activation="RELU6")
        x = net.add(net.conv2d(y, filters=8, kernel=(1, 1)), x)
    return (net.dense(net.avg_pool(x, kernel=(8, 8)), units=10),)


@family
def one_tensor_with_many_readers(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    readers = [net.conv2d(y, filters=16), net.max_pool(y), net.quantize(y, 0.3, 5)]
    return (*readers, net.add(y, readers[0]), net.add(y, y), net.dense(y, units=4))


@family
def broadcast_from_an_inner_tensor(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=32)
    pooled = net.avg_pool(y, kernel=(8, 8))
    column = net.max_pool(y, kernel=(8, 1), stride=(1, 1))
    return net.add(y, pooled), net.add(column, y), net.add(pooled, column)


@family
def eight_inputs(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    total = net.add(x, net.input((1, 8, 8, 8), 0.1))
    for index in range(6):
        total = net.add(total, net.input((1, 8, 8, 8), 0.02 * (index + 1)))
    return (total,)


@family
def nine_outputs_with_inner_tensors(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    inner = net.conv2d(x, filters=16)
    return tuple(net.add(inner, net.conv2d(inner, filters=16)) for _ in range(9))


@family
def row_of_one_pixel(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.reshape(x, (1, 1, 512, 1))
    y = net.conv2d(y, filters=16, kernel=(1, 9), stride=(1, 3))
    y = net.depthwise(y, kernel=(1, 5))
    return (net.dense(y, units=3),)


@pytest.mark.parametrize("name", ["eight_inputs", "nine_outputs_with_inner_tensors"])
def test_more_inputs_and_outputs_than_base_pointers_take_several_runs(name: str) -> None:
    (program,) = load(partition(FAMILIES.network(name, 11).build()), "ethos-u55-128").values()
    assert len(program.streams) > 1


@pytest.mark.parametrize("name", FAMILIES.makers)
def test_family(name: str) -> None:
    assert_exact(FAMILIES.network(name, 11).build(), ACCELERATORS, plans=PLANS)


# Dense layers and convolutions have one scale per tensor in uint8 networks.
@pytest.mark.parametrize("name", ["eight_inputs", "requantize_of_uint8"])
def test_family_in_uint8(name: str) -> None:
    net = NetBuilder(seed=11)
    x = net.input((1, 8, 8, 8))
    if name == "eight_inputs":
        net.output(*eight_inputs(net, x))
    else:
        net.output(net.max_pool(net.quantize(x, 0.07, 3)))
    assert_exact_in_uint8(net, ACCELERATORS)


def test_constants_shared_by_additions() -> None:
    net = NetBuilder(seed=5)
    data: Array = np.arange(-20, 28, dtype=np.int8).reshape(1, 1, 1, 48)
    shared = net.constant(data, 0.04, 2)
    x = net.conv2d(net.input((1, 6, 6, 8)), filters=48)
    net.output(net.add(net.add(x, shared), net.add(shared, net.avg_pool(x, kernel=(6, 6)))))
    assert_exact(net.build(), ACCELERATORS, plans=PLANS)
