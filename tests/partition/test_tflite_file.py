"""load_tflite: what it reads, and that whatever is wrong becomes one sentence with the values."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tflite_builder import NetBuilder
from tvm_ethosu.partition.tflite_file import load_tflite, parse_tflite
from tvm_ethosu.scheduler.errors import UserError


@cache
def small_net() -> bytes:
    net = NetBuilder(seed=1)
    x = net.input((1, 8, 8, 3), 0.05, 3, name="image", signature=(-1, 8, 8, 3))
    y = net.conv2d(x, filters=4, activation="RELU", name="first", bias=False)
    y = net.add(y, net.max_pool(y, kernel=(3, 3), stride=(1, 1), padding="SAME"))
    y = net.reshape(y, (1, 256))
    net.output(net.softmax(net.dense(y, units=3), name="scores"))
    return net.build()


def refused(data: bytes) -> str:
    with pytest.raises(UserError) as caught:
        parse_tflite(data)
    return str(caught.value)


# --- what is read ------------------------------------------------------------------------------


def test_operators_and_tensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(small_net())
    file = load_tflite(path)
    assert file.path == path
    assert [operator.name for operator in file.operators] == [
        "CONV_2D",
        "MAX_POOL_2D",
        "ADD",
        "RESHAPE",
        "FULLY_CONNECTED",
        "SOFTMAX",
    ]
    conv = file.operators[0]
    assert (conv.inputs, conv.outputs) == (("image", "c1"), ("first",))
    image, weights = file.tensors[0], file.tensors[1]
    assert (image.shape, image.dtype, image.zero_points) == ((1, 8, 8, 3), "int8", (3,))
    assert image.scales == (np.float32(0.05),)
    assert not image.is_constant
    assert weights.is_constant
    assert len(weights.scales) == len(weights.zero_points) == 4
    assert [file.tensors[i].name for i in (*file.inputs, *file.outputs)] == ["image", "scores"]


def test_names_that_are_missing_or_repeated_become_unique() -> None:
    net = NetBuilder()
    x = net.input((1, 4, 4, 1), name=None)
    y = net.max_pool(x, name="twin")
    z = net.avg_pool(y, name="twin")
    net.output(net.reshape(z, (1, 1), name="tensor_0"))
    file = parse_tflite(net.build())
    assert [t.name for t in file.tensors] == ["tensor_0_", "twin_1", "twin_2", "tensor_0", "c4"]


def test_an_absent_optional_input_is_an_empty_name() -> None:
    net = NetBuilder()
    net.output(net.dense(net.input((1, 4)), units=3))
    operator = net._operators[0]
    assert len(operator.inputs) == 3
    net._operators[0] = dataclasses.replace(operator, inputs=(*operator.inputs[:2], -1))
    assert parse_tflite(net.build()).operators[0].inputs == ("t0", "c1", "")


def test_the_example_networks_load(shared: Path) -> None:
    paths = [p for p in shared.rglob("*.tflite") if p.name != "person_detect_vela.tflite"]
    assert len(paths) > 20
    for path in paths:
        assert load_tflite(path).operators


# --- what is refused ---------------------------------------------------------------------------


def test_the_path_leads_the_message(tmp_path: Path) -> None:
    missing = tmp_path / "none.tflite"
    with pytest.raises(UserError, match=f"^{missing}: no such file$"):
        load_tflite(missing)
    with pytest.raises(UserError, match="is a directory"):
        load_tflite(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        load_tflite("a\0b")
    (tmp_path / "empty").touch()
    with pytest.raises(UserError, match="the file is empty"):
        load_tflite(tmp_path / "empty")
    with pytest.raises(UserError, match="not a regular file"):
        load_tflite(os.devnull)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
        (b'{"model": 1}', "JSON"),
        (b"\x08\x08\x12\x07onnx-ml" + bytes(60), "ONNX"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"abcdTFL2" + bytes(60), r"bytes 4 to 8 are b'TFL2', TFLite has b'TFL3'"),
        (b"abc", "only 3 bytes"),
    ],
)
def test_other_formats_are_named(data: bytes, words: str) -> None:
    assert words in refused(data)


def test_a_float_network_is_told_to_quantise() -> None:
    net = NetBuilder("float32")
    net.output(net.conv2d(net.input((1, 8, 8, 3), name="image"), filters=2))
    message = refused(net.build())
    assert "'image' is float32" in message
    assert "quantize it first" in message


def test_several_subgraphs_are_control_flow() -> None:
    net = NetBuilder()
    net.output(net.max_pool(net.input((1, 4, 4, 1))))
    message = refused(net.build(subgraphs=2))
    assert "control flow" in message
    assert "2 subgraphs" in message


def test_a_network_without_operators() -> None:
    net = NetBuilder()
    net.output(net.input((1, 4)))
    assert refused(net.build()) == "the network has no operators"


def test_dynamic_shapes_name_the_tensor_and_the_dimension() -> None:
    net = NetBuilder()
    net.output(net.max_pool(net.input((1, 4, 4, 1), name="in", signature=(1, -1, 4, 1))))
    assert "'in' has a dynamic shape (dimension 1 of [1, -1, 4, 1])" in refused(net.build())
    net = NetBuilder()
    net.output(net.reshape(net.input((1, 0, 4, 1), name="in"), (1, 4)))
    assert "'in' has a dynamic shape (dimension 1 of [1, 0, 4, 1])" in refused(net.build())


def test_a_buffer_that_does_not_fit_its_shape() -> None:
    net = NetBuilder()
    x = net.input((1, 1, 1, 4))
    net.output(net.add(x, net.constant(np.arange(4, dtype=np.int8))))
    value = net._tensors[1].value
    net._tensors[1] = dataclasses.replace(
        net._tensors[1], value=dataclasses.replace(value, shape=(5,))
    )
    assert "int8 of shape [5] takes 5 bytes (got 4)" in refused(net.build())


def test_tensors_that_nobody_writes_or_that_are_written_twice() -> None:
    net = NetBuilder()
    x = net.input((1, 4, 4, 1))
    lost = net._result((1, 4, 4, 1), 1.0, 0, "lost")
    net.output(net.add(x, lost))
    assert "operator 0 (ADD) reads tensor 'lost'" in refused(net.build())
    net = NetBuilder()
    x = net.input((1, 4, 4, 1))
    y = net.max_pool(x, name="y")
    net._operators.append(net._operators[0])
    net.output(y)
    assert "operator 1 (MAX_POOL_2D) writes tensor 'y'" in refused(net.build())


def test_indices_out_of_range() -> None:
    net = NetBuilder()
    y = net.max_pool(net.input((1, 4, 4, 1)))
    net.output(dataclasses.replace(y, index=9))
    assert "the network's output is no tensor of the file (got 9, it has 2)" in refused(net.build())


def test_scales_and_zero_points_are_checked() -> None:
    net = NetBuilder()
    net.output(net.max_pool(net.input((1, 4, 4, 1), float("nan"), name="x")))
    assert refused(net.build()) == "tensor 'x': a scale is not a positive number (got nan)"
    net = NetBuilder()
    net.output(net.max_pool(net.input((1, 4, 4, 1), 1.0, 200, name="x")))
    assert "zero point does not fit int8 (got 200" in refused(net.build())


# --- damaged files -----------------------------------------------------------------------------


def test_every_truncation_is_refused_in_one_sentence() -> None:
    data = small_net()
    for length in range(len(data)):
        message = refused(data[:length])
        assert "\n" not in message
        if length >= 8:
            assert "truncated or damaged" in message


def _survives(data: bytes) -> None:
    with contextlib.suppress(UserError):
        parse_tflite(data)


@settings(max_examples=300, deadline=2000)
@given(st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_load_or_are_refused(changes: list[tuple[float, int]]) -> None:
    data = bytearray(small_net())
    for place, byte in changes:
        data[int(place * len(data))] = byte
    _survives(bytes(data))


_WORDS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 4, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1]),
)


@settings(max_examples=300, deadline=2000)
@given(st.lists(st.tuples(st.floats(0, 0.999), _WORDS), min_size=1, max_size=3))
def test_changed_offsets_and_counts_load_or_are_refused(changes: list[tuple[float, int]]) -> None:
    data = bytearray(small_net())
    for place, word in changes:
        struct.pack_into("<I", data, int(place * (len(data) // 4)) * 4, word)
    _survives(bytes(data))


@settings(max_examples=200, deadline=2000)
@given(st.binary(max_size=400))
def test_noise_behind_the_identifier_is_refused(noise: bytes) -> None:
    refused(b"\x10\0\0\0TFL3" + noise)


def test_vectors_that_lie_over_each_other_end_in_bounded_time() -> None:
    """A file of 16 bytes per tensor whose shapes would take the square of that."""
    count = 4000
    vtable = 56 + 4 * count
    tables = vtable + 8
    shapes = tables + 8 * count
    parts = [
        struct.pack("<I4s", 20, b"TFL3"),
        struct.pack("<HHHHHxx", 10, 8, 0, 0, 4),  # 8: vtable of the model, field 2 present
        struct.pack("<iI", 12, 4),  # 20: model
        struct.pack("<II", 1, 12),  # 28: one subgraph
        struct.pack("<HHHxx", 6, 8, 4),  # 36: vtable of the subgraph
        struct.pack("<iI", 8, 4),  # 44: subgraph
        struct.pack("<I", count),  # 52: tensors
        *(struct.pack("<I", tables + 8 * i - (56 + 4 * i)) for i in range(count)),
        struct.pack("<HHHxx", 6, 8, 4),  # vtable of all tensors
        *(
            struct.pack("<iI", tables + 8 * i - vtable, shapes + 4 * i - (tables + 8 * i + 4))
            for i in range(count)
        ),
        *(struct.pack("<I", count - 1 - i) for i in range(count)),
    ]
    assert "lie over each other" in refused(b"".join(parts))
