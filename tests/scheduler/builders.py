"""Small NPU graphs by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.arch import find_arch
from tvm_ethosu.scheduler.compile import schedule
from tvm_ethosu.scheduler.hardware import make_target
from tvm_ethosu.scheduler.ir import (
    Add,
    Clamp,
    Constant,
    Conv2D,
    DepthwiseConv2D,
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
from tvm_ethosu.scheduler.ports import Hardware
from tvm_ethosu.scheduler.search import Objective

CLAMP = Clamp(-128, 127)


class RawSizes:
    """Weights as they are, a byte each, and ten bytes per channel."""

    def size_bytes(self, graph: NpuGraph, op: Conv2D | DepthwiseConv2D, depth: int) -> int:
        weights = graph.constants[op.weights].data.size
        return -(-weights // 16) * 16 + -(-10 * op.ofm.shape.c // 16) * 16


HARDWARE = Hardware(make_target(find_arch("ethos-u55-128"), None), RawSizes())


def plan(
    graph: NpuGraph, budget_bytes: int | None, objective: Objective = Objective.PERFORMANCE
) -> Allocation:
    """Plan a graph for an U55 without encoding weights."""
    return schedule(graph, budget_bytes, HARDWARE, objective)


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


def chain(shapes: Sequence[Shape], kernel: int = 1) -> NpuGraph:
    """Convolutions one after the other, through tensors of these shapes."""
    names = [f"t{index}" for index in range(len(shapes))]
    ops, constants = [], []
    for index in range(len(shapes) - 1):
        ifm, ofm = (operand(names[i], shapes[i]) for i in (index, index + 1))
        op, made = conv(f"op{index}", ifm, ofm, kernel)
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


def _window(
    name: str, ifm: Operand, channels: int, kernel: Kernel, padding: Padding
) -> tuple[Conv2D, list[Constant], Tensor]:
    """A convolution with any window; returns its OFM's tensor as well."""
    height = (ifm.shape.h + padding.top + padding.bottom - kernel.dilated_h) // kernel.stride_h + 1
    width = (ifm.shape.w + padding.left + padding.right - kernel.dilated_w) // kernel.stride_w + 1
    ofm = operand(f"t_{name}", Shape(1, height, width, channels), 5)
    op, made = conv(name, ifm, ofm)
    rng = np.random.default_rng(len(name) + channels)
    shape = (channels, kernel.h, kernel.w, ifm.shape.c)
    weights = Constant(made[0].name, rng.integers(-9, 10, shape).astype(np.int16))
    # Read no padding that the last window does not reach.
    below = max(0, (height - 1) * kernel.stride_h + kernel.dilated_h - padding.top - ifm.shape.h)
    right = max(0, (width - 1) * kernel.stride_w + kernel.dilated_w - padding.left - ifm.shape.w)
    tight = Padding(padding.top, padding.left, below, right)
    op = dataclasses.replace(op, kernel=kernel, padding=tight)
    return op, [weights, made[1]], Tensor(ofm.tensor, ofm.shape, DType.I8, ofm.tensor)


def random_chain(seed: int, *, elementwise: bool = True, strides: bool = True) -> NpuGraph:
    """Convolutions with random windows one after the other, with residual additions among them.

    The input may be overwritten where the seed is odd.
    """
    rng = np.random.default_rng(seed)
    shape = Shape(1, int(rng.integers(6, 20)), int(rng.integers(3, 7)), 16)
    tensors = {"x": Tensor("x", shape, DType.I8, "x")}
    ops: list[Conv2D | Add] = []
    constants: dict[str, Constant] = {}
    last, residual_from = operand("x", shape), None
    for index in range(int(rng.integers(3, 7))):
        size = int(rng.choice([1, 3]))
        stride = int(rng.choice([1, 1, 2])) if strides and last.shape.h > 4 else 1
        half = size // 2
        channels = int(rng.choice([8, 16, 17, 32]))
        if residual_from is not None:
            channels, stride = residual_from.shape.c, 1
        op, made, tensor = _window(
            f"c{index}",
            last,
            channels,
            Kernel(size, size, stride, stride),
            Padding(half, half, half, half),
        )
        ops.append(op)
        constants |= {constant.name: constant for constant in made}
        tensors[tensor.name] = tensor
        before, last = last, op.ofm
        fits = residual_from is not None and residual_from.shape == last.shape
        if elementwise and fits and residual_from is not None:
            ofm = operand(f"t_add{index}", last.shape, -3)
            ops.append(Add(f"add{index}", last, ofm, CLAMP, residual_from, origin="add"))
            tensors[ofm.tensor] = Tensor(ofm.tensor, ofm.shape, DType.I8, ofm.tensor)
            last, residual_from = ofm, None
        elif elementwise and before.tensor != "x" and rng.random() < 0.5:
            residual_from = last
    disposable = frozenset({"x"} if seed % 2 else ())
    return NpuGraph("random", tuple(ops), tensors, constants, ("x",), (last.tensor,), disposable)
