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


MAX_ROWS: Final = 1 << 20
"""Rows of one 2-D or 3-D transfer."""


def check_elements(what: str, elements: int) -> None:
    """Raise LimitError when a feature map is too large to hold."""
    if elements > MAX_ELEMENTS:
        raise LimitError(f"{what} has {elements} elements, limit {MAX_ELEMENTS}")


def check_work(steps: int, limit: int) -> None:
    """Raise LimitError when an operation would take minutes."""
    if steps > limit:
        raise LimitError(f"the operation takes {steps} steps, limit {limit}")


def check_transfer(rows: int, length: int) -> None:
    """Raise LimitError when a 2-D or 3-D transfer would take minutes."""
    if rows > 1:
        check_elements("the DMA transfer", rows * length)
        check_work(rows, MAX_ROWS)
