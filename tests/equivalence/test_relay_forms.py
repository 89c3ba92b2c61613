"""Relay that TVM's TFLite importer does not write: the same numbers, or a reason.

Where a form has an equal in TFLite, the numbers are TFLite Micro's; where two forms of Relay mean
the same, they must give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relay

from tests.equivalence import relay_nets as nets
from tests.equivalence.cases import Array
from tests.equivalence.harness import (
    ACCELERATORS,
    NpuNetwork,
    assert_equal,
    load,
    network_of,
    run_on_npu,
)
from tests.equivalence.test_limits import OUTSIDE as TFLITE_OUTSIDE
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.reference import Reference
from tvm_ethosu.partition import (
    arg_max,
    arithmetic,
    bilinear,
    composed,
    curves,
    matmul,
    moves,
    partition_for_ethosu,
    reductions,
    requantize,
    softmax,
    transposed,
)
from tvm_ethosu.partition import constraints as c
from tvm_ethosu.partition.rules import RULES

RNG = np.random.default_rng(3)
WEIGHTS = RNG.integers(-127, 128, (3, 3, 4, 4))
POINTWISE = RNG.integers(-127, 128, (1, 1, 4, 4))
X = RNG.integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
SHAPE = X.shape


def _partitioned(mod: tvm.IRModule) -> NpuNetwork:
    return network_of(partition_for_ethosu(mod))


def _run(mod: tvm.IRModule, data: Array, accelerator: str = "ethos-u55-128") -> Array:
    network = _partitioned(mod)
    assert not network.cpu_reasons
    (result,) = run_on_npu(network, load(network, accelerator), [data])
    return result


# --- refused --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    """A module, and how the reason for leaving its operator to the CPU begins."""

    mod: tvm.IRModule
    constraint: c.Constraint
    reason: str


BIASES = np.arange(4)
NCHW = (1, 4, 8, 8)
PER_CHANNEL = np.linspace(0.01, 0.02, 4, dtype=np.float32)
OIHW: dict[str, Any] = {
    "data_layout": "NCHW",
    "kernel_layout": "OIHW",
    "channels": 4,
    "kernel_size": (3, 3),
}
HWOI: dict[str, Any] = {"kernel_layout": "HWOI"}


def _swish(x: relay.Expr, offset: float) -> relay.Expr:
    gate = relay.clip(x + nets.number(offset), 0.0, 6.0)
    return x * gate / nets.number(6.0)


def _rounded_up(x: relay.Expr) -> relay.Expr:
    """A pool that stays on the CPU."""
    return relay.nn.max_pool2d(x, (2, 2), (2, 2), layout="NHWC", ceil_mode=True)


def _sums_of_the_cpu() -> tvm.IRModule:
    x = relay.var("x", shape=SHAPE, dtype="int32")
    numbers = [relay.const(value) for value in (0.1, 0, 0.5, 0)]
    made = relay.qnn.op.requantize(relay.abs(x), *numbers, out_dtype="int8")
    return tvm.IRModule.from_expr(relay.Function([x], made))


def _limited_words() -> tvm.IRModule:
    x = relay.var("x", shape=SHAPE, dtype="int32")
    return tvm.IRModule.from_expr(relay.Function([x], relay.clip(x, -100, 100)))


REFUSED = [
    Refused(_limited_words(), c.types_are_activations, "input type is int32"),
    Refused(
        _sums_of_the_cpu(),
        requantize.words_are_no_accumulators,
        "origin of the int32 input is abs",
    ),
    Refused(
        nets.conv(NCHW, WEIGHTS.transpose(3, 2, 0, 1), **OIHW), c.layout_is_nhwc, "layout is NCHW"
    ),
    Refused(nets.conv(SHAPE, WEIGHTS, out_layout="NCHW"), c.layout_is_nhwc, "layout is NHWC->NCHW"),
    Refused(
        nets.conv(SHAPE, WEIGHTS[:, :, :1], channels=1, **HWOI), c.layout_is_nhwc, "layout is NHWC"
    ),
    Refused(
        nets.conv(SHAPE, WEIGHTS[..., :2], channels=4, groups=2, **HWOI),
        c.layout_is_nhwc,
        "layout is NHWC",
    ),
    Refused(nets.average_pool(NCHW, layout="NCHW"), c.layout_is_nhwc, "layout is NCHW"),
    Refused(nets.max_pool(NCHW, layout="NCHW"), c.layout_is_nhwc, "layout is NCHW"),
    Refused(nets.max_pool(SHAPE, out_layout="NCHW"), c.layout_is_nhwc, "layout is NHWC->NCHW"),
    Refused(nets.max_pool(SHAPE, ceil_mode=True), c.pool_rounds_down, "ceil_mode is True"),
    Refused(nets.average_pool(SHAPE, ceil_mode=True), c.pool_rounds_down, "ceil_mode is True"),
    Refused(nets.max_pool(SHAPE, dilation=(2, 1)), c.pool_rounds_down, "pooling dilation is 2x1"),
    Refused(
        nets.average_pool(SHAPE, padding=(1, 1), count_include_pad=True),
        c.pool_counts_valid_elements,
        "count_include_pad is True",
    ),
    Refused(nets.average_pool(SHAPE, result="uint8"), c.types_are_equal, "output type is uint8"),
    Refused(
        nets.average_pool(SHAPE, "float32"), c.average_sums_int32, "type of the sum is float32"
    ),
    Refused(nets.average_pool(SHAPE, "int8"), c.average_sums_int32, "type of the sum is int8"),
    Refused(nets.max_pool(SHAPE, padding=(3, 0)), c.pool_padding_fits, "padding at the top is 3"),
    Refused(
        nets.conv(SHAPE, POINTWISE, bias=np.arange(8), bias_axis=1),
        c.channels_are_last,
        "axis of bias or scales is 1",
    ),
    Refused(
        nets.conv((1, 4, 4, 4), POINTWISE, weight_scale=PER_CHANNEL, scales_axis=1),
        c.channels_are_last,
        "axis of bias or scales is 1",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, bias=BIASES + (1 << 31), accumulator_type="int64"),
        c.bias_fits,
        "bias is 2147483648",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, bias=BIASES - (1 << 40), accumulator_type="int64"),
        c.bias_fits,
        "bias is -1099511627776",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, accumulator_scale=0.001),
        c.accumulator_scale_is_product,
        "accumulator scale is 0.001",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, accumulator_zero_point=3),
        c.accumulator_scale_is_product,
        "accumulator zero point is 3",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, weight_scale=-0.01),
        c.conv_scales_fit,
        "rescale factor is -0.00166667",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE + 128, weight_type="uint8", weight_zero_point=400),
        c.weights_fit,
        "weights less zero point is -3",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, zero_points=(128, 0)),
        c.zero_points_fit,
        "input zero point is 128",
    ),
    Refused(
        nets.conv(SHAPE, POINTWISE, zero_points=(0, 40000)),
        c.zero_points_fit,
        "output zero point is 40000",
    ),
    Refused(
        nets.conv(SHAPE, WEIGHTS, padding=(-1, 0, 0, 0)),
        c.conv_padding_fits,
        "padding at the top is -1",
    ),
    Refused(
        nets.requantize(SHAPE, ([0.1, 0.2, 0.3, 0.4], 0.2), ([0] * 4, 1), axis=3),
        c.scales_are_per_tensor,
        "scales is one per channel",
    ),
    Refused(
        nets.add(SHAPE, [0.1, 0.2, 0.3, 0.4], [0] * 4, lhs_axis=3),
        c.scales_are_per_tensor,
        "scales is one per channel",
    ),
    Refused(
        nets.requantize(SHAPE, zero_points=(0, -129)),
        c.zero_points_fit,
        "output zero point is -129",
    ),
    Refused(nets.add(SHAPE, 0.1, 200), c.zero_points_fit, "input zero point is 200"),
    Refused(nets.requantize((1, 0, 4)), c.elementwise_extents_fit, "output shape is 1x0x4"),
    Refused(
        nets.one_call(SHAPE, lambda x: relay.tile(x, (1, 9, 9, 1))),
        moves.copies_are_few,
        "copies is 81",
    ),
    Refused(
        nets.one_call(
            SHAPE, lambda x: relay.nn.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), pad_mode="edge")
        ),
        moves.form_is_known,
        "form is edge padding",
    ),
    Refused(
        nets.concatenate(SHAPE, (0.1, 0.2)),
        moves.quantization_is_kept,
        "scales and zero points is different",
    ),
    Refused(
        nets.reduction((1, 65, 64, 3), relay.mean, (1, 2), 0.2),
        reductions.reduced_elements_fit,
        "reduced elements is 4160",
    ),
    Refused(
        nets.reduction(SHAPE, relay.mean, (1, 3), 0.2),
        reductions.reduced_dimensions_touch,
        "axes is 1, 3",
    ),
    Refused(
        nets.reduction(SHAPE, relay.mean, (1, 2), 0.1, dtype="int16", zero_point=3),
        reductions.reduced_zero_points_fit,
        "output zero point is 3",
    ),
    Refused(
        nets.reduction(SHAPE, relay.max, (1, 2), 0.2),
        reductions.maximum_keeps_quantization,
        "scales and zero points is different",
    ),
    Refused(
        nets.reduction(SHAPE, relay.sum, (1, 2), 1e-20),
        reductions.reduction_scale_fits,
        "rescale factor is 1e+19",
    ),
    Refused(nets.transposed_conv(SHAPE, 5), transposed.transposed_form_fits, "stride is 5"),
    Refused(
        nets.island(SHAPE, lambda x: relay.nn.softmax(x, axis=1)),
        softmax.softmax_axis_is_last,
        "softmax axis is 1",
    ),
    Refused(
        nets.island(SHAPE, relay.nn.softmax, scale=0.1),
        softmax.softmax_output_is_a_share,
        "output scale is 0.1",
    ),
    Refused(
        nets.island(SHAPE, relay.nn.softmax, zero_point=5),
        softmax.softmax_output_is_a_share,
        "output zero point is 5",
    ),
    Refused(
        nets.island(SHAPE, lambda x: _swish(x, 4.0)),
        curves.curve_is_known,
        "function is x * clip(x + 4.0, 0.0, 6.0) / 6.0",
    ),
    Refused(
        nets.one_call(SHAPE, lambda x: relay.clip(_rounded_up(x), 0, 9)),
        c.limits_stand_alone,  # the clip would go to the NPU alone; the reason is the pool's
        "ceil_mode is True",
    ),
    Refused(
        nets.island(SHAPE, lambda x: relay.image.resize2d(x, (4, 4), None, "NCHW")),
        bilinear.resize_form_fits,
        "layout is NCHW",
    ),
    Refused(
        nets.island(SHAPE, lambda x: relay.image.resize2d(x, (16, 16), None, "NHWC")),
        bilinear.resize_keeps_quantization,
        "scales and zero points is different",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_refused(case: Refused) -> None:
    network = _partitioned(case.mod)
    assert not network.graphs
    reasons = network.cpu_reasons.values()
    assert any(reason.startswith(case.reason) for reason in reasons), reasons


# Relay's types leave no way to break these; a pad that can't be folded is copied instead.
UNREACHABLE = {c.reshape_keeps_elements, moves.inputs_are_alike, c.pad_can_be_folded}

# Broken in the tests of the operators that have them.
ELSEWHERE = {
    c.is_quantized,
    *arg_max.ARG_MAX_CONSTRAINTS,
    *matmul.MATMUL_CONSTRAINTS,
    requantize.requantize_types_fit,
    requantize.words_are_centred,
    bilinear.resize_factors_fit,
    softmax.softmax_rows_fit,
    softmax.softmax_input_scale_fits,
    curves.curve_types_fit,
    curves.wide_zero_points_are_zero,
    composed.operands_are_signed,
    composed.prelu_factors_fit,
    composed.slopes_are_broadcast,
    composed.square_factor_fits,
    curves.curve_scales_fit,
    arithmetic.product_scales_fit,
}


def test_every_constraint_of_the_table_has_a_network_outside() -> None:
    known = {constraint for rule in RULES for constraint in rule.constraints}
    outside = {limit.constraint for limit in TFLITE_OUTSIDE} | {r.constraint for r in REFUSED}
    assert known - outside == UNREACHABLE | ELSEWHERE


# --- accepted, the same as another form -----------------------------------------------------------

BIAS = np.array([0, -(1 << 31) + (1 << 20), 99, (1 << 31) - (1 << 20)])
PLAIN = nets.conv(SHAPE, WEIGHTS, bias=BIAS)
SAME_FORMS = {
    "bias axis -1": (nets.conv(SHAPE, WEIGHTS, bias=BIAS, bias_axis=-1), PLAIN),
    "scales axis -1": (nets.conv(SHAPE, WEIGHTS, bias=BIAS, scales_axis=-1), PLAIN),
    "bias of int64": (nets.conv(SHAPE, WEIGHTS, bias=BIAS, accumulator_type="int64"), PLAIN),
    "scale per channel": (nets.conv(SHAPE, WEIGHTS, bias=BIAS, weight_scale=[0.01] * 4), PLAIN),
    "out_layout": (nets.conv(SHAPE, WEIGHTS, bias=BIAS, out_layout="NHWC"), PLAIN),
    "uint8 weights": (
        nets.conv(SHAPE, WEIGHTS + 128, bias=BIAS, weight_type="uint8", weight_zero_point=128),
        PLAIN,
    ),
    "two paddings": (
        nets.conv(SHAPE, WEIGHTS, padding=(2, 1)),
        nets.conv(SHAPE, WEIGHTS, padding=(2, 1, 2, 1)),
    ),
    "one padding": (
        nets.conv(SHAPE, WEIGHTS, padding=1),
        nets.conv(SHAPE, WEIGHTS, padding=(1, 1, 1, 1)),
    ),
    "clip between whole numbers": (
        nets.conv(SHAPE, WEIGHTS, clip=(-9.5, 7.5)),
        nets.conv(SHAPE, WEIGHTS, clip=(-9, 7)),
    ),
    "count_include_pad without padding": (
        nets.average_pool(SHAPE, count_include_pad=True),
        nets.average_pool(SHAPE),
    ),
}


@pytest.mark.parametrize("name", SAME_FORMS)
def test_forms_that_mean_the_same(name: str) -> None:
    form, plain = SAME_FORMS[name]
    np.testing.assert_array_equal(_run(form, X), _run(plain, X))


def _tflite_conv(x: Array, stride: tuple[int, int]) -> Array:
    net = NetBuilder()
    y = net.conv2d(
        net.input(x.shape, 0.05, 3),
        weights=WEIGHTS.transpose(3, 0, 1, 2).astype(np.int8),
        weight_scales=(0.01,),
        bias=False,
        stride=stride,
        padding="VALID",
        scale=0.3,
        zero_point=-4,
    )
    net.output(y)
    return Reference(net.build()).run([x])[0]


def _padded(x: Array, padding: tuple[int, int, int, int], value: int) -> Array:
    top, left, bottom, right = padding
    return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=value)


SIZES = [(8, 9), (10, 7)]
STRIDES = [(2, 2), (3, 2), (3, 3)]
PADDINGS = [(1, 1, 1, 1), (0, 0, 2, 2), (2, 0, 1, 0), (0, 1, 0, 2)]


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", SIZES)
def test_padding_beyond_the_last_window(
    size: tuple[int, int], padding: tuple[int, int, int, int], stride: tuple[int, int]
) -> None:
    """PyTorch pads both sides alike, of which the last window may not reach all."""
    x = np.random.default_rng(7).integers(-128, 128, (1, *size, 4)).astype(np.int8)
    mod = nets.conv(x.shape, WEIGHTS, strides=stride, padding=padding)
    expected = _tflite_conv(_padded(x, padding, 3), stride)
    for accelerator in (ACCELERATORS[0], ACCELERATORS[-1]):
        assert_equal([_run(mod, x, accelerator)], [expected], accelerator)


def _windows(x: Array, stride: tuple[int, int]) -> Array:
    """Return every 3x3 window (OH, OW, C, 9) of an image."""
    view = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(0, 1))
    view = view[:: stride[0], :: stride[1]]
    return np.asarray(view.reshape(*view.shape[:3], 9))


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", SIZES)
def test_pooling_with_padding_beyond_the_last_window(
    size: tuple[int, int], padding: tuple[int, int, int, int], stride: tuple[int, int]
) -> None:
    x = np.random.default_rng(7).integers(-128, 128, (1, *size, 4)).astype(np.int8)
    attributes: dict[str, Any] = {"strides": stride, "padding": padding}
    wide = x.astype(np.int64)
    largest = _windows(_padded(wide, padding, -128), stride).max(axis=-1)
    sums = _windows(_padded(wide, padding, 0), stride).sum(axis=-1)
    counts = _windows(_padded(np.ones_like(wide), padding, 0), stride).sum(axis=-1)
    averages = np.sign(sums) * ((np.abs(sums) + counts // 2) // counts)
    maximum = _run(nets.max_pool(x.shape, **attributes), x)
    average = _run(nets.average_pool(x.shape, **attributes), x)
    np.testing.assert_array_equal(maximum[0], largest)
    np.testing.assert_array_equal(average[0], averages)
