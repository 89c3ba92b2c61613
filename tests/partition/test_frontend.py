"""to_relay: names and types that arrive in Relay, and importer failures as one short sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.tflite_builder import NetBuilder
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite, parse_tflite
from tvm_ethosu.scheduler.errors import UserError


def refused(file: TfliteFile) -> str:
    with pytest.raises(UserError) as caught:
        to_relay(file)
    message = str(caught.value)
    assert "\n" not in message
    assert "Traceback" not in message
    return message


def test_module_is_typed_and_constants_are_parameters() -> None:
    net = NetBuilder()
    net.output(net.conv2d(net.input((1, 4, 4, 2), name="image"), filters=3))
    mod, params = to_relay(parse_tflite(net.build()))
    main = mod["main"]
    assert main.params[0].name_hint == "image"
    assert list(main.ret_type.shape) == [1, 4, 4, 3]
    assert {param.name_hint for param in main.params} == {"image", *params}


def test_tensors_with_one_name_are_kept_apart() -> None:
    def graph(names: list[str | None]) -> tvm.IRModule:
        net = NetBuilder()
        x = net.input((1, 8, 8, 1), name=names[0])
        y = net.max_pool(x, name=names[1])
        net.output(net.add(y, net.max_pool(y, kernel=(1, 1), stride=(1, 1), name=names[2])))
        return to_relay(parse_tflite(net.build()))[0]

    same = graph(["x", "x", "x"])
    tvm.ir.assert_structural_equal(same, graph(["a", "b", "c"]), map_free_vars=True)
    tvm.ir.assert_structural_equal(same, graph([None, None, None]), map_free_vars=True)


def test_a_dense_layer_may_have_a_scale_per_channel() -> None:
    net = NetBuilder()
    x = net.input((1, 4), 0.5, 3)
    weights = np.arange(8, dtype=np.int8).reshape(2, 4)
    options = {"weights": weights, "weight_scales": [0.25, 0.75], "scale": 2.0, "zero_point": -1}
    net.output(net.dense(x, activation="RELU", **options))
    mod, params = to_relay(parse_tflite(net.build()))
    bound = relay.build_module.bind_params_by_name(mod["main"], params)
    clip = bound.body
    requantize = clip.args[0]
    assert (clip.attrs.a_min, clip.attrs.a_max) == (-1, 127)
    assert requantize.attrs.axis == 1
    np.testing.assert_array_equal(requantize.args[1].data.numpy(), np.float32([0.125, 0.375]))
    dense = requantize.args[0].args[0]
    np.testing.assert_array_equal(dense.args[1].data.numpy(), weights)
    np.testing.assert_array_equal(dense.args[5].data.numpy(), np.float32([0.25, 0.75]))


def test_an_operator_that_the_importer_lacks_is_named_with_its_result() -> None:
    net = NetBuilder()
    y = net.max_pool(net.input((1, 4, 4, 1)), name="y")
    net._operators[0] = dataclasses.replace(net._operators[0], code="SVDF")
    net.output(y)
    message = refused(parse_tflite(net.build()))
    assert message.endswith(
        "operator 0 (SVDF), which writes 'y': TVM's importer has no such operator"
    )


def test_a_failing_conversion_names_operator_and_result() -> None:
    net = NetBuilder()
    net.output(net.max_pool(net.input((1, 4, 4, 1)), name="y"))
    pool = net._operators[0]
    unknown_padding = {0: ("Int8", 9)}
    net._operators[0] = dataclasses.replace(pool, fields={**pool.fields, **unknown_padding})
    message = refused(parse_tflite(net.build()))
    assert "operator 0 (MAX_POOL_2D), which writes 'y': TVM cannot import it:" in message


def test_a_shape_that_contradicts_the_operator_is_refused(
    capfd: pytest.CaptureFixture[str],
) -> None:
    net = NetBuilder()
    y = net.max_pool(net.input((1, 4, 4, 1)), name="y")
    net._tensors[1] = dataclasses.replace(
        net._tensors[1], value=dataclasses.replace(y, shape=(1, 3, 2, 1))
    )
    net.output(y)
    message = refused(parse_tflite(net.build()))
    assert (
        "gives int8 of shape [1, 2, 2, 1], but the file says int8 of shape [1, 3, 2, 1]" in message
    )
    assert capfd.readouterr() == ("", "")


def test_type_errors_of_relay_are_silent_and_short(capfd: pytest.CaptureFixture[str]) -> None:
    net = NetBuilder()
    x, y = net.input((1, 4, 4, 3)), net.input((1, 4, 4, 3))
    z = net.add(x, y)
    net._tensors[1] = dataclasses.replace(
        net._tensors[1], value=dataclasses.replace(y, shape=(1, 4, 5, 3))
    )
    net.output(z)
    assert "<memory>" in refused(parse_tflite(net.build()))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("folder", ["mlperf_tiny", "tflm"])
def test_the_example_networks_import(folder: str, shared: Path) -> None:
    refused_names = {"keyword_scrambled_8bit", "person_detect_vela", "trained_lstm_int8"}
    for path in sorted((shared / "models" / folder).glob("*.tflite")):
        if path.stem not in refused_names:
            to_relay(load_tflite(path))
