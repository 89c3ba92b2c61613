"""docs/operators.md from the table of operators; run as a module to print it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tvm_ethosu.partition.relay.break_down import step_of
from tvm_ethosu.partition.rules import RULES, Rule

_HEAD = """# Operators that run on the NPU

Made from `partition/rules.py` by `make docs`; don't edit. Types are int8, uint8 and int16 where
no limit says less. What breaks a limit is broken down where "else it is" follows, if the NPU takes
all parts; otherwise it stays on the CPU, and `tvm-ethosu explain MODEL.tflite` says which limit
with which value. Numbers are those of TFLite Micro's reference kernels, bit by
bit; the tests that prove it are in `tests/equivalence`. Where it has no kernel (uint8, quantized
EXP, LOG and GELU, RESIZE_BILINEAR of int16) they follow TFLite's reference kernels.

| TFLite operator | Relay (as TVM imports it) | realised as |
|---|---|---|
"""

_COMPARISON = """
## Beside other compilers

What TVM's former backend for this NPU took, by the names of its patterns, and what ethos-u-vela
takes (its report of supported operators, U55 and U65), beside this project.

| TFLite operator | former backend | Vela | here |
|---|---|---|---|
"""

# The former backend's patterns by TFLite's name of what they are.
FORMER_PATTERNS = {
    "ABS": "abs",
    "ADD": "add",
    "AVERAGE_POOL_2D": "avgpool2d",
    "CONCATENATION": "concat",
    "CONV_2D": "qnn_conv2d",
    "DEPTHWISE_CONV_2D": "depthwise_conv2d",
    "EXPAND_DIMS": "expand_dims",
    "FULLY_CONNECTED": "fully_connected",
    "FULLY_CONNECTED with calculated weights": "matmul",
    "HARD_SWISH": "hard_swish",
    "LEAKY_RELU": "leaky_relu",
    "LOGISTIC": "sigmoid",
    "MAXIMUM": "max",
    "MAX_POOL_2D": "maxpool2d",
    "MEAN": "mean",
    "MINIMUM": "min",
    "MUL": "mul",
    "PAD": "pad2d, channel-pad",
    "QUANTIZE": "requantize",
    "RESHAPE": "reshape",
    "RESIZE_BILINEAR": "resize2d",
    "RESIZE_NEAREST_NEIGHBOR": "resize2d",
    "SOFTMAX": "softmax",
    "SPLIT": "split",
    "SQUEEZE": "squeeze",
    "STRIDED_SLICE": "strided_slice",
    "SUB": "sub",
    "SUM": "sum",
    "TANH": "tanh",
    "TRANSPOSE_CONV": "qnn_conv2d_transpose",
    "(a shift of int32)": "shl",
    "(a product in fixed point)": "matmul_fixed_point",
    "(tanh in fixed point)": "tanh_fixed_point",
}

VELA_OPERATORS = tuple(
    """
    ABS ADD ARG_MAX AVERAGE_POOL_2D BATCH_MATMUL CONCATENATION CONV_2D DEPTHWISE_CONV_2D ELU EXP
    EXPAND_DIMS FULLY_CONNECTED GELU HARD_SWISH LEAKY_RELU LOG LOGISTIC MAXIMUM MAX_POOL_2D MEAN
    MINIMUM MIRROR_PAD MUL NEG PACK PAD PADV2 PRELU QUANTIZE REDUCE_MAX REDUCE_MIN RELU RELU6
    RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 RSQRT SLICE
    SOFTMAX SPLIT SPLIT_V SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM TANH TILE TRANSPOSE
    TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK
    """.split()  # noqa: SIM905 (readable in columns)
)

_NO_TFLITE_FORM = "not in networks: TVM's TFLite importer writes no such calls"

# Why an operator of these lists has no row in the table. A row that is there goes first.
ABSENT = {
    "(a shift of int32)": _NO_TFLITE_FORM,
    "(a product in fixed point)": _NO_TFLITE_FORM,
    "(tanh in fixed point)": _NO_TFLITE_FORM,
    "RELU_0_TO_1": "not imported: TVM's TFLite importer has no such operator",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "not imported: TVM's TFLite importer refuses quantized ones",
}


def table_names() -> frozenset[str]:
    """Return the TFLite operators that the table has rows for."""
    return frozenset(name for rule in RULES for name in rule.tflite.split(", "))


def _comparison() -> Iterator[str]:
    yield _COMPARISON
    ours = table_names()
    for name in sorted({*FORMER_PATTERNS, *VELA_OPERATORS}):
        former = FORMER_PATTERNS.get(name, "")
        by_vela = "yes" if name in VELA_OPERATORS else ""
        yield f"| {name} | {former} | {by_vela} | {'yes' if name in ours else ABSENT[name]} |\n"
    both = {*FORMER_PATTERNS, *VELA_OPERATORS}
    more = sorted(name for name in ours - both if " with " not in name)
    yield f"\nHere only: {', '.join(more)}.\n"


def _limit(text: str | None) -> str:
    first_line = (text or "").strip().splitlines()[0]
    return first_line.rstrip(".")


def _row(rule: Rule) -> str:
    calls = ", ".join(f"`{call}`" for call in rule.calls)
    return f"| {rule.tflite} | {calls} | {rule.realised_as} |\n"


def _section(rule: Rule) -> Iterator[str]:
    yield f"\n## {rule.tflite}\n\n"
    for constraint in rule.constraints:
        step = step_of(rule, constraint)
        else_ = (
            "" if step is None else f"; else it is {_limit(step.__doc__).removeprefix('Return ')}"
        )
        yield f"- {_limit(constraint.__doc__)}{else_}.\n"


def operators_markdown() -> str:
    """Return the page: a table of all operators, then the limits of each."""
    rows = "".join(_row(rule) for rule in RULES)
    sections = "".join(line for rule in RULES for line in _section(rule))
    return f"{_HEAD}{rows}{''.join(_comparison())}{sections}"


if __name__ == "__main__":
    sys.stdout.write(operators_markdown())
