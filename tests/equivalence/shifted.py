"""The same network in uint8: every int8 tensor and zero point is shifted by 128.

TFLite Micro has no uint8 kernels, so it runs the int8 network. The arithmetic is the same except
for three things that the tests avoid: TFLite multiplies uint8 scales in float32 (exact when the
input's scale is a power of two), takes one scale per tensor, and rounds averages of values that
are never negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.equivalence.harness import (
    Inputs,
    assert_equal,
    input_sets,
    load,
    partition,
    run_on_npu,
)
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Tensor, write_tflite
from tvm_ethosu.backend.reference import Reference

Array = npt.NDArray[Any]


def shift(data: Array) -> Array:
    """Return int8 data as uint8 and the other way round, shifted by 128."""
    other = np.uint8 if data.dtype == np.int8 else np.int8
    return (data.view(np.uint8) ^ 0x80).view(other)


def _shift_tensor(tensor: Tensor) -> Tensor:
    if tensor.value.dtype != "int8":
        return tensor
    value = replace(tensor.value, dtype="uint8", zero_point=tensor.value.zero_point + 128)
    return replace(tensor, value=value, data=shift(np.frombuffer(tensor.data, np.int8)).tobytes())


def build_uint8(net: NetBuilder) -> bytes:
    """Return a builder's int8 network as a uint8 network."""
    tensors = [_shift_tensor(tensor) for tensor in net._tensors]
    return write_tflite(tensors, net._operators, net._inputs, net._outputs)


def assert_exact_in_uint8(
    net: NetBuilder,
    accelerators: Sequence[str],
    seed: int = 0,
    inputs: Sequence[Inputs] | None = None,
) -> None:
    """Check the uint8 form of an int8 network against TFLite Micro's results of the latter."""
    reference = Reference(net.build())
    network = partition(build_uint8(net), accelerators[0])
    assert not network.cpu_reasons
    for each in input_sets(net.build(), seed) if inputs is None else inputs:
        outputs = reference.run(each)
        expected = [shift(o) if o.dtype == np.int8 else o for o in outputs]
        for accelerator in accelerators:
            programs = load(network, accelerator)
            actual = run_on_npu(network, programs, [shift(data) for data in each])
            assert_equal(actual, expected, accelerator)
