"""Streams that Arm's compilers made: outputs equal TensorFlow Lite Micro's, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.vela_files import (
    Array,
    Core,
    MemoryMode,
    Network,
    VelaOptions,
    compile_with_vela,
    read_network,
    reference_runner,
    run_network,
)
from tvm_ethosu.scheduler.errors import Unsupported, UserError

TINY = ("ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "str_ww_ref_model", "vww_96_int8")
FULL_INPUTS = 10
MATRIX = [
    (accelerator, core, optimise)
    for accelerator in Accelerator
    for core in Core
    for optimise in ("Performance", "Size")
]
DEFAULT = [
    ("ad01_int8", Accelerator.U65_512, Core.LEGACY, "Performance"),
    ("kws_ref_model", Accelerator.U55_32, Core.REGOR, "Size"),
    ("pretrainedResnet_quant", Accelerator.U55_64, Core.LEGACY, "Size"),
    ("str_ww_ref_model", Accelerator.U55_128, Core.REGOR, "Performance"),
    ("vww_96_int8", Accelerator.U55_256, Core.LEGACY, "Performance"),
    ("vww_96_int8", Accelerator.U65_256, Core.REGOR, "Size"),
]
LARGE = (
    "generated/mobilenet_v2_1.0_224_int8",
    "generated/convnet_int16x8",
    "generated/convstack_320x240_int8",
    "tflm/mobilenet_v2_quantized_1x3x224x224",
    "tflm/person_detect",
    "tflm/micro_speech_quantized",
    "tflm/keyword_scrambled_8bit",
    "tflm/trained_lstm_int8",
    "tflm/hello_world_int8",
)
DEVIATIONS = {
    "lrelu_int16": "MUL scale computed in float32, both cores",
    "mul_int16": "MUL scale computed in float32, both cores",
    "mul_bc_int16": "MUL scale computed in float32, both cores",
    "prelu_int16": "MUL scale computed in float32, both cores",
    "relu6_int16": "MUL scale computed in float32, both cores",
    "rsqrt_int16": "16-bit LUT of another function, regor; MUL before it, legacy",
    "sum_c_int8": "rounds once where TFLite Micro rounds twice, regor",
}


def random_inputs(network: Network, rng: np.random.Generator) -> tuple[Array, ...]:
    """Return one full-range array per input."""
    values = []
    for index in network.inputs:
        tensor = network.tensors[index]
        dtype = np.dtype(tensor.dtype)
        if dtype.kind == "f":
            values.append(rng.standard_normal(tensor.shape).astype(dtype))
        else:
            limits = np.iinfo(dtype)
            values.append(rng.integers(limits.min, limits.max + 1, tensor.shape).astype(dtype))
    return tuple(values)


@cache
def reference_case(source: bytes, count: int) -> list[tuple[tuple[Array, ...], tuple[Array, ...]]]:
    """Return random inputs and the reference's outputs, computed once per network."""
    network = read_network(source)
    reference = reference_runner(source)
    rng = np.random.default_rng(20240229)
    inputs = [random_inputs(network, rng) for _ in range(count)]
    return [(values, reference(values)) for values in inputs]


def differences(source: bytes, compiled: bytes, inputs: int) -> Iterator[int]:
    """Yield, per random input, how many output elements differ from the reference."""
    network = read_network(compiled)
    assert network.streams
    for values, theirs in reference_case(source, inputs):
        ours = run_network(network, values).outputs
        yield sum(int((a.ravel() != b.ravel()).sum()) for a, b in zip(ours, theirs, strict=True))


def check(source: Path, folder: Path, options: VelaOptions, inputs: int) -> None:
    compiled = compile_with_vela(source, folder, options).read_bytes()
    assert list(differences(source.read_bytes(), compiled, inputs)) == [0] * inputs


