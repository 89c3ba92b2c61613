"""What can go wrong, as one sentence and an exit code: the one place for all commands."""

from __future__ import annotations

import sys
from typing import Final

import click

from tvm_ethosu import interrupts
from tvm_ethosu.scheduler.errors import EthosUError, InternalError

EXIT_OUR_FAULT: Final = 1
EXIT_USERS_INPUT: Final = 2
EXIT_INTERRUPTED: Final = interrupts.EXIT_INTERRUPTED
# 128 and the number of SIGPIPE, as of any command whose reader is gone.
EXIT_NO_READER: Final = 141


def explained(error: BaseException) -> tuple[str, int] | None:
    """Return the sentence and exit code of an error that was foreseen, or None for any other."""
    if interrupts.happened():
        # TVM may have made another error of it.
        return "interrupted", EXIT_INTERRUPTED
    text, code = "", EXIT_USERS_INPUT
    match error:
        case click.exceptions.Abort() | KeyboardInterrupt():
            text, code = "interrupted", EXIT_INTERRUPTED
        case click.ClickException():
            text = error.format_message() + _hint(error)
        case EthosUError():
            text = sentence(error)
            code = EXIT_OUR_FAULT if isinstance(error, InternalError) else EXIT_USERS_INPUT
        case BrokenPipeError():
            text, code = "nobody reads the output any more", EXIT_NO_READER
        case OSError(filename=str(path), strerror=str(reason)):
            text = f"{path}: {reason}"
        case MemoryError():
            text = "this machine has too little memory for it"
    return (text, code) if text else None


def sentence(error: EthosUError) -> str:
    """Return what is said of one of our errors, whoever says it."""
    return (
        f"{error} (our fault: please report it)" if isinstance(error, InternalError) else str(error)
    )


def told(error: BaseException, who: str, more_if_interrupted: str = "") -> int:
    """Print the sentence of an error that was foreseen and return its exit code.

    Raises:
        BaseException: the error itself, where nobody foresaw it: whoever measures wants to see it.
    """
    explanation = explained(error)
    if explanation is None:
        raise error
    text, code = explanation
    more = more_if_interrupted if code == EXIT_INTERRUPTED else ""
    print(f"{who}: {text.removeprefix(f'{who}: ')}{more}", file=sys.stderr)
    return code


def _hint(error: click.ClickException) -> str:
    """Return what to do where --json has taken the network for its own file."""
    if not isinstance(error, click.MissingParameter) or error.ctx is None:
        return ""
    taken = error.ctx.params.get("json_path")
    return "" if taken is None else f" (--json took '{taken}': write --json last, or --json=-)"


def unexpected(error: BaseException) -> tuple[str, int]:
    """Return the sentence and exit code of an error that nobody foresaw."""
    lines = str(error).strip().splitlines() or [""]
    text = (
        f"unexpected error, our fault ({type(error).__name__}: {lines[-1]}); please report it with "
        "the output of tvm-ethosu --verbose …"
    )
    return text, EXIT_OUR_FAULT
