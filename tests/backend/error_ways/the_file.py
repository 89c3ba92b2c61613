"""What a TFLite file may be damaged by, or hold that cannot be used."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.backend.error_ways.desk import Desk, Way, cli, file, given, table
from tests.backend.error_ways.networks import network, one_convolution, rebuilt, set_to
from tests.equivalence.operators import batch_matmul
from tests.tflite_builder import NetBuilder


def _sparse(desk: Desk) -> None:
    desk.write("long.tflite", b"")
    os.truncate(desk.folder / "long.tflite", (2 << 30) + 1)


def _built(make: Callable[[NetBuilder], object], dtype: str = "int8") -> Callable[[], bytes]:
    def build() -> bytes:
        net = NetBuilder(dtype)
        make(net)
        return net.build()

    return build


def _edited_pool(change: Callable[[NetBuilder], object]) -> Callable[[], bytes]:
    """Return a file of one max pool, changed before it is written."""

    def build(net: NetBuilder) -> None:
        net.output(net.max_pool(net.input((1, 4, 4, 1)), name="y"))
        change(net)

    return _built(build)


def _set_operator(net: NetBuilder, **fields: Any) -> None:
    net._operators[0] = dataclasses.replace(net._operators[0], **fields)


def _set_result(net: NetBuilder, shape: tuple[int, ...]) -> None:
    value = dataclasses.replace(net._tensors[1].value, shape=shape)
    net._tensors[1] = dataclasses.replace(net._tensors[1], value=value)


def _unknown_padding(net: NetBuilder) -> None:
    _set_operator(net, fields={**net._operators[0].fields, 0: ("Int8", 9)})


def _product_of_other_batches() -> bytes:
    net = NetBuilder("int8")
    x, y = net.input((2, 3, 4)), net.input((1, 4, 5))
    net.output(batch_matmul(net, x, y, scale=0.1, zero_point=0))
    return net.build()


def _contradicting_addition() -> bytes:
    net = NetBuilder()
    x, y = net.input((1, 4, 4, 3)), net.input((1, 4, 4, 3))
    net.output(net.add(x, y))
    _set_result(net, (1, 4, 5, 3))
    return net.build()


def _listed_twice(tree: Any) -> None:
    graph = tree.subgraphs[0]
    graph.operators.append(graph.operators[0])


def _lonely(tree: Any) -> None:
    graph = tree.subgraphs[0]
    graph.tensors.append(graph.tensors[0])
    graph.outputs = [len(graph.tensors) - 1]


FILE: Mapping[str, Way] = {
    "no such file": cli("explain", "absent.tflite"),
    "is a directory, not a TFLite file": cli("explain", "."),
    "is not a regular file": cli("explain", os.devnull),
    "cannot be read (…)": cli("explain", "/proc/self/mem"),
    "is too long for TFLite (got … bytes, limit 2 GiB)": given(_sparse, "explain", "long.tflite"),
    "the file is empty": file(b""),
    "it has only … bytes": file(b"abc"),
    "not a TFLite file: it looks like …": file(b"PK\x03\x04" + bytes(60)),
    "not a TFLite file (bytes 4 to 8 are …)": file(b"hello, world"),
    "the file is truncated or damaged: …": file(lambda: network()[: len(network()) // 2]),
    "the file is damaged: …": file(struct.pack("<I4sHHi", 12, b"TFL3", 3, 4, 4)),
    "tensor …: no such buffer (got …, the file has …)": table("tensors.0.buffer", 99),
    "operator …: no such operator code (got …, the file has …)": table(
        "operators.0.opcodeIndex", 9
    ),
    "… is no tensor of the file (got …, it has …)": table("outputs", [99]),
    "unknown version of the TFLite schema (got …, known 3)": table("/version", 2),
    "the network has control flow …": file(
        lambda: rebuilt(one_convolution(), lambda tree: tree.subgraphs.append(tree.subgraphs[0]))
    ),
    "the file holds no network (0 subgraphs)": table("/subgraphs", []),
    "the network has no operators": table("operators", []),
    "the network has no …": table("inputs", []),
    "Vela has compiled this network for an Ethos-U already": given(
        lambda desk: desk.vela("tflite"), "explain", "vela.tflite"
    ),
    "not a quantized network: …": file(lambda: one_convolution("float32")),
    "tensor … has a dynamic shape (dimension … of …)": table("tensors.0.shape", [1, 6, -1, 4]),
    "tensor … has no shape": table("tensors.3.shape", None),
    "tensor …: unknown element type (got number …, known 0 to 18)": table("tensors.0.type", 99),
    "its data lies behind the flatbuffer": table("/buffers.1.offset", 4096),
    "tensor …: … scales but … zero points": table("tensors.0.quantization.zeroPoint", [0, 0]),
    "… scales fit no dimension": file(
        lambda: rebuilt(
            one_convolution(),
            lambda tree: [
                set_to("tensors.1.quantization.scale", [0.1] * 7)(tree),
                set_to("tensors.1.quantization.zeroPoint", [0] * 7)(tree),
            ],
        )
    ),
    "a zero point does not fit …": table("tensors.0.quantization.zeroPoint", [200]),
    "a scale is not a positive number": table("tensors.0.quantization.scale", [float("nan")]),
    "operator … reads tensor …, which holds no data and which no earlier operator writes": table(
        "operators.0.inputs", [3, 1, 2]
    ),
    "… writes tensor …, which has a value already": file(
        lambda: rebuilt(one_convolution(), _listed_twice)
    ),
    "the network's output … is written by no operator": file(
        lambda: rebuilt(one_convolution(), _lonely)
    ),
    "tensor … is listed … times as an input": table("inputs", [0, 0]),
    "tensor … is an input and a constant at once": table("inputs", [0, 1]),
    "unknown operator (got number …)": table("/operatorCodes.0.builtinCode", 9999),
    "operator …: TVM's importer has no such operator": file(
        _edited_pool(partial(_set_operator, code="SVDF"))
    ),
    "operator …: TVM cannot import it: …": file(_edited_pool(_unknown_padding)),
    "TVM cannot import the network: …": file(_contradicting_addition),
    "batches of … and … differ": file(_product_of_other_batches),
    "operator …: gives … of shape …, but the file says …": file(
        _edited_pool(partial(_set_result, shape=(1, 3, 2, 1)))
    ),
}
