"""The console script: says what to install where a part of it is missing."""

from __future__ import annotations

import sys

_NEEDED = ("tvm", "tflite")


def main() -> None:
    """Run the command line and exit."""
    try:
        from tvm_ethosu.backend.cli import main as run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(_explain(str(error.name)))
    sys.exit(run())


def _explain(name: str) -> int:
    print(
        f"tvm-ethosu: the package '{name}' is not installed; pip install 'tvm-ethosu[relay]'",
        file=sys.stderr,
    )
    return 2
