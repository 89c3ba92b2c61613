"""Ctrl-C: remembered, because TVM's callbacks from C++ lose the exception that Python makes of it.

While TVM is at work the process ends without one: TVM's C++ does not always survive it.

Imports nothing that takes time: the command listens before TVM is loaded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

EXIT_INTERRUPTED: Final = 130

_happened = threading.Event()
_held = threading.Event()
_unfinished: list[str] = []
_TVM: Final = f"{os.sep}tvm{os.sep}"


def _interrupt(_number: int, frame: FrameType | None) -> None:
    if _happened.is_set() and not _held.is_set():
        # Whoever asks twice does not want to wait for the next check.
        os._exit(EXIT_INTERRUPTED)
    _happened.set()
    if _held.is_set():
        return
    if _is_in_tvm(frame):
        _leave()
    raise KeyboardInterrupt


def _is_in_tvm(frame: FrameType | None) -> bool:
    """Return whether TVM is at work: an exception on its way through its C++ may end in a crash."""
    while frame is not None:
        if _TVM in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _leave() -> None:
    """End this process at once, as the command ends when it is interrupted."""
    for path in _unfinished:
        shutil.rmtree(path, ignore_errors=True)
    show_cursor = "\x1b[?25h\n" if os.isatty(2) else ""
    os.write(2, f"{show_cursor}tvm-ethosu: interrupted\n".encode())
    os._exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def unfinished(folder: str) -> Iterator[None]:
    """Name a folder that must not stay behind if this process ends inside of the block."""
    _unfinished.append(folder)
    try:
        yield
    finally:
        _unfinished.remove(folder)


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
