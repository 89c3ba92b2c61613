"""The benchmark: verdicts from synthetic points, and real points of a small network."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.progress import Progress

from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.bench import __main__ as command
from tvm_ethosu.backend.bench import measure_ours as ours_module
from tvm_ethosu.backend.bench import runner
from tvm_ethosu.backend.bench.cache import Cache, digest
from tvm_ethosu.backend.bench.chains import compile_chain
from tvm_ethosu.backend.bench.jobs import Job, OurJob, VelaJob, from_json, key_of, to_json
from tvm_ethosu.backend.bench.judge import (
    best,
    budgets,
    duel,
    geometric_mean,
    growth,
    largest_rise,
    least_ratio,
    least_sram,
    opponent,
)
from tvm_ethosu.backend.bench.measure_ours import measure_ours
from tvm_ethosu.backend.bench.measure_vela import measure_vela
from tvm_ethosu.backend.bench.page import markdown, table
from tvm_ethosu.backend.bench.plots import front, picture
from tvm_ethosu.backend.bench.results import (
    AT_FASTEST,
    AT_LEAST,
    OWN_LEAST,
    UNLIMITED,
    Case,
    CaseResult,
    Chain,
    Point,
    Results,
)
from tvm_ethosu.backend.host import Bytes
from tvm_ethosu.backend.vela_files import Core
from tvm_ethosu.scheduler.errors import UserError

HAS_PLOTS = find_spec("matplotlib") is not None
MODEL = Path("net.tflite")
CASE = Case("net", MODEL, "ethos-u55-128")


def vela(sram_bytes: int, cycles: float, core: str = "regor", setting: str = "Size") -> Point:
    return Point(core, setting, None, sram_bytes, cycles)


def ours(setting: str, limit: int | None, sram_bytes: int, cycles: float, **more: Any) -> Point:
    return Point("ours", setting, limit, sram_bytes, cycles, **more)


VELA = (
    vela(4000, 100.0, setting="Performance"),
    vela(2000, 300.0),
    vela(3000, 150.0, "legacy", "75 %"),
    Point("legacy", "25 %", 1000, refusal="does not compile"),
)
OURS = (
    ours(UNLIMITED, None, 5000, 80.0),
    ours(OWN_LEAST, None, 1000, 900.0),
    ours(AT_FASTEST, 4000, 3900, 90.0),
    ours(AT_LEAST, 2000, 1900, 150.0),
)
RESULT = CaseResult(CASE, VELA, OURS, 5.0)


# --- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "cycles"), [(10_000, 100.0), (4000, 100.0), (3999, 150.0), (2000, 300.0)]
)
def test_the_opponent_is_the_fastest_that_fits(limit: int, cycles: float) -> None:
    found = opponent(VELA, limit)
    assert found is not None
    assert found.cycles == cycles


def test_there_may_be_no_opponent() -> None:
    assert opponent(VELA, 1999) is None
    assert best(VELA[3:]) is None


def test_ties_are_broken_by_the_other_figure() -> None:
    points = (vela(20, 5.0), vela(10, 5.0), vela(10, 7.0))
    assert best(points) == least_sram(points) == vela(10, 5.0)


def test_budgets_lie_between_velas_ends_in_steps_of_16() -> None:
    assert budgets(VELA) == {
        AT_FASTEST: 4000,
        "75 % between": 3488,
        "50 % between": 2992,
        "25 % between": 2496,
        AT_LEAST: 2000,
    }


def test_one_size_gives_both_ends_and_no_steps() -> None:
    assert budgets((vela(768, 5.0),)) == {AT_FASTEST: 768, AT_LEAST: 768}
    assert budgets(VELA[3:]) == {}


def test_a_step_is_not_below_velas_least() -> None:
    assert min(budgets((vela(2024, 1.0), vela(2004, 9.0))).values()) == 2004


def test_ratios_at_both_ends_and_of_the_least() -> None:
    at_fastest, at_least = duel(RESULT, AT_FASTEST), duel(RESULT, AT_LEAST)
    assert at_fastest is not None
    assert at_least is not None
    assert at_fastest.ratio == pytest.approx(0.9)
    assert at_least.ratio == pytest.approx(0.5)
    assert least_ratio(RESULT) == pytest.approx(0.5)


@pytest.mark.parametrize("flaw", [{"differing": 1}, {"complaint": "a race"}])
def test_what_is_not_right_has_no_ratio(flaw: dict[str, Any]) -> None:
    wrong = (ours(AT_FASTEST, 4000, 3900, 1.0, **flaw), ours(OWN_LEAST, None, 1, 1.0, **flaw))
    result = CaseResult(CASE, VELA, wrong)
    found = duel(result, AT_FASTEST)
    assert found is not None
    assert found.ratio is None
    assert least_ratio(result) is None


def test_a_network_on_the_cpu_alone_has_no_ratio() -> None:
    found = duel(CaseResult(CASE, VELA, (ours(AT_FASTEST, 4000, 10, 0.0),)), AT_FASTEST)
    assert found is not None
    assert found.ratio is None


@pytest.mark.parametrize(
    ("cycles", "rise"), [((90, 80, 70), 0.0), ((90, 99, 70), 0.1), ((80, 70, 84), 0.2)]
)
def test_the_rise_is_against_the_best_of_smaller_budgets(
    cycles: tuple[float, ...], rise: float
) -> None:
    limits = (1000, 2000, None)
    points = [ours("", limit, 1, n) for limit, n in zip(limits, cycles, strict=True)]
    assert largest_rise([points[2], points[0], points[1]]) == pytest.approx(rise)


def test_the_plan_for_least_sram_is_not_on_the_curve() -> None:
    assert largest_rise([ours(OWN_LEAST, None, 1, 1.0), ours("", 5, 1, 9.0)]) is None


def test_a_mean_leaves_out_what_is_missing() -> None:
    assert geometric_mean([0.5, None, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([None]) is None


@pytest.mark.parametrize(("power", "base"), [(1, 2.0), (2, 3.0)])
def test_growth_is_the_power_without_the_start(power: int, base: float) -> None:
    chains = [Chain(n, "size", base + ((n - 10) / 10) ** power) for n in (10, 20, 40, 80, 160)]
    assert growth(chains) == pytest.approx(power)
    assert growth(chains[:2]) is None
    assert growth([*chains, Chain(320, "size", math.inf)]) == pytest.approx(power)


# --- the page and the pictures ------------------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path) -> Callable[..., Results]:
    """Return a function that makes results of one network with these points of ours."""
    model = tmp_path / "net.tflite"
    model.write_bytes(bytes(10))

    def make(points: tuple[Point, ...] = OURS, seconds: float = 5.0) -> Results:
        chains = tuple(Chain(n, "size", 1.0 + n) for n in (10, 20, 40))
        case = Case("net", model, "ethos-u55-128")
        return Results((CaseResult(case, VELA, points, seconds),), chains)

    return make


def _row(page: str, start: str) -> str:
    return next(line for line in page.splitlines() if line.startswith(f"| {start}"))


def test_the_page_says_which_targets_are_met(results: Callable[..., Results]) -> None:
    page = markdown(results())
    assert "0.900 (1 of 1 networks), met" in _row(page, "cycles at Vela's fastest")
    assert "0.500 (1 of 1 networks), met" in _row(page, "cycles at Vela's least")
    assert "0.500 (1 of 1 networks), met" in _row(page, "least SRAM")
    assert "0 %, met" in _row(page, "largest rise")
    assert "0 of 4, met" in _row(page, "our results that are not right")
    assert "| net | ethos-u55-128 | 6 | 5.0, met |" in page
    assert "| net | regor | 4000 / 100 | 2000 / 300 |" in page


def test_the_page_says_which_targets_are_missed(results: Callable[..., Results]) -> None:
    points = (
        ours(UNLIMITED, None, 5000, 200.0, complaint="word 7: a race | between two"),
        ours(OWN_LEAST, None, 1900, 900.0),
        ours(AT_FASTEST, 4000, 3900, 120.0),
        Point("ours", AT_LEAST, 2000, refusal="f: does not fit (needs 9); most is in use at"),
    )
    page = markdown(results(points, seconds=7.0))
    assert "1.200 (1 of 1 networks), MISSED" in _row(page, "cycles at Vela's fastest")
    assert "1 of 1, MISSED" in _row(page, "…")
    assert "no result" in _row(page, "cycles at Vela's least")
    assert "0.950 (1 of 1 networks), MISSED" in _row(page, "least SRAM")
    assert "66.7% (net), MISSED" in _row(page, "largest rise")
    assert "1 of 3, MISSED" in _row(page, "our results that are not right")
    assert "not in SRAM" in page
    assert "refused: f: does not fit (needs 9) |" in page
    assert "- net, ours, no limit: word 7: a race | between two" in page
    assert "7.0, MISSED" in page


def test_a_mean_over_some_networks_meets_no_target(results: Callable[..., Results]) -> None:
    (one,) = results().cases
    refused = CaseResult(one.case, VELA, (Point("ours", UNLIMITED, refusal="no such operator"),))
    page = markdown(Results((one, refused), ()))
    assert "(1 of 2 networks), MISSED" in _row(page, "cycles at Vela's fastest")
    assert "- net is not compiled: no such operator" in page


def test_what_takes_too_long_is_shown_as_such(results: Callable[..., Results]) -> None:
    page = markdown(results(seconds=math.inf))
    assert "| net | ethos-u55-128 | 6 | over 300, MISSED |" in page


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert table(["a"], [["x|y\nz"]]).splitlines()[-1] == "| x\\|y z |"


def test_the_front_holds_what_nothing_beats() -> None:
    points = [vela(30, 10.0), vela(10, 50.0), vela(20, 50.0), vela(25, 20.0), vela(40, 10.0)]
    assert front(points) == ((10, 50.0), (25, 20.0), (30, 10.0))


@pytest.mark.skipif(not HAS_PLOTS, reason="matplotlib is not installed: pip install -e .[bench]")
def test_the_picture_is_the_same_bytes_each_time() -> None:
    text = picture([RESULT])
    assert text == picture([RESULT])
    assert ElementTree.fromstring(text).tag.endswith("svg")
    for word in ("net", "Vela", "ours", "ethos-u55-128", "SRAM, KiB"):
        assert f">{word}" in text


# --- jobs and their cache -----------------------------------------------------------------------


def test_the_digest_depends_on_where_parts_end() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["a", b"b"]) == digest([b"a", "b"])


def test_the_cache_gives_back_what_was_put_and_survives_damage(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get("k") is None
    cache.put("k", {"a": 1})
    assert cache.get("k") == {"a": 1}
    assert Cache(tmp_path, reads=False).get("k") is None
    (tmp_path / "k.json").write_text('{"a":')
    assert cache.get("k") is None


@pytest.mark.parametrize("result", [OURS[0], VELA[3], 2.5, math.inf])
def test_results_survive_json(result: Point | float) -> None:
    assert from_json(json.loads(json.dumps(to_json(result)))) == result


def test_a_key_depends_on_content_and_options_and_not_on_the_path(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.tflite", "b.tflite", "c.tflite")]
    for path, data in zip(paths, (b"one", b"one", b"two"), strict=True):
        path.write_bytes(data)
    a, b, c = (Case(path.stem, path, "ethos-u55-128") for path in paths)
    other = Case("a", paths[0], "ethos-u55-256")
    assert key_of(OurJob(a, UNLIMITED)) == key_of(OurJob(b, UNLIMITED))
    different: list[Job] = [
        *(OurJob(a, UNLIMITED), OurJob(c, UNLIMITED), OurJob(other, UNLIMITED)),
        *(OurJob(a, OWN_LEAST), OurJob(a, UNLIMITED, 16)),
        *(VelaJob(a, Core.REGOR, "Size"), VelaJob(a, Core.LEGACY, "Size")),
        *(VelaJob(a, Core.REGOR, "75 %", 8), VelaJob(a, Core.REGOR, "75 %", 9)),
    ]
    assert len({key_of(job) for job in different}) == len(different)


class _AtOnce(Executor):
    """Does a job when it is handed over, in this process, and notes it."""

    def __init__(self, do: Callable[[Job], Point]) -> None:
        self.do = do
        self.done: list[Job] = []

    def submit(self, _function: Any, /, job: Any, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.done.append(job)
        try:
            future.set_result(self.do(job))
        except ValueError as error:
            future.set_exception(error)
        return future


def _bench(do: Callable[[Job], Point], folder: Path) -> tuple[runner._Bench, _AtOnce]:
    executor = _AtOnce(do)
    with Progress(disable=True) as progress:
        return runner._Bench(executor, Cache(folder), progress, 100), executor


@pytest.fixture
def case(tmp_path: Path) -> Case:
    model = tmp_path / "net.tflite"
    model.write_bytes(b"a network")
    return Case("net", model, "ethos-u55-128")


def _by_vela(job: Job) -> Point:
    assert isinstance(job, VelaJob)
    if job.core is Core.LEGACY:
        return Point(job.core.value, job.setting, job.arena_bytes, refusal="no")
    return Point(job.core.value, job.setting, job.arena_bytes, 1000, 5.0)


def test_vela_is_asked_for_shares_of_what_performance_took(case: Case, tmp_path: Path) -> None:
    bench, executor = _bench(_by_vela, tmp_path)
    found = runner._measure_vela(bench, [case])[case]
    asked = [job.arena_bytes for job in executor.done if isinstance(job, VelaJob)]
    assert asked == [None] * 4 + [750, 500, 250]
    assert [p.setting for p in found if p.is_measured][2:] == ["75 %", "50 %", "25 %"]


def test_a_second_run_measures_nothing_again(case: Case, tmp_path: Path) -> None:
    bench, _ = _bench(_by_vela, tmp_path)
    first = runner._measure_vela(bench, [case])
    bench, executor = _bench(_by_vela, tmp_path)
    assert runner._measure_vela(bench, [case]) == first
    assert executor.done == []


def test_what_is_refused_without_a_limit_is_not_tried_with_one(case: Case, tmp_path: Path) -> None:
    refused = Point("ours", UNLIMITED, refusal="no such operator")
    bench, executor = _bench(lambda _: refused, tmp_path)
    assert runner._measure_ours(bench, [case], {case: VELA})[case] == (refused,)
    assert len(executor.done) == 1


def test_ours_is_measured_at_all_budgets(case: Case, tmp_path: Path) -> None:
    bench, executor = _bench(lambda _: OURS[0], tmp_path)
    runner._measure_ours(bench, [case], {case: VELA})
    asked = [(job.setting, job.limit_bytes) for job in executor.done if isinstance(job, OurJob)]
    assert asked == [(UNLIMITED, None), (OWN_LEAST, None), *budgets(VELA).items()]


def test_a_breakdown_is_shown_and_not_kept(case: Case, tmp_path: Path) -> None:
    def broken(job: Job) -> Point:
        raise ValueError("some\nlast line\n")

    for _ in range(2):
        bench, executor = _bench(broken, tmp_path)
        (point,) = runner._measure_ours(bench, [case], {case: VELA})[case]
        assert point.is_wrong
        assert point.complaint == "ValueError: last line"
        assert len(executor.done) == 1
    page = markdown(Results((CaseResult(case, VELA, (point,)),), ()))
    assert "1 of 1, MISSED" in _row(page, "our results that are not right")
    assert "- net, ours, no limit: ValueError: last line" in page


# --- the command --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--networks", "none"], "bench: no network to measure"),
        (["--networks", "none", "missing.tflite"], "missing.tflite: no such file"),
        (["--networks", "no-such"], "no such network (got 'no-such'"),
        (["--accelerators", "ethos-u85-128"], "ethos-u85-128"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert text in capsys.readouterr().err


def test_two_networks_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = (tmp_path / "a" / "net.tflite", tmp_path / "b" / "net.tflite")
    for path in paths:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(UserError, match="the same name"):
        command.choose_models(paths, ("none",))


@pytest.mark.skipif(not HAS_PLOTS, reason="matplotlib is not installed: pip install -e .[bench]")
def test_an_interrupted_run_leaves_the_old_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    def interrupted(*_: Any) -> Results:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "measure", interrupted)
    page = tmp_path / "page.md"
    page.write_text("old")
    assert command.main(["--networks", "none", str(case.model), "-o", str(page)]) == 130
    assert page.read_text() == "old"


# --- real compilers -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Case:
    net = NetBuilder("int8", seed=3)
    x = net.conv2d(net.input((1, 16, 16, 8)), filters=8)
    net.output(net.conv2d(net.conv2d(x, filters=8), filters=8))
    model = tmp_path_factory.mktemp("bench") / "small.tflite"
    model.write_bytes(net.build())
    return Case("small", model, "ethos-u55-128")


def test_vela_and_ours_are_judged_alike(small: Case) -> None:
    theirs = measure_vela(small, Core.REGOR, "Performance", None)
    own = measure_ours(small, UNLIMITED, None)
    for point in (theirs, own):
        assert point.is_right, point
        assert point.cpu_operators == 0
        # The input and the output alone take 4096 bytes; at 128 MACs a cycle the work takes 3456.
        assert point.sram_bytes is not None
        assert point.sram_bytes >= 4096
        assert point.cycles is not None
        assert 3456 <= point.cycles < 10 * 3456
    assert theirs.compared == 2048
    assert own.compared == 3 * 2048


def test_a_wrong_value_is_seen(small: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ours_module.run_on

    def wrong(*arguments: Any) -> tuple[Bytes, ...]:
        outputs = right(*arguments)
        outputs[0][5] ^= 1
        return outputs

    monkeypatch.setattr(ours_module, "run_on", wrong)
    point = measure_ours(small, UNLIMITED, None)
    assert point.differing == 3
    assert not point.is_right


def test_what_does_not_fit_is_a_refusal(small: Case) -> None:
    point = measure_ours(small, AT_LEAST, 4000)
    assert not point.is_measured
    assert "does not fit" in point.refusal


def test_a_chain_is_wholly_on_the_npu() -> None:
    # Input and output take 16384 bytes each, and whatever else is needed is beside them.
    assert compile_chain(4, "performance") > 32768


@pytest.mark.slow
def test_from_a_network_to_the_page(
    small: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e .[bench]")
    monkeypatch.setattr(runner, "LENGTHS", (2,))
    monkeypatch.setattr(command, "cache_folder", lambda: tmp_path / ".cache" / "networks")
    page = tmp_path / "docs" / "page.md"
    arguments = ["--networks", "none", "--accelerators", small.accelerator, str(small.model)]
    assert command.main([*arguments, "-o", str(page)]) == 0
    text = page.read_text()
    assert "0 of" in _row(text, "our results that are not right")
    assert "<svg" in (tmp_path / "docs" / "page" / "ethos-u55-128.svg").read_text()
    assert command.main([*arguments, "-o", str(page)]) == 0
    assert page.read_text() == text
