"""Many combinations in one table: none is lost, none is done twice, none breaks the others."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend import sweep as sweeping
from tvm_ethosu.backend.bench.cache import Cache
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.sweep import Found, Job, Status, Sweep, jobs_of, parse_sizes
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.scheduler.errors import InternalError, UserError


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small network in an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    net = NetBuilder("int8", seed=5)
    x = net.conv2d(net.input((1, 8, 8, 3)), filters=16)
    net.output(net.conv2d(x, filters=4))
    path = tmp_path / "small.tflite"
    path.write_bytes(net.build())
    return path


def _sweep(model: Path, *arguments: str) -> list[dict[str, str]]:
    words = ["sweep", str(model), "--workers", "1", "-o", "rows.csv", *arguments]
    assert main(words) == 0
    with Path("rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64K", (65536,)),
        ("1K:8K", (1024, 2048, 4096, 8192)),
        ("3K:8K", (3072, 6144, 8192)),
        ("1M,4096", (4096, 1 << 20)),
        ("1K:4K:3", (1024, 2048, 4096)),
        ("1K:2K,2K:4K", (1024, 2048, 4096)),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "lots", "1K:2K:x", "1K:2K:0", "1:2:3:4", "2K:1K", "0:1K"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_sizes(text)


def test_every_combination_is_a_row_that_agrees_with_compile(model: Path) -> None:
    rows = _sweep(model, "--accelerators", "ethos-u55-128,ethos-u65-256", "--sram", "512,8K")
    places = [(row["accelerator"], row["sram_size"]) for row in rows]
    names = ("ethos-u55-128", "ethos-u65-256")
    assert places == [(name, size) for name in names for size in ("512", "8192")]
    assert [row["status"] for row in rows] == ["too small", "fits", "too small", "fits"]
    compiling = ["compile", str(model), "-o", "out", "--accelerator", "ethos-u55-128"]
    assert main([*compiling, "--sram-size", "8K", "--json", "report.json"]) == 0
    assert str(json.loads(Path("report.json").read_text())["sram_bytes"]) == rows[1]["sram_bytes"]
    needed = int(rows[0]["needed_bytes"])
    assert main([*compiling, "--sram-size", str(needed)]) == 0
    assert main([*compiling, "--sram-size", str(needed - 16)]) == 2
    assert float(rows[1]["cycles"]) > 0
    assert rows[0]["cycles"] == ""


def test_what_was_done_is_not_done_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--accelerators", "ethos-u55-128", "--sram", "512,8K", "--json", "rows.json")
    before = _sweep(model, *arguments)
    done: list[Job] = []

    def noted(job: Job) -> Found:
        done.append(job)
        return Found(None, Status.REFUSED, "not to be done")

    monkeypatch.setattr(sweeping, "do", noted)
    assert _sweep(model, *arguments) == before
    assert done == []
    _sweep(model, *arguments, "--overwrite-inputs")
    assert len(done) == 2


def test_an_interruption_leaves_what_is_done(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sweeping.do

    def interrupted(job: Job) -> Found:
        if job.options.sram_size == 16384:
            raise KeyboardInterrupt
        return real(job)

    monkeypatch.setattr(sweeping, "do", interrupted)
    words = ["sweep", str(model), "--workers", "1", "--accelerators", "ethos-u55-128"]
    assert main([*words, "--sram", "8K,16K", "-o", "rows.csv"]) == 130
    with Path("rows.csv").open(newline="") as file:
        assert [row["sram_size"] for row in csv.DictReader(file)] == ["8192"]
    assert len(list(Path(".cache/sweep").glob("*.json"))) == 1


def test_a_failure_of_ours_is_a_row_and_is_tried_again(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise InternalError("buffers overlap")

    monkeypatch.setattr(sweeping, "compile_within", broken)
    words = ["sweep", str(model), "--workers", "1", "--accelerators", "ethos-u55-128"]
    assert main([*words, "--sram", "8K", "-o", "rows.csv"]) == 1
    assert "1 of 1 combinations failed, the first with: buffers overlap" in capsys.readouterr().err
    assert "failed" in Path("rows.csv").read_text()
    assert not list(Path(".cache").rglob("*.json"))


def test_a_damaged_result_is_measured_again(model: Path) -> None:
    jobs = jobs_of([("m", model.read_bytes())], [EthosUOptions("ethos-u55-128")], [8192])
    cache = Cache(Path("kept"))
    cache.put(jobs[0].key, {"outcome": None, "status": "refused", "reason": "kept"})
    assert Sweep(jobs, cache, 1, None).missing() == ()
    next(Path("kept").glob("*.json")).write_text("{")
    assert Sweep(jobs, cache, 1, None).missing() == jobs


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (["--accelerators", "ethos-u99"], "accelerator: unknown name (got 'ethos-u99'"),
        (["--sram", "2K:1K"], "sizes: the range begins above its end"),
        (["--plot", "rows.pdf"], "--plot: unknown ending (got '.pdf'"),
        (["other/small.tflite"], "the same name"),
        (["missing.tflite"], "missing.tflite"),
    ],
)
def test_bad_input_is_one_sentence(
    extra: list[str], text: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other").mkdir()
    Path("other/small.tflite").write_bytes(model.read_bytes())
    assert main(["sweep", str(model), *extra]) == 2
    assert text in capsys.readouterr().err


def test_what_is_not_installed_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    words = ["sweep", str(model), "--accelerators", "ethos-u55-128", "--sram", "8K"]
    assert main([*words, "--cluster", "nowhere:1"]) == 2
    assert "--cluster: the package 'distributed' is not installed" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main(words) == 2
    assert "sweep: the package 'joblib' is not installed" in capsys.readouterr().err


def test_the_plot_has_a_line_for_each_accelerator(model: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    names = ("ethos-u55-128", "ethos-u55-256")
    arguments = ("--accelerators", ",".join(names), "--sram", "512,8K", "--plot")
    _sweep(model, *arguments, "rows.svg")
    ElementTree.parse("rows.svg")
    _sweep(model, *arguments, "rows.png")
    assert Path("rows.png").read_bytes().startswith(b"\x89PNG")
    first = Path("rows.svg").read_bytes()
    _sweep(model, *arguments, "rows.svg")
    assert Path("rows.svg").read_bytes() == first


@pytest.mark.slow
def test_ctrl_c_ends_all_processes(model: Path) -> None:
    """As on a terminal: the signal reaches the whole group of processes."""
    program = "import sys; from tvm_ethosu.entry import main; sys.exit(main())"
    words = ["sweep", str(model), "--workers", "2", "--sram", "1K:64K:60", "-o", "rows.csv"]
    running = subprocess.Popen(
        [sys.executable, "-c", program, *words], stderr=subprocess.PIPE, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list(Path(".cache").rglob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"Traceback" not in errors
    assert Path("rows.csv").read_text().count("fits") >= 1
