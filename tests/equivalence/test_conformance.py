"""Networks made by others: one-operator ones, and the layers of a speech network in int16.

Each is exact on the NPU, or docs/coverage.md (``make coverage``) lists it with a reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY, shared_folder
from tests.equivalence.definitions import blended, looked_up, mirrored, table_of_int8
from tests.equivalence.harness import (
    Array,
    NpuNetwork,
    assert_equal,
    assert_exact,
    load,
    partition,
    run_on_npu,
)
from tvm_ethosu.partition.tflite_file import TfliteTensor, parse_tflite
from tvm_ethosu.scheduler.errors import UserError

Definition = Callable[[Array, TfliteTensor, TfliteTensor], Array]

ACCELERATORS = ("ethos-u55-32", "ethos-u55-128", "ethos-u65-512")
SOME = ("conv_s3_int8", "add_bc_hw_int16", "tconv3_valid_int8", "mean_w_int16", "sslice2_int8")
# TFLite Micro has no kernel of these types: its definition, or numpy's, decides.
BY_DEFINITION: dict[str, Definition] = {
    "mirrorpad_int16": lambda values, _, result: mirrored(values, result.shape),
    "resize_bil2_hp_int16": lambda values, _, __: blended(values, (2, 2), "half_pixel"),
    "exp_int16": lambda values, source, result: looked_up(
        math.exp, values, source.scales[0], result.scales[0]
    ),
    "exp_int8": lambda values, source, result: table_of_int8(
        math.exp,
        values,
        (source.scales[0], source.zero_points[0]),
        (result.scales[0], result.zero_points[0]),
    ),
}
# One of its 1280 golden values is another than TFLite Micro's kernel gives, by 1: for this layer
# the kernel decides.
OTHER_GOLDEN = ("leaky_relu/leaky_relu18",)
SOME_LAYERS = ("add/add0", "conv/conv0", "pad/pad0", "strided_slice/strided_slice0", "sub/sub0")


def _names(suite: str) -> list[str]:
    """Return the networks of a suite, none where it is absent."""
    shared = shared_folder()
    folder = shared / "conformance" / suite if shared else Path("absent")
    found = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.tflite")]
    return sorted(map(str, found)) or ["the suite"]


def _listed(suite: str) -> set[str]:
    """Return the networks of a suite that the page lists as not on the NPU."""
    page = (REPOSITORY / "docs" / "coverage.md").read_text()
    section = page.partition(f"\n## {suite}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| (\S+) \|", section, flags=re.M))


def _data(shared: Path, suite: str, name: str) -> bytes:
    path = shared / "conformance" / suite / f"{name}.tflite"
    if not path.is_file():
        pytest.skip(f"{suite} is not on this machine (TVM_ETHOSU_SHARED)")
    return path.read_bytes()


def _on_npu(data: bytes, suite: str, name: str) -> NpuNetwork | None:
    """Return the partitioned network; None where the page lists it as not on the NPU."""
    try:
        network = partition(data, "ethos-u55-128")
        reasons = network.cpu_reasons
    except UserError as error:
        network, reasons = None, {"import": str(error)}
    if not reasons:
        return network
    assert name in _listed(suite), f"not on the NPU, and not in docs/coverage.md: {reasons}"
    return None


def _check_operator(shared: Path, name: str, accelerators: tuple[str, ...]) -> None:
    data = _data(shared, "single_op", name)
    network = _on_npu(data, "single_op", name)
    if network is not None and name in BY_DEFINITION:
        _check_definition(network, data, BY_DEFINITION[name], accelerators)
    elif network is not None:
        assert_exact(data, accelerators)


def _check_definition(
    network: NpuNetwork, data: bytes, defined: Definition, accelerators: tuple[str, ...]
) -> None:
    file = parse_tflite(data)
    source, result = file.tensors[file.inputs[0]], file.tensors[file.outputs[0]]
    limits = np.iinfo(source.dtype)
    drawn = np.random.default_rng(0).integers(limits.min, limits.max, source.shape, endpoint=True)
    values = drawn.astype(source.dtype)
    expected = [defined(values, source, result)]
    for accelerator in accelerators:
        assert_equal(run_on_npu(network, load(network, accelerator), [values]), expected, "")


@pytest.mark.parametrize("name", SOME)
def test_operator(shared: Path, name: str) -> None:
    _check_operator(shared, name, ("ethos-u55-128",))


@pytest.mark.slow
@pytest.mark.parametrize("name", _names("single_op"))
def test_operator_on_all(shared: Path, name: str) -> None:
    _check_operator(shared, name, ACCELERATORS)


# --- layers with golden outputs -------------------------------------------------------------------


def _numbers(path: Path, of: TfliteTensor) -> Array:
    text = path.read_text().replace("\n", ",").split(",")
    return np.array([float(number) for number in text if number.strip()], of.dtype)


def _check_layer(shared: Path, name: str, accelerators: tuple[str, ...]) -> None:
    data = _data(shared, "seanet_int16", name)
    network = _on_npu(data, "seanet_int16", name)
    if network is None:
        return
    if name in OTHER_GOLDEN:
        assert_exact(data, accelerators)
        return
    file = parse_tflite(data)
    base = shared / "conformance" / "seanet_int16" / name
    inputs = []
    for index, tensor in enumerate(file.tensors[i] for i in file.inputs):
        if tensor.name in {str(param.name_hint) for param in network.module["main"].params}:
            (path,) = base.parent.glob(f"{base.name}_input{index}_*.csv")
            inputs.append(_numbers(path, tensor).reshape(tensor.shape))
        else:
            inputs.append(np.zeros(tensor.shape, tensor.dtype))  # nobody reads it
    (path,) = base.parent.glob(f"{base.name}_golden_*.csv")
    expected = [_numbers(path, file.tensors[file.outputs[0]])]
    for accelerator in accelerators:
        actual = run_on_npu(network, load(network, accelerator), inputs)
        assert_equal(actual, expected, f"{name} on {accelerator}")


@pytest.mark.parametrize("name", SOME_LAYERS)
def test_layer(shared: Path, name: str) -> None:
    _check_layer(shared, name, ("ethos-u55-128",))


@pytest.mark.slow
@pytest.mark.parametrize("name", _names("seanet_int16"))
def test_layer_on_all(shared: Path, name: str) -> None:
    _check_layer(shared, name, ACCELERATORS)
