"""Sizes that keep the code readable, and frozen results; exceptions stand here with a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 700

# "file:name" -> why it may be longer.
LONG_FUNCTIONS: dict[str, str] = {}
# "file" -> why it may be longer.
LONG_FILES: dict[str, str] = {}
# "file:name" -> why it may be changed after it was made.
MUTABLE_DATACLASSES: dict[str, str] = {}

SOURCES = tuple(
    path
    for folder in ("backend", "partition", "scheduler")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
)


# Tests need not be small functions, but a newcomer must find the way in them as well.
TESTS = tuple(sorted((REPOSITORY / "tests").rglob("*.py")))


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def _nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def _dataclass_is_frozen(decorator: ast.expr) -> bool | None:
    """Return whether a decorator makes a frozen dataclass, or None when it makes none at all."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name != "dataclass":
        return None
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(
        word.arg == "frozen" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in keywords
    )


def _long_functions() -> dict[str, int]:
    return {
        f"{_name(path)}:{node.name}": lines
        for path in SOURCES
        for node in _nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := int(node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    }


def _long_files() -> dict[str, int]:
    lines = {
        _name(path): len(path.read_text(encoding="utf-8").splitlines())
        for path in (*SOURCES, *TESTS)
    }
    return {name: count for name, count in lines.items() if count > MAX_FILE_LINES}


def _mutable_dataclasses() -> list[str]:
    return [
        f"{_name(path)}:{node.name}"
        for path in SOURCES
        if not _name(path).startswith("backend/sim/")
        for node in _nodes(path)
        if isinstance(node, ast.ClassDef)
        if any(_dataclass_is_frozen(decorator) is False for decorator in node.decorator_list)
    ]


def test_functions_fit_on_a_screen() -> None:
    assert {n: c for n, c in _long_functions().items() if n not in LONG_FUNCTIONS} == {}


def test_files_have_one_subject() -> None:
    assert {name: c for name, c in _long_files().items() if name not in LONG_FILES} == {}


def test_dataclasses_are_frozen_outside_of_the_simulator() -> None:
    assert [name for name in _mutable_dataclasses() if name not in MUTABLE_DATACLASSES] == []


def test_no_exception_is_listed_in_vain() -> None:
    assert set(LONG_FUNCTIONS) <= set(_long_functions())
    assert set(LONG_FILES) <= set(_long_files())
    assert set(MUTABLE_DATACLASSES) <= set(_mutable_dataclasses())


@pytest.mark.parametrize(
    ("source", "frozen"),
    [
        ("@dataclass(frozen=True)", True),
        ("@dataclasses.dataclass(eq=False, frozen=True)", True),
        ("@dataclass", False),
        ("@dataclasses.dataclass(frozen=False)", False),
        ("@final", None),
    ],
)
def test_the_check_itself_tells_frozen_ones_apart(source: str, frozen: bool | None) -> None:
    (node,) = ast.parse(f"{source}\nclass Some: pass").body
    assert isinstance(node, ast.ClassDef)
    assert _dataclass_is_frozen(node.decorator_list[0]) is frozen
