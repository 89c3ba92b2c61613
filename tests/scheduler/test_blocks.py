from __future__ import annotations

from tests.scheduler.builders import chain
from tvm_ethosu.scheduler.blocks import choose_block, traffic_bytes, wasted_elements
from tvm_ethosu.scheduler.ir import Shape
from tvm_ethosu.scheduler.ports import Block


def test_a_block_that_holds_everything_is_read_once() -> None:
    op = chain([Shape(1, 4, 4, 8)] * 2).ops[0]
    assert traffic_bytes(op, Block(4, 4, 8)) == 4 * 4 * 8 + 8 * 8 * 8


def test_two_slices_of_channels_read_the_input_twice() -> None:
    op = chain([Shape(1, 4, 4, 8), Shape(1, 4, 4, 32)]).ops[0]
    assert traffic_bytes(op, Block(4, 4, 16)) - traffic_bytes(op, Block(4, 4, 32)) == 4 * 4 * 8


def test_waste_counts_what_blocks_cover_beyond_the_output() -> None:
    op = chain([Shape(1, 5, 4, 8)] * 2).ops[0]
    assert wasted_elements(op, Block(4, 4, 8)) == 3 * 4 * 8


def test_the_choice_does_not_depend_on_the_order_of_the_candidates() -> None:
    op = chain([Shape(1, 8, 8, 16)] * 2).ops[0]
    legal = [Block(h, w, c) for h in (2, 4, 8) for w in (2, 4, 8) for c in (8, 16)]
    assert choose_block(op, legal) == choose_block(op, legal[::-1]) == Block(8, 8, 16)
