"""Tanh and sigmoid against TensorFlow Lite Micro over every 16-bit input, and the 16-bit LUT."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tflite_writer import Operator, Tensor, Value, write_tflite
from tvm_ethosu.backend.sim.activation import interpolated_lut, sigmoid, sigmoid_table, tanh
from tvm_ethosu.backend.vela_files import reference_runner

EVERY = np.arange(-32768, 32768, dtype=np.int16).reshape(1, 256, 256, 1)


def network(code: str, scale: float) -> bytes:
    """Return a TFLite file with one int16 activation."""
    tensors = [
        Tensor(Value(index, EVERY.shape, "int16", (value,), 0), name, b"", 0, ())
        for index, (name, value) in enumerate((("x", scale), ("y", 2.0**-15)))
    ]
    operators = [Operator(code, (0,), (1,), "NONE", {})]
    return write_tflite(tensors, operators, (0,), (1,))


@pytest.mark.parametrize("code", ["TANH", "LOGISTIC"])
@pytest.mark.parametrize("exponent", [-15, -13, -12])
def test_curves(code: str, exponent: int) -> None:
    """With a scale of 2**-12 the input, times three, is in units of 1/12288."""
    theirs = reference_runner(network(code, 2.0**exponent))([EVERY])[0]
    curve = tanh if code == "TANH" else sigmoid
    wide = 3 * EVERY.astype(np.int64)
    shift = -12 - exponent
    value = (wide + (1 << shift >> 1)) >> shift
    if shift:
        value = rescaled(2.0**exponent)
    np.testing.assert_array_equal(curve(value), theirs)


def rescaled(scale: float) -> np.ndarray:
    """Return inputs in units of 1/12288 with the multiplier TensorFlow Lite chooses (16 bits)."""
    multiplier, shift = scale * 4096 * 3, 0
    while multiplier <= 32767 / 2:
        multiplier, shift = multiplier * 2, shift + 1
    product = EVERY.astype(np.int64) * int(multiplier)
    return (product + (1 << shift >> 1)) >> shift


def test_table_is_within_one_of_the_function() -> None:
    exact = 65536 / (1 + np.exp(-np.arange(256) / 24))
    error = sigmoid_table() - exact
    assert error.min() >= -0.5
    assert error.max() < 1.5
    assert (np.diff(sigmoid_table()) >= 0).all()


def test_curves_end_flat_beyond_16_bits() -> None:
    far = np.array([-(1 << 30), 1 << 30])
    assert sigmoid(far).tolist() == [1, 32767]
    assert tanh(far).tolist() == [-32767, 32767]


def test_interpolated_lut() -> None:
    """Base and slope of x -> x + 5, -x and 0 by entry; both halves are signed."""
    base = (np.arange(512) * 128 - 32768).astype(np.int64)
    values = np.arange(-32768, 32768)

    def table(base: np.ndarray, slope: int) -> np.ndarray:
        return ((slope & 0xFFFF) << 16 | base & 0xFFFF).astype("<u4")

    np.testing.assert_array_equal(interpolated_lut(table(base, 128), values), values)
    flat = interpolated_lut(table(base, 0), values)
    np.testing.assert_array_equal(flat, values // 128 * 128)
    steep = interpolated_lut(table(base * 0, -256), values)
    np.testing.assert_array_equal(steep, -2 * (values % 128))
