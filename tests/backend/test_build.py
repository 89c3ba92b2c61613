"""relay.build as users call it: tags, what is generated, what is refused."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tests.partition.networks import partition, residual, two_functions
from tvm_ethosu.backend.build_context import current_request
from tvm_ethosu.backend.codegen import generate
from tvm_ethosu.backend.host import observe_npu_calls
from tvm_ethosu.backend.network import build_for_host
from tvm_ethosu.backend.targets import joined
from tvm_ethosu.partition import partition_for_ethosu
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.scheduler.arch import ARCHS
from tvm_ethosu.scheduler.errors import Infeasible, UserError

UNPACKED = {"interface-api": "c", "unpacked-api": True}


def _build_c(module: tvm.IRModule, target: object, **executor: object) -> object:
    return relay.build(
        module,
        target=tvm.target.Target(target) if isinstance(target, str) else target,
        executor=relay.backend.Executor("aot", executor or UNPACKED),
        runtime=relay.backend.Runtime("crt"),
    )


def test_importing_the_backend_registers_all_targets() -> None:
    for arch in ARCHS:
        target = tvm.target.Target(f"ethos-u/{arch.accelerator.value}")
        assert str(target.kind.name) == "c"
        assert str(target.attrs["model"]) == arch.accelerator.value
    assert str(tvm.target.Target("ethos-u").attrs["model"]) == "ethos-u55-256"


def test_relay_build_gives_c_for_npu_functions_beside_tvms_own() -> None:
    built = _build_c(
        partition(residual(), accelerator_config="ethos-u55-64"), "ethos-u/ethos-u55-64"
    )
    sources = [built.lib.get_source()] + [m.get_source() for m in built.lib.imported_modules]
    (npu,) = [text for text in sources if "tvm_ethosu_invoke(TVM_ETHOSU_U55_64" in text]
    assert "tvmgen_default_ethos_u_main_0(void* input0, void* output0, void* scratch)" in npu
    assert any("tvmgen_default___tvm_main__" in text for text in sources)
    assert "float12" not in "".join(sources)


def _sources(built: object) -> list[str]:
    """Return all C sources, without the comments in which TVM names its target."""
    sources = [built.lib.get_source(), *(m.get_source() for m in built.lib.imported_modules)]
    return sorted(re.sub("// tvm target: .*", "", source) for source in sources)


@pytest.mark.parametrize(
    "target", ["ethos-u/ethos-u55-64", ["ethos-u/ethos-u55-64", "c"], ["c", "ethos-u/ethos-u55-64"]]
)
def test_a_module_that_is_built_for_an_npu_is_partitioned(target: object) -> None:
    mod, params = to_relay(residual())
    by_hand = partition_for_ethosu(mod, params, accelerator_config="ethos-u55-64")
    expected = _sources(_build_c(by_hand, "ethos-u/ethos-u55-64"))
    target = tvm.target.Target(target) if isinstance(target, str) else target
    built = relay.build(
        mod,
        target=target,
        params=params,
        executor=relay.backend.Executor("aot", UNPACKED),
        runtime=relay.backend.Runtime("crt"),
    )
    assert any("tvm_ethosu_invoke(TVM_ETHOSU_U55_64" in text for text in expected)
    assert _sources(built) == expected


def test_beside_llvm_the_npu_is_simulated_without_a_partitioned_module() -> None:
    mod, params = to_relay(residual())
    built = relay.build(mod, target=["ethos-u/ethos-u55-64", "llvm"], params=params)
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    with observe_npu_calls() as calls:
        module.run()
    assert len(calls) == 1


def test_a_build_for_the_cpu_is_left_alone() -> None:
    mod, params = to_relay(residual())
    built = relay.build(mod, target="llvm", params=params)
    assert "ethos_u" not in built.get_graph_json()


def test_a_target_for_another_accelerator_is_refused() -> None:
    module = partition(residual(), accelerator_config="ethos-u55-64")
    with pytest.raises(UserError, match=r"names ethos-u55-128, but .* ethos-u55-64"):
        _build_c(module, "ethos-u/ethos-u55-128")


@pytest.mark.parametrize(("cpu", "npu_first"), [("c", False), ("c -mcpu=cortex-m55", True)])
def test_a_list_of_npu_and_cpu_builds_for_both(
    cpu: str, npu_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Firmware for that CPU, with all that a build for the NPU alone checks."""
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")  # no download of tuning logs
    targets = [tvm.target.Target("ethos-u/ethos-u55-64"), tvm.target.Target(cpu)]
    assert joined(targets).attrs["model"] == "ethos-u55-64"
    assert str(joined(targets).attrs.get("mcpu", "")) == cpu.partition("mcpu=")[2]
    ordered = targets if npu_first else targets[::-1]
    module = partition(two_functions(), accelerator_config="ethos-u55-64")
    built = _build_c(module, ordered)
    sources = [built.lib.get_source()] + [m.get_source() for m in built.lib.imported_modules]
    assert sum("tvm_ethosu_invoke(TVM_ETHOSU_U55_64" in text for text in sources) == 2
    with pytest.raises(UserError, match=r"names ethos-u55-64, but .* ethos-u55-256"):
        _build_c(partition(residual()), ordered)


