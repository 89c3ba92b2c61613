"""What the page shows agrees with what other parts of the project say of the same network."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.backend.html.conftest import LIMIT_BYTES
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend import sim
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.emit import split_invocations
from tvm_ethosu.backend.host import load_program
from tvm_ethosu.backend.html.data import Holding, ReportData, Variant
from tvm_ethosu.backend.html.gather import gather, variant
from tvm_ethosu.backend.outcome import Compilation, compile_or_least
from tvm_ethosu.backend.sram import align
from tvm_ethosu.backend.timing import function_times
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.tflite_file import load_tflite, parse_tflite
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.plan import Transfer

PLANE = 16 * 16


def test_operators_stand_in_the_order_of_the_file(report: ReportData) -> None:
    assert [row.name for row in report.operators] == [
        "CONV_2D", "CONV_2D", "CONV_2D", "LOG_SOFTMAX", "CONV_2D", "SOFTMAX",
    ]  # fmt: skip
    assert [row.number for row in report.operators] == [1, 2, 3, 4, 5, 6]
    assert [row.on_npu for row in report.operators] == [True, True, True, False, True, True]
    assert "log_softmax" in report.operators[3].reason
    assert report.operators[5].parts > 10


def test_macs_and_shapes_are_those_of_the_operators(report: ReportData) -> None:
    first, second, third, _, fifth, softmax = report.operators
    assert first.macs == PLANE * 32 * 9 * 16
    assert second.macs == PLANE * 32 * 9 * 32
    assert third.macs == PLANE // 4 * 8 * 9 * 32
    assert fifth.macs == PLANE // 4 * 8 * 8
    assert softmax.macs == 0
    assert (second.ifm, second.ofm) == ("16×16×32", "16×16×32")
    assert first.utilisation == pytest.approx(first.macs / first.cycles / 128)


def test_the_time_is_the_simulators(compilation: Compilation, report: ReportData) -> None:
    """Against the command streams decoded apart: totals, and every operation's cycles."""
    total = busy = 0.0
    sram = 0
    for function in compilation.network.functions:
        for stream in load_program(function.program).streams:
            system = sim.SYSTEM_CONFIGS["Ethos_U55_High_End_Embedded"]
            times = sim.estimate(stream, system, sim.MemoryMode.SHARED_SRAM)
            total += times.total
            kernels = [time for time in times.operations if time.kind != "DMA"]
            busy += sum(time.total for time in kernels)
            sram += sum(
                i.read_bytes for t in kernels for i in t.interfaces if i.memory.name == "SRAM"
            )
    assert report.outcome.cycles == total
    assert report.outcome.milliseconds == pytest.approx(total / 500e3)
    assert sum(row.cycles for row in report.operators) == pytest.approx(busy)
    assert sum(row.traffic.sram_read_bytes for row in report.operators) == sram
    waiting = sum(function.waiting_cycles for function in report.functions)
    assert waiting == pytest.approx(total - busy)


def test_transfers_belong_to_their_operators(compilation: Compilation) -> None:
    moved = 0
    for function in compilation.network.functions:
        schedule = function.allocation.schedule
        times = function_times(function, compilation.network.options)
        planned = [c for run in split_invocations(schedule) for c in run if isinstance(c, Transfer)]
        assert [time.op for time in times.transfers] == [transfer.op for transfer in planned]
        for time, transfer in zip(times.transfers, planned, strict=True):
            assert time.traffic.constants_read_bytes == transfer.size_bytes
            moved += 1
    assert moved


def test_streams_of_another_plan_are_found_out(compilation: Compilation) -> None:
    one, other = compilation.network.functions
    mixed = replace(one, program=other.program)
    with pytest.raises(InternalError, match="not those of the plan"):
        function_times(mixed, compilation.network.options)


def test_stripes_of_a_cascade_make_every_row_once(report: ReportData) -> None:
    (cascade,) = report.cascades
    assert (cascade.first, cascade.last) == (1, 3)
    for lane in cascade.lanes:
        rows = sorted(row for s in lane.stripes for row in range(s.first, s.stop))
        assert rows == list(range(lane.height))
    assert cascade.held_bytes < cascade.whole_bytes == 2 * PLANE * 32
    assert [row.cascade for row in report.operators] == [1, 1, 1, None, None, None]


