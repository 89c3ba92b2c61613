"""docs/operators.md from the table of operators; run as a module to print it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tvm_ethosu.partition.rules import RULES, Rule

_HEAD = """# Operators that run on the NPU

Made from `partition/rules.py` by `make docs`; don't edit. Types are int8, uint8 and int16 where
no limit says less. What breaks a limit stays on the CPU, and `tvm-ethosu explain MODEL.tflite`
says which limit with which value. Numbers are those of TFLite Micro's reference kernels, bit by
bit; the tests that prove it are in `tests/equivalence`. Where it has no kernel (uint8, quantized
EXP, LOG and GELU, RESIZE_BILINEAR of int16) they follow TFLite's reference kernels.

| TFLite operator | Relay (as TVM imports it) | realised as |
|---|---|---|
"""


def _limit(text: str | None) -> str:
    first_line = (text or "").strip().splitlines()[0]
    return first_line.rstrip(".")


def _row(rule: Rule) -> str:
    calls = ", ".join(f"`{call}`" for call in rule.calls)
    return f"| {rule.tflite} | {calls} | {rule.realised_as} |\n"


def _section(rule: Rule) -> Iterator[str]:
    yield f"\n## {rule.tflite}\n\n"
    for constraint in rule.constraints:
        yield f"- {_limit(constraint.__doc__)}.\n"


def operators_markdown() -> str:
    """Return the page: a table of all operators, then the limits of each."""
    rows = "".join(_row(rule) for rule in RULES)
    sections = "".join(line for rule in RULES for line in _section(rule))
    return f"{_HEAD}{rows}{sections}"


if __name__ == "__main__":
    sys.stdout.write(operators_markdown())