def test_a_list_of_npu_and_llvm_is_a_build_for_this_host() -> None:
    targets = ["ethos-u/ethos-u55-256", "llvm"]
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(partition(residual()), target=targets)
    executor = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
    alone = build_for_host(partition(residual()))
    data = np.random.default_rng(2).integers(-128, 128, (1, 8, 8, 3)).astype(np.int8)
    outputs = []
    for each in (executor, alone):
        each.set_input(0, data)
        each.run()
        outputs.append(each.get_output(0).numpy())
    np.testing.assert_array_equal(*outputs)


IMPORT = """
import tvm, tvm_ethosu.backend
tvm.target.Target("ethos-u/ethos-u65-512")
for name in ("relay.ext.ethos-u", "tvm_ethosu.run_program"):
    assert tvm.get_global_func(name)
print(tvm_ethosu.partition.partition_for_ethosu.__name__)
from tvm.driver.tvmc import composite_target
print("ethos-u" in composite_target.REGISTERED_CODEGEN)
"""


def test_one_import_is_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["partition_for_ethosu", "True"]


def test_packed_arguments_are_refused_with_the_executor_to_use() -> None:
    with pytest.raises(UserError, match="'unpacked-api': True"):
        _build_c(partition(residual()), "ethos-u", **{"interface-api": "packed"})


def test_a_function_that_was_not_partitioned_by_us_is_refused() -> None:
    (function,) = npu_functions(partition(residual())).values()
    bare = relay.Function(function.params, function.body, function.ret_type)
    bare = bare.with_attr("global_symbol", "foreign").with_attr("Compiler", "ethos-u")
    module = tvm.IRModule(
        {relay.GlobalVar("foreign"): bare.with_attr({"Primitive": 1, "Inline": 1})}
    )
    module = relay.transform.InferType()(module)
    x = relay.var("x", shape=(1, 8, 8, 3), dtype="int8")
    call = relay.Call(module.get_global_var("foreign"), [x])
    module["main"] = relay.Function([x], relay.TupleGetItem(call, 0))
    with pytest.raises(UserError, match="not partitioned by"):
        build_for_host(module)


def test_the_code_generator_alone_says_that_it_needs_relay_build() -> None:
    (function,) = npu_functions(partition(residual())).values()
    with pytest.raises(UserError, match=r"relay\.build"):
        current_request()
    with pytest.raises(UserError, match=r"relay\.build"):
        generate(function)


def test_a_build_that_holds_more_than_it_was_partitioned_for_is_refused() -> None:
    module = partition(residual(), sram_size=1 << 16)
    (name,) = npu_functions(module)
    function = npu_functions(module)[name].with_attr("sram_size", 1500)
    module.update_func(module.get_global_var(name), function)
    with pytest.raises(Infeasible, match="planned for another program"):
        _build_c(relay.transform.InferType()(module), "ethos-u/ethos-u55-256")


def test_calls_are_only_observed_inside_the_block() -> None:
    module = partition(residual())
    executor = build_for_host(module)
    executor.set_input(0, np.ones((1, 8, 8, 3), np.int8))
    with observe_npu_calls() as calls:
        executor.run()
    executor.run()
    (call,) = calls
    assert call.name == "tvmgen_default_ethos_u_main_0"
    assert call.inputs[0].tolist() == [1] * 192
    assert call.outputs[0].tobytes() == executor.get_output(0).numpy().tobytes()


def test_an_exported_library_runs_in_another_process(tmp_path: object, gcc: str) -> None:
    module = partition(residual())
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(module, target="llvm", executor=relay.backend.Executor("aot"))
    library = f"{tmp_path}/network.so"
    built.export_library(library)
    data = np.arange(192, dtype=np.int8).reshape(1, 8, 8, 3)
    np.save(f"{tmp_path}/x.npy", data)
    program = (
        "import sys, numpy as np, tvm, tvm_ethosu.backend\n"
        "loaded = tvm.runtime.load_module(sys.argv[1] + '/network.so')\n"
        "run = tvm.runtime.executor.AotModule(loaded['default'](tvm.cpu()))\n"
        "run.set_input(0, np.load(sys.argv[1] + '/x.npy'))\n"
        "run.run()\n"
        "np.save(sys.argv[1] + '/y.npy', run.get_output(0).numpy())\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    here = build_for_host(module)
    here.set_input(0, data)
    here.run()
    np.testing.assert_array_equal(np.load(f"{tmp_path}/y.npy"), here.get_output(0).numpy())
