from __future__ import annotations

import pytest
import tvm
from tvm import relay

from tests.equivalence.movement import split, unpack
from tests.partition.networks import partition, residual, two_functions
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.report import operator_rows
from tvm_ethosu.partition import explain_partition, partition_for_ethosu
from tvm_ethosu.partition.relay.legalize import to_npu_graph
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.partition.tflite_file import parse_tflite
from tvm_ethosu.scheduler.errors import UserError
from tvm_ethosu.scheduler.ir import NpuGraph


def _graphs(module: tvm.IRModule) -> list[NpuGraph]:
    return [
        to_npu_graph(function, name, with_scratch=True)
        for name, function in npu_functions(module).items()
    ]


def test_a_residual_network_is_one_function_with_a_readable_text() -> None:
    (graph,) = _graphs(partition(residual()))
    lines = str(graph).splitlines()
    assert lines[0] == (
        "npu @tvmgen_default_ethos_u_main_0(%in0: 1x8x8x3 int8) -> (%t5: 1x1x1x10 int8) {"
    )
    kinds = [line.split(" = ")[1].split("(")[0] for line in lines[1:-1]]
    assert kinds == ["conv2d", "conv2d", "add", "average_pool", "conv2d"]
    assert "%t4[1x1x1x256 int8" in lines[-2]


def test_a_fused_activation_narrows_the_limits() -> None:
    net = NetBuilder("int8", seed=1)
    x = net.input((1, 4, 4, 8))
    net.output(net.conv2d(x, filters=8, activation="RELU"))
    file = parse_tflite(net.build())
    (graph,) = _graphs(partition(file))
    (zero_point,) = file.tensors[file.outputs[0]].zero_points
    assert (graph.ops[0].clamp.minimum, graph.ops[0].clamp.maximum) == (zero_point, 127)


def test_work_between_cpu_operators_makes_functions_of_its_own() -> None:
    module = partition(two_functions())
    assert len(npu_functions(module)) == 2
    on_cpu = [d for d in explain_partition(module) if not d.on_npu]
    assert [d.reason for d in on_cpu] == ["the NPU's operator table has no row for nn.log_softmax"]


def test_a_reshape_alone_stays_on_the_cpu_and_says_why() -> None:
    net = NetBuilder("int8", seed=1)
    x = net.log_softmax(net.input((1, 4, 4, 8)))
    net.output(net.log_softmax(net.reshape(x, (1, 16, 8))))
    module = partition(parse_tflite(net.build()))
    assert npu_functions(module) == {}
    reasons = [d.reason for d in explain_partition(module)]
    assert any("only rearranges memory" in reason for reason in reasons)


def test_an_operator_over_a_limit_stays_with_the_value_as_reason() -> None:
    net = NetBuilder("int8", seed=1)
    x = net.conv2d(net.input((1, 20, 20, 8)), filters=8)
    net.output(net.conv2d(x, filters=8, kernel=(65, 64)))
    module = partition(parse_tflite(net.build()))
    (decision,) = [d for d in explain_partition(module) if not d.on_npu]
    assert decision.reason == "dilated kernel height is 65, the NPU takes 1 to 64"
    assert len(npu_functions(module)) == 1


def test_heads_without_a_common_operator_are_one_function() -> None:
    net = NetBuilder("int8", seed=1)
    x, y = net.input((1, 4, 4, 8)), net.input((1, 4, 4, 8))
    net.output(net.conv2d(x, filters=4), net.add(x, y), net.max_pool(y), *split(net, x, 2, 3))
    (graph,) = _graphs(partition(parse_tflite(net.build())))
    assert (len(graph.inputs), len(graph.outputs)) == (2, 5)


def test_functions_that_wait_for_other_cpu_operators_stay_apart() -> None:
    net = NetBuilder("int8", seed=1)
    x, y = net.input((1, 4, 4, 8)), net.input((1, 4, 4, 8))
    late = net.log_softmax(y)
    net.output(net.conv2d(x, filters=4), net.max_pool(late), net.conv2d(late, filters=3))
    graphs = _graphs(partition(parse_tflite(net.build())))
    assert sorted(len(graph.ops) for graph in graphs) == [1, 2]


