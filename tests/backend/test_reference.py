"""TFLite Micro as the reference: inner tensors seen without disturbing the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend import tflm
from tvm_ethosu.backend.reference import Reference, expose_tensors, run_reference
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite, parse_tflite
from tvm_ethosu.scheduler.errors import UserError


def net_of_two_branches() -> tuple[NetBuilder, bytes]:
    net = NetBuilder(seed=5)
    x = net.input((1, 6, 6, 2), name="x")
    y = net.conv2d(x, filters=4, name="y")
    net.output(net.add(y, net.conv2d(y, filters=4, name="z"), name="sum"))
    return net, net.build()


def results_of_operators(file: TfliteFile) -> list[int]:
    names = {name for operator in file.operators for name in operator.outputs}
    return [tensor.index for tensor in file.tensors if tensor.name in names]


def test_exposing_changes_the_outputs_and_nothing_else() -> None:
    _, data = net_of_two_branches()
    before, after = parse_tflite(data), parse_tflite(expose_tensors(data, ["z", "y", "sum"]))
    names = [after.tensors[index].name for index in after.outputs]
    assert names == ["sum", "z", "y"]
    assert (after.inputs, after.tensors, after.operators) == (
        before.inputs,
        before.tensors,
        before.operators,
    )
    assert after.data[len(data) :]
    changed = [i for i, (a, b) in enumerate(zip(data, after.data, strict=False)) if a != b]
    assert len(changed) <= 4  # the offset that leads to the outputs


def test_inner_tensors_are_what_the_network_computes() -> None:
    net, data = net_of_two_branches()
    inputs = net.random_inputs()
    total, y = run_reference(data, inputs, ["y"])
    cut = NetBuilder(seed=5)  # the same weights, ending at y
    cut.output(cut.conv2d(cut.input((1, 6, 6, 2)), filters=4))
    np.testing.assert_array_equal(y, run_reference(cut.build(), inputs)[0])
    np.testing.assert_array_equal(total, run_reference(data, inputs)[0])


def test_one_object_runs_many_inputs_and_results_stay_valid() -> None:
    net, data = net_of_two_branches()
    reference = Reference(data, ["x", "z", "z"])
    first, second = net.random_inputs(), net.random_inputs()
    a = reference.run(first)
    b = reference.run(second)
    assert len(a) == 4
    np.testing.assert_array_equal(a[1], first[0])
    np.testing.assert_array_equal(a[2], a[3])
    assert (a[0] != b[0]).any()
    for before, again in zip(a, reference.run(first), strict=True):
        np.testing.assert_array_equal(before, again)


def test_wrong_inputs_and_tensors_are_told_with_values() -> None:
    net, data = net_of_two_branches()
    reference = Reference(data)
    with pytest.raises(UserError, match=r"takes 1 inputs \(got 0\)"):
        reference.run([])
    with pytest.raises(UserError, match=r"'x' is int8 of shape .* \(got uint8 of shape"):
        reference.run([net.random_inputs()[0].astype(np.uint8)])
    with pytest.raises(UserError, match=r"no such tensor \(got 'nobody'"):
        Reference(data, ["nobody"])
    with pytest.raises(UserError, match=r"no such tensor \(got 99"):
        Reference(data, [99])
    with pytest.raises(UserError, match="'c2' is a constant"):
        Reference(data, ["c2"])
    with pytest.raises(UserError, match="'x' is no result of an operator"):
        expose_tensors(data, ["x"])


def test_a_large_network_gets_a_large_arena() -> None:
    net = NetBuilder()
    x = net.input((1, 1024, 1024, 3))
    net.output(net.max_pool(x))
    (out,) = run_reference(net.build(), net.random_inputs())
    assert out.shape == (1, 512, 512, 3)


def test_an_operator_that_tflite_micro_lacks_is_a_user_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    net = NetBuilder("uint8")  # its convolutions are for int8 and int16
    net.output(net.conv2d(net.input((1, 4, 4, 1)), filters=1))
    with pytest.raises(UserError, match=r"TFLite Micro does not .*CONV_2D"):
        run_reference(net.build(), net.random_inputs())
    assert capfd.readouterr() == ("", "")


def test_without_tflite_micro_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tflite_micro.py").write_text("raise ImportError('none')")
    monkeypatch.syspath_prepend(tmp_path)
    tflm.close()
    with pytest.raises(UserError, match=r"pip install 'tvm-ethosu\[test\]'"):
        Reference(net_of_two_branches()[1])


def test_a_process_that_cannot_start_is_a_user_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tflite_micro.py").write_text("import os; os.write(2, b'no luck'); os.abort()")
    monkeypatch.syspath_prepend(tmp_path)
    tflm.close()
    with pytest.raises(UserError, match=r"crashed at its start \(SIGABRT\)\. no luck"):
        Reference(net_of_two_branches()[1])


def without_bias(data: bytes) -> bytes:
    """Return a one-operator file whose operator has -1 in place of its third input.

    That is how TFLite says that a bias was left out; TFLite Micro's depthwise convolution crashes.
    """
    table = tflite.Model.GetRootAs(data).Subgraphs(0).Operators(0)._tab
    place = table.Vector(table.Offset(6)) + 2 * 4
    return data[:place] + b"\xff" * 4 + data[place + 4 :]


def test_a_crash_is_a_user_error_and_other_networks_go_on() -> None:
    net = NetBuilder(seed=1)
    net.output(net.depthwise(net.input((1, 6, 6, 4))))
    inputs = net.random_inputs()
    prepared = Reference(net.build())
    before = prepared.run(inputs)
    with pytest.raises(UserError, match=r"TFLite Micro crashed on the network \(SIGSEGV\)"):
        run_reference(without_bias(net.build()), inputs)
    for reference in (prepared, Reference(net.build())):
        np.testing.assert_array_equal(before[0], reference.run(inputs)[0])


def test_one_process_serves_all_networks_and_forgets_those_that_are_gone() -> None:
    _, data = net_of_two_branches()
    first = tflm.TflmNetwork(data, 1)
    number = first._number
    second = tflm.TflmNetwork(data, 1)
    assert first._worker is second._worker
    del first
    assert second._worker.forgotten == [number]
    second.run(net_of_two_branches()[0].random_inputs())
    assert second._worker.forgotten == []


@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "pretrainedResnet_quant"])
def test_seeing_all_inner_tensors_does_not_change_the_outputs(name: str, shared: Path) -> None:
    """... and what is seen is what the interpreter holds when told to keep every tensor."""
    runtime = pytest.importorskip("tflite_micro").runtime
    file = load_tflite(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    inner = results_of_operators(file)
    plain, seen = Reference(file.data), Reference(file.data, inner)
    keeper = runtime.Interpreter.from_bytes(
        file.data,
        arena_size=1 << 22,
        intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors,
    )
    rng = np.random.default_rng(0)
    (entry,) = file.inputs
    for _ in range(3):
        array = rng.integers(-128, 128, file.tensors[entry].shape).astype(np.int8)
        outputs = seen.run([array])
        np.testing.assert_array_equal(outputs[0], plain.run([array])[0])
        keeper.set_input(array, 0)
        keeper.invoke()
        for index, tensor in zip(inner, outputs[1:], strict=True):
            np.testing.assert_array_equal(tensor, keeper.GetTensor(index, 0)["tensor_data"])
