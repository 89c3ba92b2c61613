"""The README and docs/ say what is true: commands run, shown output comes out, nothing is missing.

Commands are read from fenced ``console`` blocks: a line that starts with ``$`` and the lines of
output below it. In these, ``…`` alone stands for any lines, and within a line for any text. An
example whose output begins with ``tvm-ethosu:`` is one of a refusal.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend import demo
from tvm_ethosu.backend.check import Comparison
from tvm_ethosu.backend.cli import cli, main
from tvm_ethosu.backend.session import Session
from tvm_ethosu.partition.operator_docs import operators_markdown
from tvm_ethosu.scheduler.errors import InternalError, UserError

NETWORKS = Path(".cache/networks")
README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = (README, *sorted(DOCS.glob("*.md")))
ANY_LINES = "…"
FOLDERS = ("backend", "partition", "scheduler")


@dataclass(frozen=True)
class Example:
    """A command and what a page shows of its output."""

    page: str
    command: str
    output: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)

    @property
    def is_refusal(self) -> bool:
        return bool(self.output) and self.output[0].startswith("tvm-ethosu: ")

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def _examples(page: Path) -> Iterator[Example]:
    for block in _blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.replace("\\\n", " ").rstrip("\n").split("\n")
            yield Example(page.name, command, tuple(output))


EXAMPLES = [example for page in PAGES for example in _examples(page)]
OURS = [example for example in EXAMPLES if example.words[0] == "tvm-ethosu"]
REFUSALS = [example for example in OURS if example.is_refusal]
SUCCESSES = [example for example in OURS if not example.is_refusal]


# --- commands -----------------------------------------------------------------------------------


def _small_network() -> bytes:
    """Return a network with as many inputs of the same shape as the README's."""
    net = NetBuilder("int8", seed=7)
    x = net.conv2d(net.input((1, 32, 32, 3)), filters=8, stride=(2, 2), activation="RELU")
    net.output(net.softmax(net.dense(net.max_pool(x), units=10)))
    return net.build()


def _prepare(folder: Path, name: str, data: bytes) -> None:
    (folder / NETWORKS).mkdir(parents=True, exist_ok=True)
    (folder / NETWORKS / name).write_bytes(data)


def _compile_with_vela(words: list[str]) -> None:
    command = [sys.executable, "-m", "ethosu.vela", *words[1:]]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, in which the pages' paths are made up as needed."""
    monkeypatch.chdir(tmp_path)
    image = np.zeros((1, 32, 32, 3), np.int8)
    np.save(tmp_path / "image.npy", image)
    np.savez(tmp_path / "inputs.npz", input_1_int8=image)
    return tmp_path


