"""How much work one operation may ask for, so that a damaged stream ends in an error."""

from __future__ import annotations

from typing import Final

from tvm_ethosu.backend.sim.errors import LimitError

MAX_ELEMENTS: Final = 1 << 26
"""Elements of one feature map, with its padding."""

MAX_MACS: Final = 1 << 36
"""Multiply-accumulates of one convolution."""

MAX_WINDOW_ELEMENTS: Final = 1 << 32
"""Elements one depthwise convolution or pooling operation sums or compares."""


MAX_STREAM_STEPS: Final = 1 << 38
"""Steps of a whole stream: a multiply-accumulate is one, an element of other operations eight."""

STEPS_PER_ELEMENT: Final = 8
"""What an element that is summed, compared or scaled counts, by the time it takes."""

MAX_OPERATIONS: Final = 1 << 16
"""Operations of one stream; a network at its smallest arena has thousands."""

MAX_BLOCKS: Final = 1 << 16
"""Blocks of an operation that writes over its own input, which are compared one by one."""

MAX_SLOW_ELEMENTS: Final = 1 << 22
"""Elements scaled one by one, because a product has more than 62 bits and a shift below 16."""

MAX_ROWS: Final = 1 << 20
"""Rows of one 2-D or 3-D transfer."""


def check_elements(what: str, elements: int) -> None:
    """Raise LimitError when a feature map is too large to hold."""
    if elements > MAX_ELEMENTS:
        raise LimitError(f"{what} has {elements} elements, limit {MAX_ELEMENTS}")


def check_work(steps: int, limit: int, what: str = "the operation takes {} steps") -> None:
    """Raise LimitError when something would take minutes; ``what`` has a place for the steps."""
    if steps > limit:
        raise LimitError(f"{what.format(steps)}, limit {limit}")


def check_transfer(rows: int, length: int) -> None:
    """Raise LimitError when a 2-D or 3-D transfer would take minutes."""
    if rows > 1:
        check_elements("the DMA transfer", rows * length)
        check_work(rows, MAX_ROWS)