@pytest.mark.parametrize(("name", "accelerator", "core", "optimise"), DEFAULT)
def test_tiny(
    shared: Path, tmp_path: Path, name: str, accelerator: Accelerator, core: Core, optimise: str
) -> None:
    source = shared / f"models/mlperf_tiny/{name}.tflite"
    check(source, tmp_path, VelaOptions(accelerator, core, optimise), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize(("accelerator", "core", "optimise"), MATRIX)
def test_tiny_everywhere(
    shared: Path, tmp_path: Path, name: str, accelerator: Accelerator, core: Core, optimise: str
) -> None:
    source = shared / f"models/mlperf_tiny/{name}.tflite"
    check(source, tmp_path, VelaOptions(accelerator, core, optimise), FULL_INPUTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize(("accelerator", "core", "optimise"), MATRIX)
def test_other_networks(
    shared: Path, tmp_path: Path, name: str, accelerator: Accelerator, core: Core, optimise: str
) -> None:
    source = shared / f"models/{name}.tflite"
    check(source, tmp_path, VelaOptions(accelerator, core, optimise), FULL_INPUTS)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MemoryMode)
@pytest.mark.parametrize("share", [75, 50, 25])
@pytest.mark.parametrize("core", Core)
def test_squeezed_arenas(
    shared: Path, tmp_path: Path, mode: MemoryMode, share: int, core: Core
) -> None:
    """Cascades with rolling buffers, weights in two buffers, spilling to the slow memory."""
    source = shared / "models/mlperf_tiny/vww_96_int8.tflite"
    limit = 74480 * share // 100
    options = VelaOptions(Accelerator.U65_256, core, "Performance", mode, limit)
    try:
        check(source, tmp_path, options, 3)
    except UserError as error:
        pytest.skip(f"Vela does not compile this: {str(error)[-200:]}")


def test_stream_of_another_time(shared: Path) -> None:
    """A stream that Arm's compiler made in 2021."""
    folder = shared / "models/tflm"
    source = (folder / "person_detect.tflite").read_bytes()
    compiled = (folder / "person_detect_vela.tflite").read_bytes()
    assert list(differences(source, compiled, 5)) == [0] * 5


@pytest.mark.slow
@pytest.mark.parametrize("core", Core)
@pytest.mark.parametrize(
    "accelerator", [Accelerator.U55_32, Accelerator.U55_128, Accelerator.U65_512]
)
def test_single_operators(
    shared: Path, tmp_path: Path, accelerator: Accelerator, core: Core
) -> None:
    """Equal wherever the reference has the kernel; the compilers' deviations are listed above."""
    wrong = {}
    compared = 0
    for source in sorted((shared / "conformance/single_op").glob("*.tflite")):
        compiled = compile_with_vela(source, tmp_path, VelaOptions(accelerator, core)).read_bytes()
        if not read_network(compiled).streams:
            continue
        try:
            found = list(differences(source.read_bytes(), compiled, FULL_INPUTS))
        except Unsupported:
            continue
        compared += 1
        if any(found):
            wrong[source.stem] = found
    assert compared > 80
    assert wrong.keys() <= DEVIATIONS.keys()


def build_small(dtype: str, seed: int = 3) -> bytes:
    """Return a network with most operators the builder knows."""
    net = NetBuilder(dtype, seed=seed)
    x = net.input((1, 12, 12, 5))
    y = net.conv2d(x, filters=20, activation="RELU")
    y = net.depthwise(y, stride=(2, 2))
    z = net.max_pool(y, kernel=(3, 3), stride=(1, 1), padding="SAME")
    y = net.add(y, z)
    y = net.conv2d(y, filters=9, kernel=(1, 1))
    y = net.avg_pool(y, kernel=(6, 6), stride=(6, 6))
    net.output(net.softmax(net.dense(net.reshape(y, (1, 9)), units=4)))
    return net.build()


@pytest.mark.parametrize("core", Core)
@pytest.mark.parametrize(
    "accelerator", [Accelerator.U55_32, Accelerator.U55_128, Accelerator.U65_512]
)
def test_network_of_our_own(tmp_path: Path, accelerator: Accelerator, core: Core) -> None:
    source = tmp_path / "small.tflite"
    source.write_bytes(build_small("int8"))
    check(source, tmp_path / "out", VelaOptions(accelerator, core), 5)


@pytest.mark.parametrize(
    ("dtype", "multiples", "accelerator"),
    [
        ("int8", (1, 2, 3, 1), Accelerator.U65_512),
        ("uint8", (1, 1, 1, 3), Accelerator.U55_64),
        ("int16", (1, 1, 3, 2), Accelerator.U55_128),
    ],
)
def test_copies_with_a_rounding_mode(
    tmp_path: Path, dtype: str, multiples: tuple[int, ...], accelerator: Accelerator
) -> None:
    """Regor writes an IFM rounding mode on the copies of TILE; TFLite Micro has no such kernel."""
    net = NetBuilder(dtype)
    net.output(net.tile(net.input((1, 4, 6, 5)), multiples))
    source = tmp_path / "tile.tflite"
    source.write_bytes(net.build())
    compiled = compile_with_vela(source, tmp_path / "out", VelaOptions(accelerator, Core.REGOR))
    network = read_network(compiled.read_bytes())
    assert "ifm_rounding=<Rounding.NATURAL" in repr(network.streams[0].operations)
    values = random_inputs(network, np.random.default_rng(5))
    assert np.array_equal(run_network(network, values).outputs[0], np.tile(values[0], multiples))


@pytest.mark.parametrize(
    ("code", "scale", "zero_point", "core"),
    [("LOGISTIC", 1 / 256, 0, Core.REGOR), ("TANH", 1 / 128, 128, Core.LEGACY)],
)
def test_tables_of_unsigned_bytes(
    tmp_path: Path, code: str, scale: float, zero_point: int, core: Core
) -> None:
    """Every input, against the formula: TFLite Micro has no such kernel for uint8."""
    net = NetBuilder("uint8")
    x = net.input((1, 4, 8, 8))
    net.output(net.curve(code, x, scale, zero_point))
    source = tmp_path / "curve.tflite"
    source.write_bytes(net.build())
    compiled = compile_with_vela(source, tmp_path / "out", VelaOptions(Accelerator.U55_128, core))
    network = read_network(compiled.read_bytes())
    values = np.arange(256, dtype=np.uint8).reshape(x.shape)
    real = (values - float(x.zero_point)) * x.scale
    curve = np.tanh(real) if code == "TANH" else 1 / (1 + np.exp(-real))
    expected = np.clip(np.rint(curve / scale) + zero_point, 0, 255).astype(np.uint8)
    assert np.array_equal(run_network(network, [values]).outputs[0], expected)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:4] + b"TFL2" + data[8:],
    ],
)
def test_files_that_are_not_tflite(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(UserError, match="not a TFLite file"):
        read_network(damage(build_small("int8")))


def test_vela_failure_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "bad.tflite"
    source.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"bad\.tflite does not compile"):
        compile_with_vela(source, tmp_path / "out", VelaOptions(Accelerator.U55_128))
