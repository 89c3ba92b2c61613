"""Networks that a report has something to say about, compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.html.data import ReportData, Variant
from tvm_ethosu.backend.html.gather import gather, variant
from tvm_ethosu.backend.outcome import Compilation, compile_or_least
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite

# What would run, open a picture or end an attribute if a page took names for HTML.
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 2">',
    "{{ 7 * 7 }}<!--",
)
LIMIT_BYTES = 512


def hostile_network() -> bytes:
    """Return conv, conv, conv, log_softmax (CPU), conv, softmax, some with hostile names."""
    net = NetBuilder("int8", seed=3)
    x = net.input((1, 16, 16, 16), name=HOSTILE[0])
    x = net.conv2d(net.conv2d(x, filters=32), filters=32, name=HOSTILE[1])
    x = net.conv2d(x, filters=8, stride=(2, 2))
    x = net.conv2d(net.log_softmax(x, name=HOSTILE[2]), filters=8, kernel=(1, 1))
    net.output(net.softmax(x, name="last"))
    return net.build()


@pytest.fixture(scope="session")
def hostile_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "<b>bold & bad.tflite"
    path.write_bytes(hostile_network())
    return path


@pytest.fixture(scope="session")
def options() -> EthosUOptions:
    return EthosUOptions("ethos-u55-128", 14 * 1024)


@pytest.fixture(scope="session")
def compilation(hostile_model: Path, options: EthosUOptions) -> Compilation:
    return compile_or_least(load_tflite(hostile_model), options)


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.tflite"
    net = NetBuilder("int8", seed=5)
    x = net.conv2d(net.input((1, 8, 8, 3)), filters=16)
    net.output(net.conv2d(x, filters=4, activation="RELU"))
    path.write_bytes(net.build())
    return path


@pytest.fixture(scope="session")
def variants(small_model: Path) -> tuple[Variant, ...]:
    """Return one that does not fit and one that does, of another network."""
    file = load_tflite(small_model)
    small = EthosUOptions("ethos-u55-128", LIMIT_BYTES)
    large = EthosUOptions("ethos-u55-256", 64 * 1024)
    return variant(file, "less SRAM", small), variant(file, "ethos-u55-256", large)


@pytest.fixture(scope="session")
def report(compilation: Compilation, variants: tuple[Variant, ...]) -> ReportData:
    return gather(compilation, variants)
