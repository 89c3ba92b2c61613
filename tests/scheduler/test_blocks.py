"""Our block configs against those that Vela finds."""

from __future__ import annotations

import numpy as np
import pytest
from ethosu.vela import api
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduler.builders import chain, operand, pool, random_chain
from tvm_ethosu.backend import vela
from tvm_ethosu.scheduler.arch import ARCHS, Arch, Layout, find_arch
from tvm_ethosu.scheduler.blocks import legal_blocks
from tvm_ethosu.scheduler.hardware import make_target
from tvm_ethosu.scheduler.ir import NpuOp, Shape
from tvm_ethosu.scheduler.ports import Block

# Vela's list takes every IFM for an upscaled one, and so leaves out blocks of odd extents.
ODD_EXTENTS = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128")


def _ours(op: NpuOp, arch: Arch) -> set[Block]:
    blocks = legal_blocks(op, make_target(arch, None))
    return {Block(int(h), int(w), int(c)) for h, w, c in blocks}


def _clipped(blocks: set[Block], shape: Shape) -> set[Block]:
    """The parts of the OFM that blocks cover."""
    return {Block(min(b.h, shape.h), min(b.w, shape.w), min(b.c, shape.c)) for b in blocks}


def _operation(op: NpuOp) -> vela.Operation:
    placements = {
        o.tensor: vela.Placement(1, 65536 * index, Layout.NHWC, o.shape.h)
        for index, o in enumerate((*op.inputs, op.ofm))
    }
    return vela.make_operation(op, {n: vela.View(p, 0) for n, p in placements.items()})


def _theirs(operation: vela.Operation, arch: Arch) -> set[Block]:
    name = "Ethos_" + arch.accelerator.name
    found = api.npu_find_block_configs(operation.vela, api.NpuAccelerator[name])
    return {Block(block.height, block.width, block.depth) for block in found}


@given(st.integers(0, 5_000), st.sampled_from(ARCHS))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_blocks_are_those_that_vela_finds(seed: int, arch: Arch) -> None:
    for op in random_chain(seed).ops:
        theirs, ours = _theirs(_operation(op), arch), _ours(op, arch)
        more = ours - theirs
        assert _clipped(theirs, op.ofm.shape) <= _clipped(ours, op.ofm.shape)
        if arch.accelerator.value in ODD_EXTENTS:
            assert all(block.h % 2 or block.w % 2 for block in more)
        else:
            assert not more


@pytest.mark.parametrize("accelerator", ODD_EXTENTS)
def test_vela_emits_blocks_of_odd_extents_too(accelerator: str) -> None:
    arch = find_arch(accelerator)
    op = chain([Shape(1, 9, 9, 16)] * 2).ops[0]
    operation = _operation(op)
    more = sorted(_ours(op, arch) - _theirs(operation, arch))
    assert more
    for block in more:
        vela.set_block(operation, block)
        ranges = [vela.Range(0, 0, 160)], [vela.Range(0, 160, 160)]
        vela.set_constants(operation, *ranges)
        assert vela.command_stream([operation], arch)


def test_blocks_come_in_a_fixed_order() -> None:
    op = pool("p", operand("x", Shape(1, 8, 8, 16)), operand("y", Shape(1, 8, 8, 16)))
    blocks = legal_blocks(op, make_target(find_arch("ethos-u55-64"), None))
    assert np.array_equal(blocks, np.unique(blocks, axis=0))
