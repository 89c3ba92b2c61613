"""TVM's own ``tvmc`` with our target: compiled, run, refused, as users call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from tvm.driver import tvmc as tvm_tvmc
from tvm.driver.tvmc import main as tvmc_main

from tests.partition.networks import residual
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.cli import main as ethosu_main
from tvm_ethosu.partition.options import OPTION_HELP, REPLACED
from tvm_ethosu.partition.tflite_file import load_tflite

TVMS, OURS = "tvm.driver.tvmc", "tvm_ethosu.backend.tvmc"
HOOK = "tvm_ethosu.tvmc_hook"


def tvmc(*arguments: str | Path, module: str = TVMS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(residual().data)
    return path


@pytest.mark.parametrize(
    "target",
    [
        (
            "--target=ethos-u -sram_size=65536 -overwrite_inputs=1, llvm",
            "-f",
            "tar",
        ),
        ("--target=ethos-u, llvm", "--target-ethos-u-accelerator_config=ethos-u65-512"),
    ],
)
def test_outputs_of_tvmc_run_equal_those_that_tflite_micro_confirms(
    model: Path, tmp_path: Path, target: tuple[str, ...]
) -> None:
    file = load_tflite(model)
    tensor = file.tensors[file.inputs[0]]
    given = np.random.default_rng(1).integers(-128, 128, tensor.shape, dtype=np.int8)
    np.savez(tmp_path / "x.npz", **{tensor.name: given})
    np.save(tmp_path / "x.npy", given)
    package, ours, checked = (tmp_path / name for name in ("m.tar", "y.npz", "z.npz"))
    compiled = tvmc("compile", *target, "-o", package, model)
    assert compiled.returncode == 0, compiled.stderr
    run = tvmc("run", "--inputs", tmp_path / "x.npz", "--outputs", ours, package)
    assert run.returncode == 0, run.stderr
    # --check fails unless TFLite Micro gives the same.
    arguments = ["run", str(model), "--input", str(tmp_path / "x.npy"), "--check"]
    assert ethosu_main([*arguments, "--output", str(checked)]) == 0
    with np.load(ours) as left, np.load(checked) as right:
        np.testing.assert_array_equal(left["output_0"], right["output0"][0])


def test_the_npu_functions_are_in_the_module_that_tvmc_compiles(
    model: Path, tmp_path: Path
) -> None:
    target = "--target=ethos-u, llvm"
    done = tvmc("compile", target, "--dump-code=relay", "-o", tmp_path / "m.tar", model)
    assert done.returncode == 0, done.stderr
    assert 'Compiler="ethos-u"' in (tmp_path / "m.tar.relay").read_text()


MLF = (
    "--target=ethos-u -accelerator_config=ethos-u55-128, c -mcpu=cortex-m55",
    "--runtime=crt",
    "--executor=aot",
    "--executor-aot-interface-api=c",
    "--executor-aot-unpacked-api=1",
    "--pass-config=tir.usmp.algorithm=hill_climb",
    "--output-format=mlf",
)


def test_sources_of_an_mlf_archive_compile_against_its_own_headers(
    model: Path, tmp_path: Path, gcc: str
) -> None:
    done = tvmc("compile", *MLF, "-o", tmp_path / "m.tar", model)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "m.tar") as archive:
        archive.extractall(tmp_path / "tree", filter="data")
    tree = tmp_path / "tree"
    metadata = json.loads((tree / "metadata.json").read_text())
    (main,) = metadata["modules"]["default"]["memory"]["functions"]["main"]
    assert main["workspace_size_bytes"] > 0
    sources = sorted((tree / "codegen/host/src").glob("*.c"))
    assert any("ethos_u" in source.name for source in sources)
    run = tvmc("run", tmp_path / "m.tar")
    assert run.returncode == 4
    assert "mlf archives hold C for firmware" in run.stderr
    includes = [f"-I{tree / name}" for name in ("codegen/host/include", "runtime/include")]
    for source in sources:
        command = [gcc, "-fsyntax-only", *includes, str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


def test_an_mlf_archive_of_a_host_build_is_refused(model: Path, tmp_path: Path) -> None:
    package = tmp_path / "m.tar"
    done = tvmc("compile", "--target=ethos-u, llvm", "-f", "mlf", "-o", package, model)
    assert done.returncode == 4
    assert "mlf: needs the AOT executor" in done.stderr
    assert not package.exists()


@pytest.mark.parametrize("module", [TVMS, OURS])
def test_help_lists_every_option(module: str) -> None:
    text = tvmc("compile", "--help", module=module).stdout
    for name in (*OPTION_HELP, *REPLACED):
        assert f"--target-ethos-u-{name}" in text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("-enable_cascader=1", "'enable_cascader' is gone: cascades are planned"),
        ("-speed=1", "unknown option 'speed' (known: accelerator_config"),
        ("-accelerator_config=ethos-u99", "ethos-u99"),
        ("-sram_size=lots", "not a number of bytes (got 'lots'"),
        ("-sram_size=64", "does not fit"),
        ("-overwrite_inputs=yes", "overwrite_inputs is 0 or 1 (got 'yes')"),
    ],
)
# In this process, where TVM's files left open would be errors of ours.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_what_cannot_be_done_is_one_sentence(
    model: Path, tmp_path: Path, options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "m.tar"
    target = f"--target=ethos-u {options}, llvm"
    assert tvmc_main._main(["compile", target, "-o", str(package), str(model)]) == 4
    error = capsys.readouterr().err
    assert sentence in error
    assert "Traceback" not in error
    assert not package.exists()


def test_what_tvms_importer_lacks_is_imported_all_the_same(tmp_path: Path) -> None:
    net = NetBuilder("int8", seed=1)
    x = net.input((1, 8))
    net.output(net.dense(x, weights=np.ones((2, 8), np.int8), weight_scales=[0.25, 0.75]))
    (tmp_path / "dense.tflite").write_bytes(net.build())
    loaded = tvm_tvmc.load(str(tmp_path / "dense.tflite"))
    assert list(loaded.mod["main"].ret_type.shape) == [1, 2]
    (tmp_path / "half.tflite").write_bytes(net.build()[:200])
    with pytest.raises(tvm_tvmc.TVMCException, match=r"half\.tflite: the file is truncated"):
        tvm_tvmc.load(str(tmp_path / "half.tflite"))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_build_whose_arena_does_not_fit_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each NPU function fits, and TVM's own pool does not: known when all is built."""
    net = NetBuilder("int8", seed=1)
    x = net.conv2d(net.input((1, 8, 8, 4)), filters=4)
    net.output(net.log_softmax(net.conv2d(x, filters=40)))
    (tmp_path / "wide.tflite").write_bytes(net.build())
    target = MLF[0].replace("ethos-u ", "ethos-u -sram_size=6000 ")
    files = ["-o", str(tmp_path / "m.tar"), str(tmp_path / "wide.tflite")]
    assert tvmc_main._main(["compile", target, *MLF[1:], *files]) == 4
    assert "Error: network: the arena does not fit (needs" in capsys.readouterr().err


