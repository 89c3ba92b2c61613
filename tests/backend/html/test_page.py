"""The page as text: whole, harmless whatever names a model has, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.backend.html.conftest import HOSTILE, LIMIT_BYTES
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend import cli_report
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.html import render
from tvm_ethosu.backend.html.data import ReportData
from tvm_ethosu.backend.html.pictures import nice_steps
from tvm_ethosu.backend.html.render import readable_bytes, readable_time, report_page

# Elements that need no end.
VOID = {"meta", "input", "br", "rect", "path"}


class Page(HTMLParser):
    """The elements of a page, the text in each kind of them, and whether all are closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def text(report: ReportData) -> str:
    return report_page(report)


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_all_elements_are_closed(page: Page) -> None:
    assert page.open == []


def test_names_are_text_and_nothing_else(page: Page, text: str) -> None:
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    shown = "".join(part for parts in page.texts.values() for part in parts)
    assert all(name in shown for name in HOSTILE)
    assert "<b>bold & bad.tflite" in page.texts["h1"]
    assert "window.pwned = 1</script>" not in text


def test_the_data_of_the_script_is_intact(page: Page) -> None:
    data, _ = (part for part in page.texts["script"])
    names = {piece["name"] for moment in json.loads(data) for piece in moment["pieces"]}
    assert HOSTILE[0] in names


def test_the_page_needs_no_other_file(page: Page) -> None:
    links = [value for name, value in page.attributes if name in ("src", "href", "srcset")]
    assert links
    assert all(link.startswith("#") for link in links)
    assert "url(" not in "".join(page.texts["style"])
    assert "@import" not in "".join(page.texts["style"])


def test_only_our_script_may_run(page: Page) -> None:
    (policy,) = (value for name, value in page.attributes if "default-src" in value)
    script = page.texts["script"][1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_links_within_the_page_lead_somewhere(page: Page) -> None:
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for name, value in page.attributes if name == "href"} <= set(ids)


def test_the_summary_says_what_users_ask(page: Page, report: ReportData) -> None:
    shown = "".join(page.texts["h2"] + page.texts["span"])
    assert "Fits: " in shown
    assert readable_bytes(report.outcome.sram_bytes) in page.texts["span"]
    assert "14 KiB" in page.texts["span"]
    assert readable_time(report.outcome.milliseconds) in page.texts["dd"]
    assert any("log_softmax" in part for part in page.texts["b"])


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB")],
)
def test_sizes_are_readable(size_bytes: int, shown: str) -> None:
    assert readable_bytes(size_bytes) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"), [(0.0321, "32.1 µs"), (1.5, "1.5 ms"), (2500.0, "2.5 s")]
)
def test_times_are_readable(milliseconds: float, shown: str) -> None:
    assert readable_time(milliseconds) == shown


@pytest.mark.parametrize("top", [1, 16, 1000, 100_000, 5_000_000])
def test_an_axis_has_few_round_steps(top: int) -> None:
    steps = nice_steps(top)
    assert steps[0] == 0
    assert len(steps) <= 6
    assert all(step <= top for step in steps)
    widths = {b - a for a, b in pairwise(steps)}
    assert all(width & (width - 1) == 0 for width in widths)


# --- the command --------------------------------------------------------------------------------


def test_the_command_writes_page_and_json(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "deep" / "report.html", tmp_path / "report.json"
    arguments = ["report", str(small_model), "-o", str(page), "--json", str(data)]
    arguments += ["--accelerator", "ethos-u55-128", "--sram-size", str(LIMIT_BYTES)]
    arguments += ["--compare-sram-size", "1M", "--compare-accelerator", "ethos-u65-256"]
    assert main(arguments) == 0
    found = json.loads(data.read_text())
    assert found["outcome"]["fits"] is False
    assert [v["label"] for v in found["variants"]] == ["1 MiB of SRAM", "ethos-u65-256"]
    assert found["variants"][0]["outcome"]["fits"] is True
    needed = found["outcome"]["sram_bytes"]
    assert f"<code>--sram-size {needed}</code>" in page.read_text()
    assert f"SRAM: {needed} bytes of {LIMIT_BYTES} bytes, does not fit" in capsys.readouterr().out


def test_a_network_on_the_cpu_alone_is_reported(tmp_path: Path) -> None:
    net = NetBuilder("int8")
    net.output(net.log_softmax(net.input((1, 10))))
    model, page = tmp_path / "cpu.tflite", tmp_path / "report.html"
    model.write_bytes(net.build())
    assert main(["report", str(model), "-o", str(page)]) == 0
    assert "No operator runs on the NPU." in page.read_text()
    assert Page(page.read_text()).open == []


def test_an_interruption_leaves_the_old_page(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the last moment."""
    page = tmp_path / "report.html"
    page.write_text("old")

    def interrupted(_source: object, _target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    assert main(["report", str(small_model), "-o", str(page)]) == 130
    assert page.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html"]


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (["--compare-sram-size", "lots"], "size: not a number of bytes (got 'lots'"),
        (["--compare-accelerator", "ethos-u99"], "accelerator: unknown name (got 'ethos-u99'"),
    ],
)
def test_bad_options_are_refused_before_any_work(
    extra: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    assert main(["report", "missing.tflite", "-o", str(page), *extra]) == 2
    assert text in capsys.readouterr().err
    assert not page.exists()


def test_another_product_gets_its_own_memory_system() -> None:
    from tvm_ethosu.partition import EthosUOptions

    asked = EthosUOptions("ethos-u55-128", system_config="Ethos_U55_Deep_Embedded")
    found = cli_report.variants_asked(asked, (), ("ethos-u55-256", "ethos-u65-512"))
    assert found["ethos-u55-256"].system_config == "Ethos_U55_Deep_Embedded"
    assert found["ethos-u65-512"].system_config == "Ethos_U65_High_End"


def test_shares_of_the_time_add_up(report: ReportData) -> None:
    shares = render.limits_of_speed(report)
    assert sum(share for _, share in shares) == pytest.approx(1.0)
    assert [share for _, share in shares] == sorted((s for _, s in shares), reverse=True)
