"""Files that the simulator refuses."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from ethosu.vela.api import NpuAccelerator, npu_create_driver_payload
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from tests.backend.error_ways.desk import Desk, Way, cli, given
from tests.backend.error_ways.networks import one_convolution, set_to, square_root
from tests.tflite_builder import NetBuilder


def simulate(make: Callable[[Desk], str], *options: str) -> Way:
    """Simulate the file that ``make`` puts into the folder."""
    return lambda desk: cli("simulate", make(desk), *options)(desk)


def vela(change: Callable[[Any], object]) -> Way:
    """Simulate what Vela made, after a change of its tables."""
    return simulate(lambda desk: desk.vela("tflite", change))


def raw(**fields: Any) -> Way:
    return simulate(lambda desk: desk.raw(**fields))


def _with_input(make: Callable[[Desk], str], shape: tuple[int, ...], dtype: str = "int8") -> Way:
    def way(desk: Desk) -> str:
        return cli("simulate", make(desk), "--input", desk.save("x.npy", shape, dtype))(desk)

    return way


def _checked(make: Callable[[Desk], str], original: bytes) -> Way:
    def way(desk: Desk) -> str:
        name = desk.write("original.tflite", original)
        return cli("simulate", make(desk), "--check", name)(desk)

    return way


def _allocation(tree: Any) -> None:
    number = next(e.buffer for e in tree.metadata if e.name == b"OfflineMemoryAllocation")
    tree.buffers[number].data = list(struct.pack("<3i", 0, 0, 0))


def _npu_call(tree: Any) -> Any:
    return tree.subgraphs[0].operators[0]


def _without_stream(tree: Any) -> None:
    graph = tree.subgraphs[0]
    tree.buffers[graph.tensors[_npu_call(tree).inputs[0]].buffer].data = None


def _few_regions(tree: Any) -> None:
    call = _npu_call(tree)
    call.inputs = list(call.inputs)[:2]


def _short_stream(tree: Any) -> None:
    graph = tree.subgraphs[0]
    graph.tensors[_npu_call(tree).inputs[0]].shape = [1 << 20]


def _unsigned_input(tree: Any) -> None:
    graph = tree.subgraphs[0]
    graph.tensors[graph.inputs[0]].type = schema.TensorType.UINT8


def _payload(words: list[int]) -> Callable[[Desk], str]:
    data = bytes(npu_create_driver_payload(words, NpuAccelerator.Ethos_U55_128))
    return lambda desk: desk.write("payload.bin", data)


def _half_a_program(desk: Desk) -> str:
    return desk.write("bad.npu", (desk.folder / desk.program()).read_bytes()[:60])


def _negative_scratch(desk: Desk) -> str:
    head, _, rest = (desk.folder / desk.program()).read_bytes().partition(b"\n")
    changed = json.dumps(json.loads(head) | {"scratch_bytes": -1}).encode()
    return desk.write("bad.npu", changed + b"\n" + rest)


def _other_network(filters: int) -> bytes:
    net = NetBuilder("int8")
    net.output(net.conv2d(net.input((1, 5, 5, 4)), filters=filters))
    return net.build()


def _other_names() -> bytes:
    net = NetBuilder("int8")
    net.output(net.conv2d(net.input((1, 5, 5, 4)), filters=4, name="unheard of"))
    return net.build()


SIMULATE: Mapping[str, Way] = {
    "…: neither TFLite, Vela's raw output, a driver payload nor a program": given(
        lambda desk: desk.write("text", "some text"), "disassemble", "text"
    ),
    "…: neither TFLite, Vela's raw output nor a program": simulate(
        lambda desk: desk.write("text", "some text")
    ),
    "not a TFLite file: no TFL3 at byte 4": _checked(lambda desk: desk.vela("tflite"), b"no"),
    "…: holds no command stream; was it compiled by Vela?": cli("disassemble", "model.tflite"),
    "…: no operator of it runs on the NPU; was it compiled by Vela?": cli(
        "simulate", "model.tflite"
    ),
    "…: not the network that was compiled: it has no tensor '…' …": _checked(
        Desk.program, _other_names()
    ),
    "…: not the network that was compiled: … (got …)": _checked(
        lambda desk: desk.vela("tflite"), _other_network(4)
    ),
    "not Vela's raw output …": simulate(lambda desk: desk.write("raw.npz", b"PK\x03\x04")),
    "…: scratch sizes … (limit …)": raw(scratch_size=np.array(1 << 40)),
    "… is not a whole number (got …)": raw(scratch_size=np.array([1, 2])),
    "… is not in the scratch memory (limit …)": raw(input_region=np.array([7])),
    "the columns of its …s do not belong together": raw(output_offset=np.array([0, 16])),
    "not a driver payload …": given(
        lambda desk: desk.write("payload.bin", b"COP1\0"), "disassemble", "payload.bin"
    ),
    "…: damaged: …": simulate(_half_a_program),
    "…: damaged NPU program: …": simulate(_negative_scratch),
    "OfflineMemoryAllocation lists too few tensors (limit …)": vela(_allocation),
    "tensor type … is not known": vela(set_to("tensors.0.type", 99)),
    "tensor … of shape … ends at byte … (limit …)": vela(set_to("tensors.0.shape", [1 << 30])),
    "tensor … has … bytes of data, takes …": vela(_short_stream),
    "no such buffer (got …, limit …)": vela(set_to("tensors.0.buffer", 99)),
    "no such tensor (got …, limit …)": vela(set_to("outputs", [99])),
    "operator … has no such code (got …)": vela(set_to("operators.0.opcodeIndex", 9)),
    "… subgraphs (limit 1)": vela(lambda tree: tree.subgraphs.append(tree.subgraphs[0])),
    "an ethos-u operator has no command stream": vela(_without_stream),
    "an ethos-u operator needs … inputs (got …)": vela(_few_regions),
    "… wrong number of inputs (got …, limit …)": given(
        lambda desk: [desk.vela("tflite"), desk.save("x.npy", (4,))],
        "simulate", "vela.tflite", "--input", "x.npy", "--input", "x.npy",
    ),
    "input has … bytes (limit …)": _with_input(Desk.raw, (5,), "uint8"),
    "input … is … of shape … (got … of shape …)": _with_input(
        lambda desk: desk.vela("tflite"), (5,)
    ),
    "input … must be int8 or uint8 (got …)": _with_input(Desk.program, (192,), "float32"),
    "input … has the wrong size in bytes (got …, limit …)": _with_input(Desk.program, (5,)),
    "--system-config: … is not a system of this NPU": simulate(
        lambda desk: desk.vela("tflite"), "--system-config", "Ethos_U65_High_End"
    ),
    "tflite-micro: cannot prepare the network: …": _checked(
        lambda desk: desk.vela("tflite", _unsigned_input), one_convolution("uint8")
    ),
    "tflite-micro: cannot run the network: …": _checked(
        lambda desk: desk.vela("tflite"), square_root()
    ),
    "simulator: …": given(_payload([0xFF]), "disassemble", "payload.bin"),
}  # fmt: skip
