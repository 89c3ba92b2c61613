"""The console script: says what to install where a part of it is missing."""

from __future__ import annotations

import sys

from tvm_ethosu import interrupts

_NEEDED = ("tvm", "tflite")
_EXIT_USERS_INPUT = 2


def main() -> None:
    """Run the command line and exit."""
    interrupts.listen()
    code = _run()
    interrupts.ignore()
    sys.exit(code)


def _run() -> int:
    try:
        from tvm_ethosu.backend.cli import main as run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        return _explain(str(error.name))
    except BaseException:
        # Loading takes a second, and an interrupted import may end in any exception.
        if not interrupts.happened():
            raise
        print("tvm-ethosu: interrupted", file=sys.stderr)
        return interrupts.EXIT_INTERRUPTED
    return run()


def _explain(name: str) -> int:
    print(
        f"tvm-ethosu: the package '{name}' is not installed; pip install 'tvm-ethosu[relay]'",
        file=sys.stderr,
    )
    return _EXIT_USERS_INPUT
