"""Networks and modules for the ways to errors, and how files of them are changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import flatbuffers
import tvm
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema
from tvm import relay

from tests.partition.networks import partition, residual
from tests.tflite_builder import NetBuilder


@cache
def network() -> bytes:
    return residual().data


@cache
def partitioned() -> tvm.IRModule:
    """Return the network's module, which no test changes."""
    return partition(residual())


def one_convolution(dtype: str = "int8") -> bytes:
    """Tensors: 0 the input, 1 weights, 2 biases, 3 the output."""
    net = NetBuilder(dtype, seed=4)
    net.output(net.conv2d(net.input((1, 6, 6, 4), name="x"), filters=4, name="y"))
    return net.build()


def square_root() -> bytes:
    """Return a network that takes the root of its input, which may not be negative."""
    net = NetBuilder("int8")
    x = net.input((1, 6, 6, 4), 0.05, 0)
    net.output(net.curve("RSQRT", x, scale=0.05, zero_point=0))
    return net.build()


def dynamic() -> tvm.IRModule:
    x = relay.var("x", shape=(1, relay.Any(), 8, 8), dtype="int8")
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.max_pool2d(x, (2, 2))))


def rebuilt(data: bytes, change: Callable[[Any], object]) -> bytes:
    """Return a TFLite file after a change of its tables, written anew."""
    tree = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(bytearray(data), 0))
    change(tree)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(tree.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def set_to(path: str, value: object) -> Callable[[Any], None]:
    """Return a change of one field; ``path`` begins at the file's only subgraph, or at ``/``."""

    def change(tree: Any) -> None:
        owner = tree if path.startswith("/") else tree.subgraphs[0]
        *way, last = path.removeprefix("/").split(".")
        for name in way:
            owner = owner[int(name)] if name.isdigit() else getattr(owner, name)
        setattr(owner, last, value)

    return change
