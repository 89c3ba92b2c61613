"""docs/errors.md: every sentence can be reached, and every refusal in the sources is on the page.

``error_ways`` says how each is reached; here that is done, with the real commands.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backend.error_ways.desk import Desk
from tests.backend.error_ways.networks import network, one_convolution
from tests.backend.error_ways.sections import SECTIONS
from tests.conftest import REPOSITORY
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.vela_files import VelaOptions, compile_with_vela

PAGE = (REPOSITORY / "docs" / "errors.md").read_text()
OF_TVM = "\nFour that come from TVM itself"
# A last line of ``machine run`` is no exception.
CLASSES = {"UserError", "Infeasible", "Unsupported", "TVMCException"}
CASES = [(section, sentence) for section, ways in SECTIONS.items() for sentence in ways]


def _sentences(section: str) -> list[str]:
    """Return the quoted sentences of one section of the page, without TVM's own."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0].split(OF_TVM)[0]
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    return [sentence for cell in cells for sentence in re.findall(r"`([^`]+)`", cell)]


def _pattern(sentence: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part.strip()) for part in sentence.split("…")), re.DOTALL)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_and_the_ways_to_its_sentences_name_the_same(section: str) -> None:
    assert _sentences(section) == list(SECTIONS[section])


def test_all_sections_with_sentences_have_ways() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert [title for title in titles if _sentences(title)] == list(SECTIONS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what Vela makes of a network, and with an NPU program of ours."""
    folder: Path = tmp_path_factory.mktemp("made")
    source = folder / "small.tflite"
    source.write_bytes(one_convolution())
    for raw in (False, True):
        compile_with_vela(source, folder, VelaOptions(Accelerator.U55_128), raw=raw)
    (folder / "model.tflite").write_bytes(network())
    assert main(["-q", "compile", str(folder / "model.tflite"), "-o", str(folder / "out")]) == 0
    return folder


# What this takes is seconds of other processes.
SLOW = {
    "a worker broke down (…); what is done is kept, …",
    "the reference needs TFLite Micro, which is not installed",
}


# TVM leaves files open, and in this process its command line meets our filters of warnings.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize(
    ("section", "sentence"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case[1] in SLOW)) for case in CASES],
)
def test_each_sentence_is_what_a_user_is_told(
    section: str,
    sentence: str,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(network())
    text = SECTIONS[section][sentence](Desk(tmp_path, made, monkeypatch, capfd.readouterr))
    assert _pattern(sentence).search(text), text


# --- completeness -------------------------------------------------------------------------------


def _text(node: ast.expr) -> str:
    """Return a message's text, with ``…`` for what is filled in."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(map(_text, values))
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
    return "…"


def _refusals() -> Iterator[tuple[str, str]]:
    """Yield place and text of each message that the sources can refuse with."""
    folders = [REPOSITORY / name for name in ("backend", "partition", "scheduler")]
    paths = (path for folder in folders for path in folder.rglob("*.py"))
    for path in sorted(paths):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in CLASSES:
                    yield f"{path.name}:{node.lineno}", _text(first)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"…+", text) if len(part.strip()) > 3]


def _is_listed(text: str) -> bool:
    return any(
        all(part in text for part in _parts(sentence))
        or all(part in sentence for part in _parts(text))
        for _, sentence in CASES
        if _parts(sentence)
    )


def test_every_refusal_in_the_sources_is_on_the_page() -> None:
    found = [(place, text) for place, text in _refusals() if _parts(text)]
    assert len(found) > 100
    assert not [f"{place}: {text}" for place, text in found if not _is_listed(text)]
