"""TFLite Micro's interpreter in a process of its own: its crashes are errors like others.

One process serves all networks of this one, each prepared once. When it dies a new one is started
for whatever comes next.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import IO, Any, Final, TypeAlias

import numpy as np

from tvm_ethosu.scheduler.errors import UserError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_FIRST_ARENA_BYTES: Final = 1 << 20
_LAST_ARENA_BYTES: Final = 1 << 30
_SHOWN_CHARACTERS: Final = 300
_NUMBERS = itertools.count()


class TflmError(Exception):
    """TFLite Micro refused a network or an input; the message is its own."""


class TflmNetwork:
    """A network in TFLite Micro's interpreter, prepared once, to be run on many inputs."""

    def __init__(self, model: bytes, outputs: int) -> None:
        """Prepare a TFLite file with so many outputs.

        Raises:
            TflmError: TFLite Micro does not take it.
            UserError: TFLite Micro is not installed, or crashed on it.
        """
        self._model = model
        self._outputs = outputs
        self._arena_bytes = _FIRST_ARENA_BYTES
        self._number = next(_NUMBERS)
        self._worker = self._prepare()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs; each run starts from the network's first state.

        Raises:
            TflmError: an input does not fit, or an operator fails.
            UserError: TFLite Micro crashed.
        """
        if not self._worker.is_alive:
            self._worker = self._prepare()
        outputs: list[Array] = self._worker.ask("run", self._number, list(inputs))
        return outputs

    def _prepare(self) -> _Worker:
        """Prepare the network with an arena that is large enough; return where."""
        worker = _worker()
        while True:
            try:
                worker.ask("prepare", self._number, self._model, self._outputs, self._arena_bytes)
            except TflmError as error:
                if not _wants_more(str(error)) or self._arena_bytes >= _LAST_ARENA_BYTES:
                    raise
                self._arena_bytes *= 4
            else:
                weakref.finalize(self, worker.forgotten.append, self._number)
                return worker


def _wants_more(reason: str) -> bool:
    return "missing:" in reason or "allocate" in reason.lower()


class _Worker:
    """A process of ``tflm_child``, asked one thing at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forgotten: list[int] = []
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 as long as this
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tvm_ethosu.backend.tflm_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )
        try:
            is_there, _ = self._receive()
        except (EOFError, pickle.UnpicklingError):
            raise self._death("at its start") from None
        if not is_there:
            self.close()
            raise UserError(
                "the reference needs TFLite Micro, which is not installed: "
                "pip install 'tvm-ethosu[test]'"
            )

    @property
    def is_alive(self) -> bool:
        """Tell whether the process can be asked."""
        return self._process.poll() is None

    def ask(self, request: str, *arguments: Any) -> Any:
        """Send a request and return the answer. Raises TflmError, UserError when it crashes."""
        with self._lock:
            while self.forgotten:
                self._exchange(("drop", [self.forgotten.pop()]))
            start = self._printed_bytes()
            went_well, result = self._exchange((request, *arguments))
            if not went_well:
                raise TflmError(self._text_since(start) or result)
            return result

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                _close(pipe)
        self._process.wait()
        self._log.close()

    def _exchange(self, request: tuple[Any, ...]) -> tuple[bool, Any]:
        """Send a request and wait for the reply; a process that was interrupted has to end."""
        try:
            assert self._process.stdin is not None
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()
            return self._receive()
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            raise self._death("on the network") from None
        except BaseException:
            self._process.kill()
            raise

    def _receive(self) -> tuple[bool, Any]:
        assert self._process.stdout is not None
        went_well, result = pickle.load(self._process.stdout)
        return went_well, result

    def _death(self, when: str) -> UserError:
        """Return the error for a process that has ended without an answer."""
        code = self._process.wait()
        text = self._text_since(max(0, self._printed_bytes() - _SHOWN_CHARACTERS))
        self.close()
        why = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return UserError(f"TFLite Micro crashed {when} ({why}). {text}".rstrip())

    def _printed_bytes(self) -> int:
        return os.fstat(self._log.fileno()).st_size

    def _text_since(self, start: int) -> str:
        """Return what the process has printed since then, short."""
        text = os.pread(self._log.fileno(), 1 << 16, start).decode("utf-8", "replace")
        return " ".join(text.split())[:_SHOWN_CHARACTERS]


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:  # what was not sent yet goes nowhere: the process has ended
        return


_WORKERS: list[_Worker] = []


def _worker() -> _Worker:
    """Return the process that is running, or a new one."""
    if not _WORKERS or not _WORKERS[0].is_alive:
        _WORKERS[:] = [_Worker()]
    return _WORKERS[0]


@atexit.register
def close() -> None:
    """End the process, if there is one; the next network starts another."""
    while _WORKERS:
        worker = _WORKERS.pop()
        if worker.is_alive:
            worker.close()
