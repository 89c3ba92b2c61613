"""Tensors of several images: inner ones too have room for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.equivalence.harness import ACCELERATORS, assert_exact, examples_of
from tests.equivalence.movement import pad, strided_slice, transpose
from tests.tflite_builder import NetBuilder, Value

Turn = tuple[int, ...]


def _slice(net: NetBuilder, x: Value, _: Turn) -> Value:
    return strided_slice(net, x, [0] * 4, [max(1, n - 1) for n in x.shape], [1] * 4)


def _reshape(net: NetBuilder, x: Value, _: Turn) -> Value:
    batch, height, width, channels = x.shape
    return net.reshape(x, (height, batch, channels, width))


STEPS: dict[str, Callable[[NetBuilder, Value, Turn], Value]] = {
    "add": lambda net, x, _: net.add(x, x),
    "quantize": lambda net, x, _: net.quantize(x, x.scale * 1.25, 3),
    "softmax": lambda net, x, _: net.softmax(x),
    "transpose": transpose,
    "pad": lambda net, x, _: pad(net, x, ((0, 0), (1, 0), (0, 2), (0, 0))),
    "slice": _slice,
    "reshape": _reshape,
}


@dataclass(frozen=True)
class Batch:
    """Operators one behind the other on a tensor of several images; ``turn`` is a permutation."""

    shape: tuple[int, int, int, int]
    steps: tuple[str, ...]
    turn: Turn
    accelerator: str
    seed: int


BATCHES = st.builds(
    Batch,
    shape=st.tuples(st.integers(2, 4), *[st.integers(1, 7)] * 2, st.integers(1, 20)),
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5).map(tuple),
    turn=st.permutations(range(4)).map(tuple),
    accelerator=st.sampled_from(ACCELERATORS),
    seed=st.integers(0, 2**16),
)


def _check_batch(case: Batch) -> None:
    net = NetBuilder(seed=case.seed)
    x = net.input(case.shape)
    for step in case.steps:
        x = STEPS[step](net, x, case.turn)
    net.output(net.add(x, x))
    assert_exact(net.build(), (case.accelerator,), case.seed)


test_batches, test_batches_thoroughly = examples_of(BATCHES, _check_batch, quick=15)


def test_images_of_a_batch_become_one_image() -> None:
    """What lies between is seen as two images by one operator and as one by the next."""
    net = NetBuilder(seed=1)
    turned = transpose(net, net.input((2, 6, 6, 3)), (0, 2, 1, 3))
    net.output(net.conv2d(net.reshape(turned, (1, 12, 6, 3)), filters=3))
    assert_exact(net.build(), ACCELERATORS)