def _make(example: Example) -> None:
    """Write the project that the page shows, and build it."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed, which builds the page's project")
    assert main(example.words[1:]) == 0
    folder = example.words[example.words.index("-o") + 1]
    subprocess.run(["make", "-s", "-C", folder], check=True, capture_output=True, timeout=120)


def _projects(example: Example) -> list[Example]:
    """Return the command of the same page that wrote the project which the example runs."""
    elf = next((word for word in example.words if word.endswith(".elf")), None)
    if elf is None:
        return []
    written = (e for e in EXAMPLES if e.page == example.page and "firmware" in e.words)
    return [e for e in written if e.words[e.words.index("-o") + 1] == elf.split("/")[0]]


def _what_vela_made(example: Example) -> list[Example]:
    """Return the call of Vela on the same page whose result the example reads, if it does."""
    reads_it = any(word.endswith("_vela.tflite") for word in example.words)
    calls = (e for e in EXAMPLES if e.page == example.page and e.words[0] == "vela")
    return list(calls) if reads_it else []


def _do(example: Example) -> None:
    """Do what comes before the example in question."""
    if example.words[0] == "vela":
        _compile_with_vela(example.words)
    else:
        _make(example)


@pytest.mark.parametrize("example", SUCCESSES, ids=str)
def test_every_command_that_is_shown_runs(example: Example, elsewhere: Path) -> None:
    needed = [*_what_vela_made(example), *_projects(example), example]
    for word in {word for each in needed for word in each.words}:
        if word.startswith(str(NETWORKS)):
            _prepare(elsewhere, Path(word).name, _small_network())
    for call in needed[:-1]:
        _do(call)
    assert main(example.words[1:]) == 0


def _commands() -> dict[str, click.Command]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    commands = {name: command for name, command in found.items() if command is not None}
    return {
        full_name: command
        for name, group in commands.items()
        for full_name, command in _members(name, group).items()
    }


def _members(name: str, command: click.Command) -> dict[str, click.Command]:
    """Return the commands of a group by their names of two words, any other command as it is."""
    if not isinstance(command, click.Group):
        return {name: command}
    return {f"{name} {inner}": each for inner, each in command.commands.items()}


def _command_of(example: Example) -> str:
    names = sorted(_commands(), key=len, reverse=True)
    return next(n for n in names if example.words[1 : 1 + len(n.split())] == n.split())


def test_there_are_examples_of_every_command() -> None:
    assert {_command_of(example) for example in OURS} == _commands().keys()
    assert REFUSALS


# --- output -------------------------------------------------------------------------------------


def _cached(example: Example) -> list[Path]:
    """Return the networks that an example reads; skip the test where one was not fetched yet."""
    paths = [REPOSITORY / word for word in example.words if word.startswith(str(NETWORKS))]
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        pytest.skip(f"{missing[0]} was not fetched: make demo")
    return paths


def _pattern(line: str) -> re.Pattern[str]:
    """Return what a shown line stands for; times at its end may be any."""
    text = re.sub(r"\b\d+\.\d( s)?$", "…", line.rstrip())
    return re.compile(".*".join(map(re.escape, text.split("…"))))


def _assert_shown(shown: list[str], actual: list[str]) -> None:
    """Check that the lines come in this order: one after the other, save where ``…`` stands."""
    at = 0
    may_skip = False
    for line in shown:
        if line == ANY_LINES:
            may_skip = True
            continue
        pattern = _pattern(line)
        found = (i for i in range(at, len(actual)) if pattern.fullmatch(actual[i].rstrip()))
        place = next(found, None)
        assert place is not None, f"{line!r} is not in the output:\n" + "\n".join(actual[at:])
        assert may_skip or place == at, f"expected {line!r}, got {actual[at]!r}"
        at = place + 1
        may_skip = False
    assert may_skip or at == len(actual), f"not shown: {actual[at:]}"


@pytest.mark.parametrize("example", [e for e in OURS if e.output], ids=str)
def test_output_that_is_shown_is_what_comes_out(
    example: Example, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = [*_what_vela_made(example), *_projects(example), example]
    for path in (path for each in needed for path in _cached(each)):
        _prepare(elsewhere, path.name, path.read_bytes())
    for call in needed[:-1]:
        _do(call)
    capsys.readouterr()
    assert main(example.words[1:]) == (2 if example.is_refusal else 0)
    captured = capsys.readouterr()
    actual = (captured.err if example.is_refusal else captured.out).splitlines()
    _assert_shown(list(example.output), actual)


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [
        (["a", "b", "c"], True),
        (["a", "…", "c"], True),
        (["…", "b", "…"], True),
        (["…", "b…", "c"], True),
        (["a", "b"], False),
        (["a", "c"], False),
        (["b", "c"], False),
        (["…", "d"], False),
        (["a", "c…", "c"], False),
    ],
)
def test_the_comparison_itself_is_strict(shown: list[str], is_right: bool) -> None:
    if is_right:
        _assert_shown(shown, ["a", "b", "c"])
    else:
        with pytest.raises(AssertionError):
            _assert_shown(shown, ["a", "b", "c"])


@pytest.mark.slow
def test_the_commands_of_tvmc_give_what_is_shown(elsewhere: Path) -> None:
    """All of a page one after the other: the second runs what the first has compiled."""
    examples = [e for e in EXAMPLES if e.words[0] == "tvmc"]
    assert len(examples) > 3
    for example in examples:
        for path in _cached(example):
            _prepare(elsewhere, path.name, path.read_bytes())
        done = subprocess.run(
            [sys.executable, "-m", "tvm.driver.tvmc", *example.words[1:]],
            cwd=elsewhere, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        is_refusal = bool(example.output) and example.output[0].startswith("Error: ")
        assert done.returncode == (4 if is_refusal else 0), done.stderr
        _assert_shown(list(example.output), (done.stdout + done.stderr).splitlines())


def test_every_command_that_is_shown_is_run_by_a_test() -> None:
    assert {e.words[0] for e in EXAMPLES} == {"make", "tvm-ethosu", "tvmc", "vela"}


# Commands in indented lines, which no test runs as they stand, and why.
NOT_RUN = {
    "pip install -e '.[relay,test]'": "what make does, in whose environment the tests are",
    "source .venv/bin/activate": "changes the reader's shell",
    "tvm-ethosu COMMAND [OPTIONS] FILE": "a form to fill in",
    "tvm-ethosu sweep NETWORK… --accelerators ethos-u55-128,ethos-u55-256 --sram 32K:1M "
    "-o sweep.csv --plot sweep.svg": "a form to fill in; sweep.md has one that is run",
    "python -m tvm_ethosu.backend.bench [OPTIONS] [MODELS]": "a form to fill in",
    'make bench BENCH="--accelerators ethos-u55-128 model.tflite" WORKERS=4': "takes an hour",
    "python -m tvm_ethosu.partition.operator_docs > docs/operators.md": "writes into the tree; a "
    "test compares what it would write",
    "pytest -s tests/backend/sim/test_cycles.py -k python_cores": "a slow test itself",
    'python -m pytest -m "not slow"': "the tests themselves",
}
PROGRAMS = "tvm-ethosu|tvmc|vela|make|pip|python|pytest|source|git|export|arm-none-eabi-gcc"


def test_commands_in_indented_lines_are_few_and_each_has_its_reason() -> None:
    texts = (re.sub(r"^```.*?^```$", "", p.read_text(), flags=re.M | re.S) for p in PAGES)
    found = {c for text in texts for c in re.findall(rf"^    ((?:{PROGRAMS})\b.*)$", text, re.M)}
    assert found == NOT_RUN.keys()


def test_the_pages_are_built_without_a_warning(tmp_path: Path) -> None:
    """Strict: a page left out of the site, a dead link or a dead anchor is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").is_file()


