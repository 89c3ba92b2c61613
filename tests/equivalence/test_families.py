"""Networks of the kinds in which compilers for this NPU have given wrong numbers, each by its name.

All equal TFLite Micro, byte for byte, in plans for speed and for little memory.
"""

from __future__ import annotations

import pytest

from tests.equivalence import movement as m
from tests.equivalence.families import Families, Family
from tests.equivalence.harness import (
    ACCELERATORS,
    assert_exact,
    partition,
    plan_between,
    plan_for_size,
    plan_for_speed,
)
from tests.equivalence.test_hosts import check_on_host
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

TWO = ("ethos-u55-32", "ethos-u65-512")
PLANS = (plan_for_speed, plan_for_size)

FAMILIES = Families()
family = FAMILIES.add


# --- one tensor feeding two concatenations --------------------------------------------------------


@family
def one_tensor_in_two_concats(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    a, b = net.max_pool(x, stride=(1, 1)), net.avg_pool(x, stride=(1, 1))
    return m.concat(net, (a, b), 3), m.concat(net, (b, a, a), 3)


@family
def concat_of_a_concat_and_its_parts(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    a = net.max_pool(x, stride=(1, 1))
    inner = m.concat(net, (a, net.avg_pool(x, stride=(1, 1))), 3)
    return m.concat(net, (inner, a), 3), m.concat(net, (inner, inner), 1)


@family
def concat_is_an_output_and_read_inside(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.concat(net, (net.max_pool(x, stride=(1, 1)), net.avg_pool(x, stride=(1, 1))), 2)
    return y, net.conv2d(y, filters=16)


# --- a reshape or slice of a tensor that has another consumer -------------------------------------


@family
def reshape_of_a_tensor_with_another_consumer(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return net.conv2d(y, filters=16), net.conv2d(net.reshape(y, (1, 4, 16, 16)), filters=16)


@family
def reshape_with_two_consumers(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    view = net.reshape(net.conv2d(x, filters=16), (1, 4, 16, 16))
    return (net.add(net.conv2d(view, filters=16), net.depthwise(view)),)


@family
def slice_of_a_tensor_with_another_consumer(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    part = m.slice_(net, y, (0, 2, 1, 3), (1, 5, 6, 7))
    return net.conv2d(part, filters=4), net.conv2d(y, filters=4)


@family
def slices_that_overlap(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=20)
    parts = [m.slice_(net, y, (0, row, 0, 0), (1, 5, 8, 20)) for row in range(4)]
    return net.add(parts[0], parts[3]), net.add(parts[2], parts[1]), net.max_pool(y)


@family
def slice_of_a_network_input_with_another_consumer(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    part = m.slice_(net, x, (0, 0, 0, 1), (1, 8, 8, 6))
    return net.conv2d(part, filters=4), net.conv2d(x, filters=4), part


# --- diamonds whose branches lie in memory in different layouts -----------------------------------


def _diamond(net: NetBuilder, x: Value, channels: int) -> Value:
    left = net.conv2d(x, filters=channels, kernel=(1, 1))
    right = net.max_pool(
        net.conv2d(x, filters=channels), kernel=(3, 3), stride=(1, 1), padding="SAME"
    )
    return net.add(left, right)


@family
def diamonds_of_mixed_channels(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    for channels in (5, 16, 17, 32, 8):
        x = _diamond(net, x, channels)
    return (x,)


@family
def diamonds_of_concats(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    for filters in (5, 16, 17):
        left = net.conv2d(x, filters=filters, kernel=(1, 1))
        right = net.max_pool(left, kernel=(3, 3), stride=(1, 1), padding="SAME")
        x = net.conv2d(m.concat(net, (left, right), 3), filters=filters)
    return (x,)


@family
def diamond_of_bricks_and_a_moved_tensor(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    """One branch may lie in bricks of 16 channels, a tensor that is moved must not."""
    y = net.conv2d(x, filters=32)
    turned = m.transpose(net, y, (0, 2, 1, 3))
    return net.add(net.depthwise(y), turned), net.conv2d(turned, filters=17)


# --- channels below 16 and not a multiple of 16 ---------------------------------------------------


def _odd(channels: int) -> Family:
    def make(net: NetBuilder, x: Value) -> tuple[Value, ...]:
        y = net.conv2d(x, filters=channels, activation="RELU")
        z = (
            net.add(net.depthwise(y), y)
            if channels > 1
            else net.add(net.max_pool(y), net.max_pool(y))
        )
        w = m.concat(net, (z, z), 3)
        return net.conv2d(w, filters=channels), net.avg_pool(w), net.dense(z, units=channels)

    make.__name__ = f"channels_{channels}"
    return make


for channels in (1, 3, 7, 15, 17, 31, 33):
    family(_odd(channels))


# --- requantization between equal types -----------------------------------------------------------


@family
def requantize_between_equal_quantizations(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    same = net.quantize(y, y.scale, y.zero_point)
    return (net.add(same, net.quantize(same, same.scale, same.zero_point)),)


@family
def requantize_to_and_fro(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.quantize(x, x.scale * 0.51, -128)
    return (net.quantize(y, x.scale, x.zero_point), net.quantize(y, y.scale, 127))


@family
def requantize_of_a_network_input_alone(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    return (net.quantize(x, x.scale, x.zero_point),)


# --- additions ------------------------------------------------------------------------------------


@family
def equal_input_scales(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    other = net.input(x.shape, x.scale, 7)
    results = [
        net.add(x, other, scale=x.scale * factor, zero_point=zero)
        for factor, zero in ((1, 0), (2, -128), (0.5, 127), (1.37, 3))
    ]
    return (*results, net.arithmetic("SUB", x, other, scale=x.scale, zero_point=0))


@family
def a_tensor_with_itself(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return (
        net.add(x, x),
        net.add(y, y, activation="RELU"),
        net.arithmetic("SUB", y, y, scale=y.scale, zero_point=5),
        net.arithmetic("MUL", y, y, scale=y.scale, zero_point=-128),
        net.arithmetic("MAXIMUM", y, y, scale=y.scale, zero_point=y.zero_point),
    )


# --- split and the order of operands --------------------------------------------------------------


@family
def split_halves_in_reverse_order(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    first, second = m.split(net, net.conv2d(x, filters=32), 2, 3)
    return net.add(second, first), m.concat(net, (second, first), 3)


@family
def split_differences(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    first, second = m.split(net, net.conv2d(x, filters=32), 2, 3)
    scale = first.scale
    forth = net.arithmetic("SUB", first, second, scale=scale, zero_point=0)
    back = net.arithmetic("SUB", second, first, scale=scale, zero_point=0)
    row = m.slice_(net, second, (0, 0, 0, 0), (1, 1, 8, 16))
    return forth, back, net.arithmetic("SUB", row, first, scale=scale, zero_point=1)


@family
def split_along_rows(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    top, bottom = m.split(net, net.conv2d(x, filters=9), 2, 1)
    return (net.arithmetic("SUB", bottom, top, scale=top.scale, zero_point=0),)


# --- means and sums -------------------------------------------------------------------------------


@family
def means_of_tall_images(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    results = []
    for height, width in ((65, 9), (100, 40), (256, 16), (4096, 1)):
        image = net.max_pool(
            net.input((1, height, width, 5), 0.05, -128), kernel=(1, 1), stride=(1, 1)
        )
        results.append(m.reduce(net, "MEAN", image, (1, 2), scale=0.05, zero_point=127))
    return tuple(results)


@family
def sums_that_saturate(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    """All inputs at one end: the sums are as large as they get, and the results too small."""
    image = net.input((1, 64, 64, 3), 1.0, 127)
    total = m.reduce(net, "SUM", image, (1, 2), scale=0.01, zero_point=-5)
    return total, m.reduce(net, "SUM", image, (1, 2), scale=4096.0, zero_point=-5)


# --- pads -----------------------------------------------------------------------------------------


@family
def pad_shared_by_two_convolutions(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.pad(net, net.conv2d(x, filters=9), ((0, 0), (1, 1), (1, 1), (0, 0)))
    return net.conv2d(y, filters=4, padding="VALID"), net.depthwise(y, padding="VALID")


@family
def pad_read_by_convolutions_and_an_output(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = m.pad(net, x, ((0, 0), (1, 2), (2, 1), (0, 0)))
    return net.conv2d(y, filters=4, padding="VALID"), y, net.max_pool(y)


@pytest.mark.parametrize("name", FAMILIES.makers)
def test_family(name: str) -> None:
    assert_exact(FAMILIES.network(name, 11).build(), TWO, plans=PLANS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES.makers)
@pytest.mark.parametrize("seed", range(3))
def test_family_thoroughly(name: str, seed: int) -> None:
    assert_exact(
        FAMILIES.network(name, seed).build(), ACCELERATORS, seed, plans=(*PLANS, plan_between)
    )


# --- weights shared by layers whose inputs have other scales --------------------------------------


def test_weights_shared_by_inputs_of_different_scales() -> None:
    net = NetBuilder(seed=5)
    first, second = net.input((1, 6, 6, 8), 0.05, 3), net.input((1, 6, 6, 8), 0.31, -7)
    y, z = net.conv2d(first, filters=8, bias=False), net.conv2d(second, filters=8, bias=False)
    operators = net._operators
    shared = operators[0].inputs[1]
    operators[1] = type(operators[1])(
        operators[1].code,
        (operators[1].inputs[0], shared),
        operators[1].outputs,
        operators[1].options,
        operators[1].fields,
    )
    net.output(net.add(y, z))
    assert_exact(net.build(), TWO, plans=PLANS)


# --- scales out of range --------------------------------------------------------------------------

# TFLite Micro ends itself over factors of about 2**31, from outputs of 2**-31.
EXTREMES = [2.0**-126, 2.0**-60, 2.0**-18, 2.0**30, 2.0**33, 2.0**100]


def _assert_exact_or_refused(net: NetBuilder) -> None:
    """A scale that the NPU cannot take is refused with its value; any other one is exact."""
    reasons = partition(net.build()).cpu_reasons.values()
    if reasons:
        assert all("scale" in reason or "factor" in reason for reason in reasons), reasons
    else:
        assert_exact(net.build(), TWO[:1])


@pytest.mark.parametrize("scale", EXTREMES)
def test_convolutions_of_extreme_scales(scale: float) -> None:
    net = NetBuilder(seed=3)
    net.output(net.conv2d(net.input((1, 4, 4, 8)), filters=8, bias=False, scale=scale))
    _assert_exact_or_refused(net)


@pytest.mark.parametrize("scale", EXTREMES)
@pytest.mark.parametrize("code", ["SUB", "MUL"])
def test_arithmetic_of_extreme_scales(code: str, scale: float) -> None:
    net = NetBuilder(seed=3)
    x, y = net.input((1, 4, 4, 8), scale), net.input((1, 4, 4, 8), 0.05)
    net.output(net.arithmetic(code, x, y, scale=0.07, zero_point=1))
    _assert_exact_or_refused(net)


@pytest.mark.parametrize("scale", EXTREMES)
def test_sums_and_requantizations_of_extreme_scales(scale: float) -> None:
    net = NetBuilder(seed=3)
    x = net.input((1, 4, 4, 8))
    total = m.reduce(net, "SUM", x, (1, 2), scale=scale)
    net.output(total, net.quantize(x, scale, 3), net.add(x, x, scale=scale, zero_point=0))
    _assert_exact_or_refused(net)


# --- outputs whose memory the CPU reads as well ---------------------------------------------------


def _read_by_both(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    z = net.quantize(net.log_softmax(y), 0.03, -7)
    return y, net.conv2d(z, filters=16), net.max_pool(y)


def _read_after_a_later_call(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    """The CPU reads the first function's output once the second function has run."""
    y = net.conv2d(x, filters=16)
    first = net.quantize(net.log_softmax(y), 0.03, -7)
    second = net.conv2d(first, filters=16)
    return (net.log_softmax(net.add(y, second)), net.log_softmax(y), y)


def _view_read_by_the_cpu(net: NetBuilder, x: Value) -> tuple[Value, ...]:
    y = net.conv2d(x, filters=16)
    return net.log_softmax(net.reshape(y, (8, 128))), net.reshape(y, (1, 4, 16, 16)), y


@pytest.mark.parametrize("make", [_read_by_both, _read_after_a_later_call, _view_read_by_the_cpu])
def test_outputs_that_the_cpu_reads(make: Family) -> None:
    net = NetBuilder(seed=2)
    net.output(*make(net, net.input((1, 8, 8, 8))))
    check_on_host(net.build(), "ethos-u55-128")