def test_functions_one_after_the_other_are_not_merged_around_the_cpu() -> None:
    net = NetBuilder("int8", seed=1)
    x = net.input((1, 4, 4, 8))
    first, other = net.conv2d(x, filters=8), net.max_pool(x)
    second = net.conv2d(net.log_softmax(first), filters=8)
    net.output(second, net.max_pool(net.log_softmax(other)))
    graphs = _graphs(partition(parse_tflite(net.build())))
    assert sorted(len(graph.ops) for graph in graphs) == [1, 1, 2]


def test_results_of_a_split_have_names_of_their_own() -> None:
    net = NetBuilder("int8", seed=1)
    x = net.input((1, 4, 4, 8))
    first, second = split(net, net.max_pool(x, kernel=(1, 1), stride=(1, 1)), 2, 3)
    net.output(first, *unpack(net, second, 1))
    file = parse_tflite(net.build())
    module = partition(file)
    (graph,) = _graphs(module)
    names = [file.tensors[index].name for index in file.outputs]
    assert [graph.tensors[output].origin for output in graph.outputs] == names
    rows = operator_rows(file, explain_partition(module))
    assert [(row.name, row.reason) for row in rows if not row.npu_function] == []


def test_a_partitioned_module_is_not_partitioned_again() -> None:
    module = partition(residual())
    with pytest.raises(UserError, match="partitioned already"):
        partition_for_ethosu(module)


def test_a_module_without_main_is_refused() -> None:
    with pytest.raises(UserError, match="no function 'main'"):
        partition_for_ethosu(tvm.IRModule())


def test_a_dynamic_shape_is_refused_with_the_inputs_name() -> None:
    x = relay.var("x", shape=(1, relay.Any(), 8, 8), dtype="int8")
    pool = relay.nn.max_pool2d(x, (2, 2), layout="NHWC")
    module = tvm.IRModule.from_expr(relay.Function([x], pool))
    with pytest.raises(UserError, match="input 'x' is"):
        partition_for_ethosu(module)


def test_functions_of_other_code_generators_stay() -> None:
    x = relay.var("x", shape=(1, 8, 8, 16), dtype="int8")
    p = relay.var("p", shape=(1, 8, 8, 16), dtype="int8")
    other = relay.Function([p], relay.abs(p)).with_attr("Compiler", "other")
    other = other.with_attr("global_symbol", "other_0").with_attr("Primitive", 1)
    module = tvm.IRModule({relay.GlobalVar("other_0"): other})
    module = relay.transform.InferType()(module)
    call = relay.Call(module.get_global_var("other_0"), [x])
    module["main"] = relay.Function([x], relay.nn.max_pool2d(call, (2, 2), layout="NHWC"))
    result = partition_for_ethosu(module)
    names = {var.name_hint for var in result.get_global_vars()}
    assert names == {"main", "tvmgen_default_other_0", "tvmgen_default_ethos_u_main_0"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accelerator_config": "ethos-u85-256"}, "known: ethos-u55-32, .*ethos-u65-512"),
        ({"memory_mode": "Flash"}, "memory_mode: unknown .*Shared_Sram"),
        ({"memory_mode": "Dedicated_Sram"}, "not supported yet"),
        ({"system_config": "Mine"}, "system_config: unknown .*Ethos_U55_High_End_Embedded"),
        ({"sram_size": 0}, "positive number of bytes"),
        ({"sram_size": -5}, "positive number of bytes"),
    ],
)
def test_unknown_options_are_refused_with_the_known_ones(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        partition(residual(), **options)


def test_operators_that_are_one_on_the_npu_are_all_explained() -> None:
    net = NetBuilder("int8", seed=1)
    x = net.input((1, 4, 4, 8))
    net.dtype = "float32"
    reals = net._add(
        "DEQUANTIZE", (x.index,), net._result(x.shape, 1, 0, ""), "DequantizeOptions", {}
    )
    y = net._add("NEG", (reals.index,), net._result(x.shape, 1, 0, ""), "NegOptions", {})
    net.dtype = "int8"
    net.output(*split(net, net.conv2d(net.quantize(y, 0.05, 3), filters=8), 2, 3))
    file = parse_tflite(net.build())
    rows = operator_rows(file, explain_partition(partition(file)))
    assert [row.name for row in rows] == ["DEQUANTIZE", "NEG", "QUANTIZE", "CONV_2D", "SPLIT"]
    assert all(row.npu_function for row in rows), rows
