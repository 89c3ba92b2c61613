"""The pictures of docs/report.md, made anew: ``python -m tests.backend.html.screenshots``.

They show the page that the command there writes, at the widths that the tests use. It needs what
``make test-browser`` installs, and the networks that ``make demo`` leaves.
"""

from __future__ import annotations

import base64
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import REPOSITORY
from tvm_ethosu.backend.cli import main as tvm_ethosu

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGE = REPOSITORY / "docs" / "report.md"
PICTURES = REPOSITORY / "docs" / "report"


WIDE, NARROW = (1280, 2995), (390, 844)
# Pictures are smaller than a screen, and what a phone shows stands side by side.
WIDE_SCALE, NARROW_SCALE = 0.75, 0.8
PARTS = ("summary", "memory", "operators")
BESIDE = "<body style='margin:0;display:flex;gap:16px;background:#c4c9ce'>{}</body>"
IMAGE = "<img style='width:{}px' src='data:image/png;base64,{}'>"


def command() -> list[str]:
    """Return the words of the page's command behind ``tvm-ethosu``."""
    line = next(text for text in PAGE.read_text().splitlines() if text.startswith("$ tvm-ethosu"))
    return shlex.split(line)[2:]


def _page(browser: Browser, size: tuple[int, int], scale: float = 1.0) -> Page:
    viewport: Any = {"width": size[0], "height": size[1]}
    return browser.new_page(viewport=viewport, device_scale_factor=scale)


def take_wide(browser: Browser, report: Path) -> None:
    """Take the page as a wide screen shows it."""
    page = _page(browser, WIDE, WIDE_SCALE)
    page.goto(report.as_uri())
    page.screenshot(path=PICTURES / "wide.png")


def take_narrow(browser: Browser, report: Path) -> None:
    """Take what a phone shows at the head of each part, and put the pictures side by side."""
    phone = _page(browser, NARROW, NARROW_SCALE)
    phone.goto(report.as_uri())
    images = []
    for part in PARTS:
        top = phone.evaluate(f"document.getElementById('{part}').getBoundingClientRect().top")
        phone.evaluate(f"window.scrollBy(0, {top} - 16)" if part != PARTS[0] else "0")
        images.append(base64.b64encode(phone.screenshot()).decode())
    width, height = (round(NARROW_SCALE * side) for side in NARROW)
    beside = _page(browser, (len(PARTS) * (width + 16) - 16, height))
    beside.set_content(BESIDE.format("".join(IMAGE.format(width, each) for each in images)))
    beside.screenshot(path=PICTURES / "narrow.png")


def take(report: Path, chromium: str) -> None:
    """Write the pictures of a report's page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take_wide(browser, report)
        take_narrow(browser, report)
        browser.close()


def main() -> int:
    """Compile the page's network and write its pictures; return the exit code."""
    from tests.backend.html.test_browser import find_chromium

    chromium = find_chromium()
    if chromium is None:
        print("screenshots: Chromium or playwright is missing: make test-browser", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        words = command()
        words[words.index("-o") + 1] = str(report)
        words[1] = str(REPOSITORY / words[1])
        code = tvm_ethosu(words)
        if code == 0:
            take(report, chromium)
    return code


if __name__ == "__main__":
    sys.exit(main())