# --- the hook -----------------------------------------------------------------------------------


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


KNOWS = """
from tvm.driver.tvmc import composite_target
print('ethos-u' in composite_target.REGISTERED_CODEGEN)
"""


def test_a_start_of_python_loads_two_small_modules_of_ours_and_nothing_else() -> None:
    loaded = "print(sorted(n for n in sys.modules if n.split('.')[0] in ('tvm', 'tvm_ethosu')))"
    done = _python(f"import sys; {loaded}")
    assert done.stdout == f"['tvm_ethosu', '{HOOK}']\n"


@pytest.mark.parametrize(("value", "knows"), [("1", "True\n"), ("0", "False\n")])
def test_whoever_imports_tvmc_has_the_target_unless_it_is_switched_off(
    value: str, knows: str
) -> None:
    done = _python(KNOWS, TVM_ETHOSU_TVMC_HOOK=value)
    assert (done.stdout, done.stderr) == (knows, "")


def test_where_we_cannot_be_loaded_tvmc_goes_on_and_says_so() -> None:
    done = _python(f"import sys; sys.modules['ethosu.vela'] = None\n{KNOWS}")
    assert done.stdout == "False\n"
    assert "tvmc does not know the target ethos-u: import of ethosu.vela" in done.stderr


def test_a_second_call_does_not_wait_twice() -> None:
    count = "print(sum(type(f).__name__ == 'TvmcFinder' for f in sys.meta_path))"
    assert _python(f"import sys, {HOOK} as h; h.install(); {count}").stdout == "1\n"
