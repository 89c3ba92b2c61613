"""Mutations of Vela's streams: what the table of docs/simulator.md counts, on a small network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.sim.mutations import HARMLESS, PAGE, Table, measure, with_rows
from tests.backend.sim.test_networks import build_small
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.vela_files import Core, VelaOptions, compile_with_vela, read_network


@pytest.mark.parametrize("core", Core)
def test_what_is_not_reported_is_no_hazard(tmp_path: Path, core: Core) -> None:
    source = tmp_path / "small.tflite"
    source.write_bytes(build_small("int8"))
    options = VelaOptions(Accelerator.U55_128, core, "Size")
    compiled = compile_with_vela(source, tmp_path / "out", options)
    table = Table()
    net = NetBuilder("int8", seed=3)
    net.output(net.input((1, 12, 12, 5)))
    table.add(read_network(compiled.read_bytes()), net.random_inputs())
    waits = table.dma_waits.made + table.kernel_waits.made
    assert waits == table.dma_waits.reported + table.kernel_waits.reported > 0
    assert table.blockdep.made > 10
    assert table.blockdep.others.keys() <= {HARMLESS}
    assert table.shifts.made == 24
    assert table.shifts.reported > 5
    assert all(found.made == found.reported + found.others.total() for found in
               (table.dma_waits, table.kernel_waits, table.blockdep, table.shifts))  # fmt: skip


def test_rows_replace_rows_and_nothing_else() -> None:
    page = PAGE.read_text(encoding="utf-8")
    changed = with_rows(page, ["| a | 1 | 1 | |", "| b | 2 | 2 | |"])
    assert changed != page
    before, _, behind = changed.partition("| a | 1 | 1 | |\n| b | 2 | 2 | |\n")
    assert page.startswith(before)
    assert page.endswith(behind)
    assert "drop a DMA_WAIT" not in changed


@pytest.mark.slow
def test_the_table_is_what_is_measured(shared: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_rows(page, measure(shared)) == page
