"""The process in which TFLite Micro runs: ``python -m tvm_ethosu.backend.tflm_child``.

Its C++ code can end a process, on damaged files and on some that are not. Requests and replies are
pickled tuples over stdin and stdout; ``tvm_ethosu.backend.tflm`` is the other end.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


class _Networks:
    """The prepared networks by their number; each request is one method."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._prepared: dict[int, tuple[Any, int]] = {}

    def prepare(self, key: int, model: bytes, outputs: int, arena_bytes: int) -> None:
        """Prepare a network of so many outputs."""
        interpreter = self._runtime.Interpreter.from_bytes(model, arena_size=arena_bytes)
        self._prepared[key] = interpreter, outputs

    def run(self, key: int, inputs: Sequence[Any]) -> list[Any]:
        """Return copies of the outputs; each run starts from the network's first state."""
        interpreter, outputs = self._prepared[key]
        interpreter.reset()
        for index, array in enumerate(inputs):
            interpreter.set_input(np.asarray(array, order="C"), index)  # a scalar stays one
        interpreter.invoke()
        return [np.array(interpreter.get_output(index)) for index in range(outputs)]

    def drop(self, keys: Sequence[int]) -> None:
        """Forget networks."""
        for key in keys:
            self._prepared.pop(key, None)


def _reply(networks: _Networks, request: tuple[Any, ...]) -> tuple[bool, Any]:
    """Return whether a request went well, and its result or the text of the error."""
    try:
        return True, getattr(networks, request[0])(*request[1:])
    except Exception as error:
        # Whatever it is, it is the network's: the other end makes an error of it.
        return False, f"{error}" or type(error).__name__


def main() -> None:
    """Say whether TFLite Micro is there, then answer requests until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what C++ code prints is no reply

    def send(reply: tuple[bool, Any]) -> None:
        pickle.dump(reply, replies)
        replies.flush()

    try:
        from tflite_micro.python.tflite_micro import runtime
    except ImportError as error:
        send((False, str(error)))
        return
    send((True, None))
    networks = _Networks(runtime)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        send(_reply(networks, request))


if __name__ == "__main__":
    main()
