"""The page in a real browser: nothing is reported, nothing sticks out, what can be used works."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.backend.html import screenshots
from tests.backend.html.conftest import HOSTILE
from tests.conftest import REPOSITORY
from tvm_ethosu.backend.html.data import ReportData
from tvm_ethosu.backend.html.render import report_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = (1280, 390)


def find_chromium() -> str | None:
    """Return Chromium's path, None where it or the package that drives it is missing."""
    if importlib.util.find_spec("playwright") is None:
        return None
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in found if path is not None), None)


def _chromium() -> str:
    path = find_chromium()
    if path is None:
        pytest.skip("playwright (pip) or Chromium (Debian: chromium) is not installed")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = _chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # A root's Chromium needs no sandbox of its own to show a page of ours.
        running = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def address(report: ReportData, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(report), encoding="utf-8")
    return path.as_uri()


class Watched:
    """A page, and all that the browser complained of or asked for."""

    def __init__(self, browser: Browser, address: str, width: int) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def run(self, expression: str) -> Any:
        return self.page.evaluate(expression)


@pytest.fixture(params=WIDTHS)
def watched(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Watched]:
    found = Watched(browser, address, request.param)
    yield found
    assert found.complaints == []
    assert found.requests == [address]
    found.page.close()


def _rows(watched: Watched) -> list[str]:
    """Return the numbers of the operators that are shown, in the order on the screen."""
    return watched.run(
        "[...document.querySelectorAll('#table tbody tr:not([hidden]) td:first-child')]"
        ".map(cell => cell.textContent)"
    )


def test_nothing_sticks_out(watched: Watched) -> None:
    assert watched.run("document.documentElement.scrollWidth <= window.innerWidth")
    for details in watched.page.locator("details").all():
        details.evaluate("node => { node.open = true; }")
    assert watched.run("document.documentElement.scrollWidth <= window.innerWidth")


def test_text_is_large_enough_to_read(watched: Watched) -> None:
    smallest = watched.run(
        "Math.min(...[...document.querySelectorAll('main *')]"
        ".filter(node => node.innerText && node.getClientRects().length)"
        ".map(node => parseFloat(getComputedStyle(node).fontSize)))"
    )
    assert smallest >= 11


def test_names_are_harmless(watched: Watched) -> None:
    assert watched.run("window.pwned") is None
    assert HOSTILE[1] in watched.page.locator("#table").inner_text()
    watched.page.locator("#place").press("End")
    watched.page.locator("#place").press("Home")
    assert HOSTILE[0] in watched.page.locator("#at").inner_text()
    assert watched.run("window.pwned") is None


def test_rows_are_sorted(watched: Watched, report: ReportData) -> None:
    watched.page.select_option("#sort", "3")
    npu = sorted((row for row in report.operators if row.on_npu), key=lambda row: -row.cycles)
    cpu = [row for row in report.operators if not row.on_npu]
    assert _rows(watched) == [str(row.number) for row in (*npu, *cpu)]
    watched.page.select_option("#sort", "0")
    assert _rows(watched) == [str(row.number) for row in report.operators]


def test_heads_sort_both_ways_with_the_keyboard(browser: Browser, address: str) -> None:
    watched = Watched(browser, address, WIDTHS[0])
    head = watched.page.locator("#table thead th").nth(3)
    head.locator("button").press("Enter")
    down = _rows(watched)
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    on_npu = len(down) - 1
    assert _rows(watched) == [*down[:on_npu][::-1], down[-1]]
    assert watched.run("document.querySelectorAll('#table [aria-sort]').length") == 1
    watched.page.close()


def test_rows_are_found(watched: Watched, report: ReportData) -> None:
    watched.page.fill("#find", "SoftMax")
    assert _rows(watched) == ["4", "6"]
    assert watched.page.locator("#count").inner_text() == f"2 of {len(report.operators)}"
    watched.page.select_option("#show", "cpu")
    assert _rows(watched) == ["4"]
    watched.page.fill("#find", "")
    watched.page.select_option("#show", "cascade")
    assert _rows(watched) == ["1", "2", "3"]
    watched.page.fill("#find", "no such operator")
    assert _rows(watched) == []
    assert watched.page.locator("#count").inner_text().startswith("0 of ")


def test_the_picture_follows_the_slider_and_the_pointer(
    watched: Watched, report: ReportData
) -> None:
    shown = watched.page.locator("#at")
    chart = report.memory
    assert chart.moments[chart.peak].label in shown.inner_text()
    watched.page.locator("#place").press("End")
    assert chart.moments[-1].label in shown.inner_text()
    plot = watched.page.locator(".plot")
    box = plot.bounding_box()
    assert box is not None
    plot.click(position={"x": 2, "y": box["height"] / 2})
    assert chart.moments[0].label in shown.inner_text()
    watched.page.click("#peak")
    assert chart.moments[chart.peak].label in shown.inner_text()


def test_pictures_of_the_documentation_can_be_taken_anew(
    browser: Browser, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screenshots, "PICTURES", tmp_path)
    report = Path(address.removeprefix("file://"))
    screenshots.take_wide(browser, report)
    screenshots.take_narrow(browser, report)
    for name in ("wide.png", "narrow.png"):
        now, kept = (folder / name for folder in (tmp_path, REPOSITORY / "docs" / "report"))
        assert _width(now) == _width(kept)


def _width(picture: Path) -> int:
    """Return the width that the head of a PNG file states."""
    return int.from_bytes(picture.read_bytes()[16:20], "big")


def test_the_page_is_complete_without_scripts(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#at li").count() > 0
    assert page.locator("#table tbody tr").count() == 6
    context.close()
