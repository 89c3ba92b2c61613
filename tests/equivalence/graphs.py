"""Random networks of several operators: branches, reshapes, several inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.equivalence.cases import SEEDS, TWO_ACCELERATORS
from tests.tflite_builder import NetBuilder
from tests.tflite_writer import Value

# Below 16 channels, not a multiple of 16, multiples of 16: NHWC and NHCWB16 side by side.
CHANNELS = (1, 3, 8, 15, 16, 16, 17, 32, 48)


@dataclass(frozen=True)
class Step:
    """One operator; ``a`` and ``b`` choose its operands among the values made so far."""

    kind: str
    a: int
    b: int
    channels: int


@dataclass(frozen=True)
class Graph:
    """A network; ``outputs`` chooses results, the last value is always one."""

    seed: int
    inputs: tuple[tuple[int, int, int], ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    accelerators: tuple[str, ...]


def _image(values: list[Value], index: int) -> Value:
    images = [value for value in values if len(value.shape) == 4]
    return images[index % len(images)]


def _conv(net: NetBuilder, values: list[Value], step: Step) -> Value:
    x = _image(values, step.a)
    kernel = (1 + step.b % 4, 1 + step.b // 4 % 3)
    stride = (1 + step.b % 2, 1) if x.shape[1] > 6 else (1, 1)
    activation = ("NONE", "RELU")[step.b % 2]
    return net.conv2d(x, filters=step.channels, kernel=kernel, stride=stride, activation=activation)


def _depthwise(net: NetBuilder, values: list[Value], step: Step) -> Value:
    x = _image(values, step.a)
    return net.depthwise(x, kernel=(3, 1 + step.b % 3)) if x.shape[3] > 1 else x


def _pool(net: NetBuilder, values: list[Value], step: Step) -> Value:
    add = net.max_pool if step.b % 2 else net.avg_pool
    return add(_image(values, step.a), kernel=(3, 2), stride=(1, 1), padding="SAME")


def _halve(net: NetBuilder, values: list[Value], step: Step) -> Value:
    x = _image(values, step.a)
    return net.max_pool(x) if min(x.shape[1:3]) > 3 else x


def _add(net: NetBuilder, values: list[Value], step: Step) -> Value:
    a = values[step.a % len(values)]
    partners = [value for value in values if value.shape == a.shape]
    b = partners[step.b % len(partners)]
    return net.add(a, b, activation=("NONE", "RELU")[step.channels % 2])


def _add_pooled(net: NetBuilder, values: list[Value], step: Step) -> Value:
    x = _image(values, step.a)
    pooled = net.avg_pool(x, kernel=x.shape[1:3], stride=(1, 1))
    return net.add(pooled, x) if step.b % 2 else net.add(x, pooled)


def _quantize(net: NetBuilder, values: list[Value], step: Step) -> Value:
    x = values[step.a % len(values)]
    return net.quantize(x, x.scale * (1, 0.7, 1.9)[step.b % 3], step.b % 200 - 100)


def _reshape(net: NetBuilder, values: list[Value], step: Step) -> Value:
    x = _image(values, step.a)
    _, height, width, channels = x.shape
    shapes: tuple[tuple[int, ...], ...] = (
        (1, width, height, channels),
        (1, 1, height * width, channels),
        (1, height, channels, width),
        (1, height * width * channels),
        (height, width, channels),
    )
    return net.reshape(x, shapes[step.b % len(shapes)])


def _dense(net: NetBuilder, values: list[Value], step: Step) -> Value:
    return net.dense(values[step.a % len(values)], units=step.channels)


def _log_softmax(net: NetBuilder, values: list[Value], step: Step) -> Value:
    return net.quantize(net.log_softmax(values[step.a % len(values)]), 0.02, step.b % 200 - 100)


KINDS: dict[str, Callable[[NetBuilder, list[Value], Step], Value]] = {
    "conv": _conv,
    "depthwise": _depthwise,
    "pool": _pool,
    "halve": _halve,
    "add": _add,
    "add_pooled": _add_pooled,
    "quantize": _quantize,
    "reshape": _reshape,
    "dense": _dense,
}
ALL_KINDS = KINDS | {"log_softmax": _log_softmax}


def graphs(
    kinds: tuple[str, ...] = tuple(KINDS), steps: int = 8, outputs: int = 3, largest: int = 12
) -> st.SearchStrategy[Graph]:
    """Draw networks of up to so many operators and further outputs."""
    numbers = st.integers(0, 1 << 10)
    step = st.builds(Step, st.sampled_from(kinds), numbers, numbers, st.sampled_from(CHANNELS))
    shape = st.tuples(st.integers(1, largest), st.integers(1, largest), st.sampled_from(CHANNELS))
    return st.builds(
        Graph,
        SEEDS,
        st.lists(shape, min_size=1, max_size=3).map(tuple),
        st.lists(step, min_size=1, max_size=steps).map(tuple),
        st.lists(numbers, max_size=outputs).map(tuple),
        TWO_ACCELERATORS,
    )


def build(graph: Graph) -> NetBuilder:
    """Return the network; outputs are distinct."""
    net = NetBuilder(seed=graph.seed)
    values = [net.input((1, *shape)) for shape in graph.inputs]
    values.append(net.conv2d(values[0], filters=graph.inputs[0][2]))
    for step in graph.steps:
        value = ALL_KINDS[step.kind](net, values, step)
        if value not in values:
            values.append(value)
    chosen = [values[index % len(values)] for index in graph.outputs]
    net.output(*dict.fromkeys([*chosen, values[-1]]))
    return net
