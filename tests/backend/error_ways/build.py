"""What is wrong with a build of one's own: in Python, or by tvmc."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relay
from tvm.driver.tvmc import main as tvmc_main

from tests.backend.error_ways.desk import Desk, Way, cli, given, python
from tests.backend.error_ways.networks import dynamic, partitioned
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.codegen import generate
from tvm_ethosu.backend.network import build_for_host
from tvm_ethosu.backend.tvmc import register_tvmc
from tvm_ethosu.partition import partition_for_ethosu
from tvm_ethosu.partition.relay.rewrite import npu_functions

TVMC_REFUSES = 4


UNPACKED = {"interface-api": "c", "unpacked-api": True}


def build_c(module: tvm.IRModule, target: str = "ethos-u", **executor: object) -> object:
    return relay.build(
        relay.transform.InferType()(module),
        target=tvm.target.Target(target),
        executor=relay.backend.Executor("aot", executor or UNPACKED),
        runtime=relay.backend.Runtime("crt"),
    )


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
    "module: not a Relay module (got …)": python(lambda: partition_for_ethosu(None)),
    "module: it is partitioned already": python(lambda: partition_for_ethosu(partitioned())),
    "partition_for_ethosu: option '…' is gone: …": python(
        lambda: partition_for_ethosu(dynamic(), enable_cascader=True)
    ),
    "partition_for_ethosu: unknown option '…' (known: …)": python(
        lambda: partition_for_ethosu(dynamic(), sram=65536)
    ),
    "… a dynamic shape has no fixed size … (input … is …)": python(
        lambda: partition_for_ethosu(dynamic())
    ),
    "TVM can't compile what stays on the CPU (…); there are: …": given(
        _no_cpu_code, "compile", "model.tflite", "-o", "out"
    ),
    "target: names …, but the module was partitioned for …": python(
        lambda: build_c(partitioned(), "ethos-u/ethos-u55-128")
    ),
    "target: NPU functions can be built for c and llvm (got …)": python(
        lambda: relay.build(partitioned(), target="cuda")
    ),
    "executor: C code for the NPU needs plain pointers as arguments": python(
        lambda: build_c(partitioned(), **{"interface-api": "packed"})
    ),
    "executor: on this host NPU functions take TVM's packed arguments …": python(
        lambda: build_c(partitioned(), "llvm")
    ),
    "target: a list is of one ethos-u and one other (got …); …": python(
        lambda: relay.build(partitioned(), target=["ethos-u", "ethos-u/ethos-u55-128"])
    ),
    "…: partitioned for … calls, built with …": python(lambda: build_c(_for_two_calls())),
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
