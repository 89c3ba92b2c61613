"""Ctrl-C: remembered, because TVM's callbacks from C++ lose the exception that Python makes of it.

Imports nothing that takes time: the command listens before TVM is loaded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

EXIT_INTERRUPTED: Final = 130

_happened = threading.Event()
_held = threading.Event()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    if _happened.is_set() and not _held.is_set():
        # Whoever asks twice does not want to wait for the next check.
        os._exit(EXIT_INTERRUPTED)
    _happened.set()
    if not _held.is_set():
        raise KeyboardInterrupt


def _forget_lost(arguments: Any) -> None:
    """Say nothing of an interrupt that a callback from C++ lost; all else as Python does."""
    if not issubclass(arguments.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(arguments)


def listen() -> None:
    """Take over Ctrl-C for the rest of this process; called from the main thread."""
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _forget_lost


def ignore() -> None:
    """Let Ctrl-C do nothing more: all is done, and what it was worth is known."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def happened() -> bool:
    """Return whether Ctrl-C was pressed since ``listen``."""
    return _happened.is_set()


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed and the exception was lost on its way."""
    if _happened.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Put off Ctrl-C while files change places; it is raised afterwards.

    Where ``listen`` was not called, as in a program that uses this package, nothing is put off.
    """
    before = _happened.is_set()
    _held.set()
    try:
        yield
    finally:
        _held.clear()
    if not before:
        check()
