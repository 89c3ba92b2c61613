"""Convolutions, dense and depthwise, against TFLite Micro."""

from __future__ import annotations

from tests.equivalence.cases import CONVS, DEPTHWISE, Conv, network
from tests.equivalence.harness import assert_exact, examples_of


def check(case: Conv) -> None:
    """Build, compile, run and compare one operator."""
    assert_exact(network(case), case.accelerators, case.filter.seed)


test_conv2d, test_conv2d_thoroughly = examples_of(CONVS, check)
test_depthwise, test_depthwise_thoroughly = examples_of(DEPTHWISE, check)