# --- the demo -----------------------------------------------------------------------------------


def test_the_demo_shows_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (e for e in EXAMPLES if e.page == "README.md" and e.command == "make demo")
    _cached(Example("", str(NETWORKS / "image_classification.tflite"), ()))
    assert demo.main() == 0
    heading = next(i for i, line in enumerate(example.output) if "bytes of SRAM for" in line)
    lines = capsys.readouterr().out.strip("\n").splitlines()
    _assert_shown(list(example.output[heading:]), lines)


def test_the_demo_ends_with_tables_and_a_verdict(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _prepare(elsewhere, "small.tflite", _small_network())
    monkeypatch.setattr(demo, "demo_network", lambda: elsewhere / NETWORKS / "small.tflite")
    assert demo.main() == 0
    out, err = capsys.readouterr()
    for heading in ("why not on the NPU", "whole arena", "MACs", "differing", "seconds"):
        assert heading in out
    assert out.splitlines()[-1].startswith("equal: all 200 values")
    assert "run 20 random inputs" in err


def _session(differing: int) -> Session:
    return Session((), (), (Comparison("t", True, 10, differing, differing),))


@pytest.mark.parametrize(
    ("session", "text"),
    [
        (_session(0), "equal: all 10 values"),
        (_session(3), "DIFFERENT: 3 of 10 values"),
        (Session((), (), (Comparison("t", False, 10, 0, 0),)), "NOTHING COMPARED"),
    ],
)
def test_the_verdict_says_what_was_found(session: Session, text: str) -> None:
    assert demo.verdict(session).startswith(text)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UserError("cannot fetch the package"), 2, "demo: cannot fetch the package\n"),
        (InternalError("buffers overlap"), 1, "demo: buffers overlap (our fault: please report"),
        (KeyboardInterrupt(), 130, "demo: interrupted\n"),
    ],
)
def test_the_demo_fails_with_one_sentence(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing() -> Path:
        raise error

    monkeypatch.setattr(demo, "demo_network", failing)
    assert demo.main() == code
    assert text in capsys.readouterr().err


# --- Python in the README -----------------------------------------------------------------------


def test_the_readmes_python_runs(elsewhere: Path) -> None:
    """All blocks one after the other, as a reader would type them, in a process of their own."""
    cached = REPOSITORY / NETWORKS / "image_classification.tflite"
    if not cached.exists():
        pytest.skip("the README's network was not fetched: make demo")
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed, which export_library needs")
    _prepare(elsewhere, cached.name, cached.read_bytes())
    program = "\n".join(_blocks(README, "python"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=elsewhere
    )
    assert done.returncode == 0, done.stderr
    *sources, graph, aot = done.stdout.splitlines()
    assert len(sources) == 3
    assert graph == aot


# --- completeness -------------------------------------------------------------------------------


def test_the_page_of_operators_is_made_from_the_table() -> None:
    again = "python -m tvm_ethosu.partition.operator_docs > docs/operators.md"
    assert (DOCS / "operators.md").read_text() == operators_markdown(), again


def _documented_options() -> dict[str, set[str]]:
    """Return the options of each command by the tables of docs/cli.md."""
    section = (DOCS / "cli.md").read_text().split("\n## Options\n")[1].split("\n## ")[0]
    found: dict[str, set[str]] = {}
    for table in re.findall(r"(?:^\|.*\|\n)+", f"{section}\n", re.MULTILINE):
        rows = [row.strip("|").split("|") for row in table.splitlines()]
        names = [cell.strip() for cell in rows[0][1:-1]]
        found |= {name: set() for name in names}
        for option, *cells, _meaning in rows[2:]:
            for name, cell in zip(names, cells, strict=True):
                if cell.strip():
                    found[name] |= set(re.findall(r"`(-[^`]+)`", option))
    return found


def _actual_options(command: click.Command) -> set[str]:
    options = (param for param in command.params if isinstance(param, click.Option))
    names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    return names | set(cli.context_settings["help_option_names"])


def test_every_option_is_documented_and_every_documented_one_is_there() -> None:
    actual = {name: _actual_options(command) for name, command in _commands().items()}
    assert _documented_options() == actual


def _sources(folder: str) -> set[str]:
    root = REPOSITORY / folder
    names = {path.relative_to(root).as_posix() for path in root.rglob("*.py")}
    own = {n for n in names if n == "_root/__init__.py" or not n.endswith("__init__.py")}
    return {name for name in own if not name.startswith("sim/")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_architecture_names_every_source_file_and_no_other(folder: str) -> None:
    text = (DOCS / "architecture.md").read_text()
    table = text.split(f"\n### {folder}\n")[1].split("\n##")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w/]+\.py)`", row.split("|")[1])}
    assert named == _sources(folder)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (page.parent / link).exists()]


def test_the_readme_lists_every_page() -> None:
    linked = set(re.findall(r"\(docs/([\w-]+\.md)\)", README.read_text()))
    assert linked == {page.name for page in DOCS.glob("*.md")}


# Paths of the machine that a page was written on, addresses, and where packages came from there.
FORBIDDEN = re.compile(r"/(work|root|home|tmp|opt)/|localhost|://|index-url")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_tells_of_the_machine_it_was_written_on(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert not [line for line in lines if FORBIDDEN.search(line)]
