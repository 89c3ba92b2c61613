"""Networks with operators on the CPU, built by TVM for this host: what glues NPU functions.

What an NPU function writes must equal TFLite Micro's tensor. Softmax on the CPU is TVM's own
arithmetic, so it is computed by the reference for the functions behind it (see Checker).
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.equivalence.families import Family
from tests.equivalence.graphs import Graph, build, graphs
from tests.equivalence.harness import examples_of
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value
from tvm_ethosu.backend.check import (
    Checker,
    Comparison,
    HostNetwork,
    Inference,
    load_for_host,
    random_inputs,
    run_once,
)
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import parse_tflite


def _check_that_results_arrive(network: HostNetwork, inference: Inference) -> None:
    """Check that the network's outputs are what the NPU functions wrote, until the end."""
    written = {
        name: data
        for call in inference.calls
        for name, data in zip(network.functions[call.name].outputs, call.outputs, strict=True)
    }
    for index, data in zip(network.file.outputs, inference.outputs, strict=True):
        ours = written.get(network.file.tensors[index].name)
        if ours is not None:
            np.testing.assert_array_equal(data.reshape(-1).view(np.uint8), ours)


def compare_on_host(
    data: bytes, accelerator: str, functions: int | None = None
) -> tuple[Comparison, ...]:
    """Build for the graph executor, run twice, and compare."""
    network = load_for_host(parse_tflite(data), EthosUOptions(accelerator))
    assert functions in (None, len(network.functions))
    checker, rng = Checker(network), np.random.default_rng(1)
    for _ in range(2):
        inputs = random_inputs(network.file, rng)
        inference = run_once(network, inputs)
        checker.add(inputs, inference)
        _check_that_results_arrive(network, inference)
    assert checker.comparisons()
    return checker.comparisons()


def check_on_host(data: bytes, accelerator: str, functions: int | None = None) -> None:
    """Check what NPU functions write; log_softmax, on the CPU, is TVM's arithmetic."""
    comparisons = compare_on_host(data, accelerator, functions)
    assert not [c for c in comparisons if c.on_npu and not c.is_equal]


def _after_log_softmax(net: NetBuilder, x: Value) -> Value:
    return net.quantize(net.log_softmax(x), 0.03, -7)


def log_softmax_between(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return (net.conv2d(_after_log_softmax(net, y), filters=16),)


def log_softmax_beside_a_skip(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return (net.add(y, net.conv2d(_after_log_softmax(net, y), filters=16)),)


def log_softmax_beside_a_skip_of_a_reshape(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.reshape(net.conv2d(x, filters=16), (1, 4, 16, 16))
    return (net.add(y, net.conv2d(_after_log_softmax(net, y), filters=16)), y)


def log_softmax_first(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return (net.conv2d(_after_log_softmax(net, x), filters=16),)


def log_softmax_last(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return (net.log_softmax(net.dense(x, units=10)),)


def log_softmax_and_npu_read_one_output(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return net.log_softmax(y), net.max_pool(y), y


def three_functions(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    z = net.conv2d(_after_log_softmax(net, y), filters=16)
    w = net.conv2d(_after_log_softmax(net, z), filters=16)
    return net.add(net.add(y, z), w), z


FAMILIES: dict[str, tuple[Family, int]] = {
    family.__name__: (family, functions)
    for family, functions in (
        (log_softmax_between, 2),
        (log_softmax_beside_a_skip, 2),
        (log_softmax_beside_a_skip_of_a_reshape, 2),
        (log_softmax_first, 1),
        (log_softmax_last, 1),
        (log_softmax_and_npu_read_one_output, 1),
        (three_functions, 3),
    )
}


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name: str) -> None:
    make, functions = FAMILIES[name]
    net = NetBuilder(seed=2)
    net.output(*make(net, net.input((1, 8, 8, 8))))
    check_on_host(net.build(), "ethos-u55-128", functions)


def check(graph: Graph) -> None:
    """Compare one random network."""
    check_on_host(build(graph).build(), graph.accelerators[0])


KINDS = ("conv", "pool", "add", "add_pooled", "reshape", "log_softmax", "dense")
test_graphs, test_graphs_thoroughly = examples_of(graphs(KINDS, steps=7), check, quick=8)


def test_outputs_repeated_and_passed_through() -> None:
    net = NetBuilder(seed=2)
    x = net.input((1, 8, 8, 8))
    y = net.conv2d(x, filters=16)
    net.output(x, y, net.reshape(y, (1, 1024)), y, net.reshape(x, (1, 512)))
    comparisons = compare_on_host(net.build(), "ethos-u55-64")
    assert not [c for c in comparisons if not c.is_equal]
