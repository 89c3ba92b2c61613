"""Tables of operators: copied to the shared RAM where they are needed, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiling import compile_graph
from tests.scheduler.builders import CLAMP, operand
from tvm_ethosu.backend import sim
from tvm_ethosu.backend.sim.operations import Dma
from tvm_ethosu.scheduler.arch import find_arch
from tvm_ethosu.scheduler.ir import Constant, DType, NpuGraph, NpuOp, Requantize, Shape, Tensor

SHAPE = Shape(1, 2, 2, 16)


def _graph(tables: str) -> NpuGraph:
    """Return operators one after the other: one letter each, its table; a dot has none."""
    ops: list[NpuOp] = []
    for index, table in enumerate(tables):
        ifm, ofm = (operand(f"t{i}", SHAPE) for i in (index, index + 1))
        if table == ".":
            ops.append(Requantize(f"op{index}", ifm, ofm, CLAMP))
        else:
            ops.append(Requantize(f"op{index}", ifm, ofm, CLAMP, table=table))
    names = [f"t{index}" for index in range(len(tables) + 1)]
    tensors = {name: Tensor(name, SHAPE, DType.I8, name) for name in names}
    constants = {
        table: Constant(table, np.full(256, ord(table), np.int8)) for table in set(tables) - {"."}
    }
    return NpuGraph("tables", tuple(ops), tensors, constants, (names[0],), (names[-1],))


def _targets(tables: str, accelerator: str) -> list[int]:
    """Return the slots to which tables are copied, in the order of the copies."""
    arch = find_arch(accelerator)
    program = compile_graph(_graph(tables), arch)
    (invocation,) = program.invocations
    words = np.asarray(invocation.words, np.uint32)
    stream = sim.decode(words, sim.Accelerator(accelerator))
    copies = [op for op in stream.operations if isinstance(op, Dma)]
    return [(op.destination.address - arch.table_address) // 256 for op in copies]


@pytest.mark.parametrize(
    ("tables", "slots"),
    [
        ("aa", [0]),
        ("a.a", [0]),
        ("ab.ab", [0, 1]),
        # The ninth takes the place of all others.
        ("abcdefghia", [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]),
    ],
)
def test_a_table_is_copied_once_while_there_is_room(tables: str, slots: list[int]) -> None:
    assert _targets(tables, "ethos-u55-128") == slots


@pytest.mark.parametrize(
    ("tables", "slots"), [("aa", [0]), ("a.a", [0, 0]), ("ab.ab", [0, 1, 0, 1])]
)
def test_the_smallest_npus_lose_tables_to_accumulators(tables: str, slots: list[int]) -> None:
    assert _targets(tables, "ethos-u55-32") == slots