def test_memory_is_what_the_memory_report_says(
    hostile_model: Path, report: ReportData, tmp_path: Path
) -> None:
    path = tmp_path / "memory.json"
    arguments = ["memory", str(hostile_model), "--npu", "ethos-u55-128", "--sram-size", "14K"]
    assert main([*arguments, "--json", str(path)]) == 0
    calls = json.loads(path.read_text())["calls"]
    expected = [
        sum(align(tensor["bytes"]) for tensor in (*call["live"], *call["idle_io"]))
        for call in calls
        for _ in range({0: 3, len(calls) - 1: 2}.get(calls.index(call), 1))
    ]
    assert [moment.used_bytes for moment in report.memory.moments] == expected
    assert report.memory.arena_bytes == report.outcome.sram_bytes <= 14 * 1024


def test_pieces_stay_in_their_memory(compilation: Compilation, report: ReportData) -> None:
    scratch = {f.name: f.program.scratch_bytes for f in compilation.network.functions}
    for at, moment in enumerate(report.memory.moments):
        shown = [p for p in report.memory.at(at) if p.holding in _INSIDE]
        inside = [p for p in shown if "in the memory of" not in p.detail]
        size = scratch.get(moment.place, 0)
        assert all(piece.offset_bytes + piece.size_bytes <= size for piece in inside)
        outside = [p for p in report.memory.at(at) if p.holding not in _INSIDE]
        assert sum(p.size_bytes for p in outside) + size == moment.used_bytes
        assert min((p.offset_bytes for p in outside), default=size) == size


_INSIDE = (Holding.FEATURE_MAP, Holding.ROLLING, Holding.WEIGHTS)


def test_what_does_not_fit_says_what_would(
    small_model: Path,
    variants: tuple[Variant, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The number is the one with which the command line then compiles, and no less."""
    small = variants[0].outcome
    assert small is not None
    assert not small.fits
    assert "does not fit" in variants[0].refusal
    arguments = ["compile", str(small_model), "-o", str(tmp_path), "--accelerator"]
    arguments += ["ethos-u55-128", "--sram-size"]
    assert main([*arguments, str(LIMIT_BYTES)]) == 2
    assert f"the smallest --sram-size that works is {small.sram_bytes}" in capsys.readouterr().err
    assert main([*arguments, str(small.sram_bytes)]) == 0


def test_a_variant_that_is_refused_is_a_result(small_model: Path) -> None:
    file = load_tflite(small_model)
    broken = replace(file, data=file.data[: len(file.data) // 2])
    refused = variant(broken, "damaged", EthosUOptions("ethos-u55-128"))
    assert refused.outcome is None
    assert refused.refusal


def test_numbers_follow_the_order_in_which_the_npu_works() -> None:
    """A shortcut is computed before the branch that it is added to, whatever the file's order."""
    net = NetBuilder("int8", seed=5)
    x = net.conv2d(net.input((1, 8, 8, 16)), filters=16)
    long = net.conv2d(net.conv2d(x, filters=16), filters=16)
    short = net.conv2d(x, filters=16, kernel=(1, 1))
    net.output(net.add(short, long))
    file = parse_tflite(net.build())
    report = gather(compile_or_least(file, EthosUOptions("ethos-u55-128")))
    numbers = [int(moment.label.split(" ")[0]) for moment in report.memory.moments]
    assert numbers == [1, 2, 3, 4, 5]
    written = [operator.outputs[0] for operator in file.operators]
    made = [row.tensor for row in report.operators]
    assert sorted(made) == sorted(written)
    assert made != written


def test_buffers_in_lent_memory_are_drawn_where_they_lie() -> None:
    """Within the piece of their owner, which holds nothing at that time, and above the scratch."""
    net = NetBuilder("int8", seed=4)
    x = net.input((1, 16, 16, 16), name="image")
    for filters in (8, 8, 4):
        x = net.conv2d(x, filters=filters)
    net.output(net.softmax(net.dense(net.max_pool(x), units=5)))
    options = EthosUOptions("ethos-u55-128", overwrite_inputs=True)
    compilation = compile_or_least(parse_tflite(net.build()), options)
    (function,) = compilation.network.functions
    homes = function.allocation.homes
    assert set(homes.values()) == {"in0"}
    pieces = gather(compilation).memory.pieces
    (owner,) = (piece for piece in pieces if piece.holding is Holding.INPUT)
    lent = [piece for piece in pieces if piece.detail.endswith(" (in the memory of image)")]
    assert len(lent) == len(homes) > 1
    assert owner.offset_bytes == align(function.program.scratch_bytes)
    for piece in lent:
        assert owner.start < piece.start < piece.stop <= owner.stop
        assert piece.offset_bytes >= owner.offset_bytes
        assert piece.offset_bytes + piece.size_bytes <= owner.offset_bytes + owner.size_bytes
