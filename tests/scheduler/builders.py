"""Small NPU graphs by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_ethosu.scheduler.ir import (
    Add,
    Clamp,
    Constant,
    Conv2D,
    DType,
    Kernel,
    NpuGraph,
    Operand,
    Padding,
    Pool,
    PoolKind,
    Quant,
    Rescale,
    Shape,
    Tensor,
)

CLAMP = Clamp(-128, 127)


def operand(name: str, shape: Shape, zero_point: int = 0) -> Operand:
    return Operand(name, shape, DType.I8, Quant(0.5, zero_point))


def conv(name: str, ifm: Operand, ofm: Operand, kernel: int = 1) -> tuple[Conv2D, list[Constant]]:
    """A convolution with stride 1 whose padding keeps the plane's size."""
    rng = np.random.default_rng(len(name))
    shape = (ofm.shape.c, kernel, kernel, ifm.shape.c)
    weights = Constant(f"{name}_weights", rng.integers(-127, 128, shape).astype(np.int16))
    bias = Constant(f"{name}_bias", rng.integers(-1000, 1000, ofm.shape.c))
    half = kernel // 2
    op = Conv2D(
        name,
        ifm,
        ofm,
        CLAMP,
        weights.name,
        bias.name,
        Kernel(kernel, kernel),
        Padding(half, half, half, half),
        (Rescale(1 << 30, 38),) * ofm.shape.c,
        origin=f"model;{name}",
    )
    return op, [weights, bias]


def pool(name: str, ifm: Operand, ofm: Operand) -> Pool:
    return Pool(name, ifm, ofm, CLAMP, PoolKind.MAX, Kernel(1, 1), Padding(), origin=name)


def chain(shapes: Sequence[Shape]) -> NpuGraph:
    """1x1 convolutions one after the other, through tensors of these shapes."""
    names = [f"t{index}" for index in range(len(shapes))]
    ops, constants = [], []
    for index in range(len(shapes) - 1):
        ifm, ofm = (operand(names[i], shapes[i]) for i in (index, index + 1))
        op, made = conv(f"op{index}", ifm, ofm)
        ops.append(op)
        constants += made
    tensors = {n: Tensor(n, s, DType.I8, n) for n, s in zip(names, shapes, strict=True)}
    by_name = {constant.name: constant for constant in constants}
    return NpuGraph("chain", tuple(ops), tensors, by_name, (names[0],), (names[-1],))


def residual(shape: Shape) -> NpuGraph:
    """out = conv(conv(x)) + conv(x)."""
    names = ("x", "a", "b", "out")
    x, a, b, out = (operand(name, shape) for name in names)
    first, made_first = conv("first", x, a)
    second, made_second = conv("second", a, b, kernel=3)
    add = Add("add", a, out, CLAMP, b, origin="add")
    tensors = {name: Tensor(name, shape, DType.I8, name) for name in names}
    constants = {constant.name: constant for constant in (*made_first, *made_second)}
    return NpuGraph("residual", (first, second, add), tensors, constants, ("x",), ("out",))
