"""What TFLite Micro does not take, and results that are not its."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.backend.error_ways.desk import Desk, Way, given, python
from tests.backend.error_ways.networks import one_convolution, rebuilt, set_to, square_root
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.reference import Reference, expose_tensors, run_reference


def _without_tflm(desk: Desk) -> None:
    from tvm_ethosu.backend import tflm

    desk.write("tflite_micro.py", "raise ImportError('none')")
    desk.patch.syspath_prepend(desk.folder)
    tflm.close()


def _without_bias(desk: Desk) -> None:
    """TFLite Micro's depthwise convolution crashes without a bias."""
    net = NetBuilder(seed=1)
    net.output(net.depthwise(net.input((1, 6, 6, 4))))
    data = rebuilt(net.build(), set_to("operators.0.inputs", [0, 1, -1]))
    desk.write("crash.tflite", data)


def _wrong_npu(desk: Desk) -> None:
    from tvm_ethosu.backend import host

    right = host.run_program

    def wrong(loaded: Any, arrays: Any) -> Any:
        reports = right(loaded, arrays)
        arrays[len(loaded.program.inputs)][...] ^= 1
        return reports

    desk.patch.setattr(host, "run_program", wrong)


REFERENCE: Mapping[str, Way] = {
    "the reference needs TFLite Micro, which is not installed": given(
        _without_tflm, "run", "model.tflite", "--check"
    ),
    "TFLite Micro does not take the network: …": given(
        lambda desk: desk.write("u.tflite", one_convolution("uint8")), "run", "u.tflite", "--check"
    ),
    "TFLite Micro cannot run the network: …": python(
        lambda: run_reference(square_root(), [np.full((1, 6, 6, 4), -5, np.int8)])
    ),
    "TFLite Micro crashed …": given(_without_bias, "run", "crash.tflite", "--check"),
    "no such tensor (got …, the network has …)": python(
        lambda: Reference(one_convolution(), ["nobody"])
    ),
    "tensor … is a constant: it is no result to look at": python(
        lambda: Reference(one_convolution(), [1])
    ),
    "tensor … is no result of an operator: it cannot be made an output": python(
        lambda: expose_tensors(one_convolution(), ["x"])
    ),
    "the network takes … inputs (got …)": python(lambda: run_reference(one_convolution(), [])),
    "input … is … of shape … (got … of shape …)": python(
        lambda: run_reference(one_convolution(), [np.zeros((1, 6), np.int8)])
    ),
    "an NPU result differs from TFLite Micro's": given(
        _wrong_npu, "run", "model.tflite", "--check", code=1
    ),
}
