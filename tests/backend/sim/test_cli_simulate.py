"""The commands simulate and disassemble, on what Vela compiled and on programs of ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from ethosu.vela.api import NpuAccelerator, npu_create_driver_payload

from tests.backend.sim.assembler import assemble
from tests.backend.sim.test_memory import absolute
from tests.backend.sim.test_networks import build_small
from tests.backend.test_vela import many_outputs
from tests.compiling import compile_graph
from tests.scheduler.builders import chain, residual
from tests.tflite_builder import NetBuilder
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.cli_simulate import disassemble, read_listings, simulate
from tvm_ethosu.backend.host import as_bytes, load_program, run_on
from tvm_ethosu.backend.program import Program, to_bytes
from tvm_ethosu.backend.sim import SYSTEM_CONFIGS, Accelerator, MemoryMode, decode, estimate
from tvm_ethosu.backend.sim.disassemble import disassemble as lines_of
from tvm_ethosu.backend.vela_files import (
    Array,
    Core,
    VelaOptions,
    compile_with_vela,
    read_network,
)
from tvm_ethosu.backend.vela_raw import FIELDS, read_raw
from tvm_ethosu.scheduler.arch import find_arch
from tvm_ethosu.scheduler.errors import UserError
from tvm_ethosu.scheduler.ir import NpuGraph, Shape


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "small.tflite"
    path.write_bytes(build_small("int8"))
    return path


@pytest.fixture(scope="module")
def compiled(original: Path) -> Path:
    return compile_with_vela(original, original.parent, VelaOptions(Accelerator.U55_128))


def test_simulate_and_check(original: Path, compiled: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = [str(compiled), "--check", str(original), "--seed", "7", "--trace"]
    result = CliRunner().invoke(simulate, [*arguments, "--json", str(report)])
    assert result.exit_code == 0, result.output
    assert "0 elements differ" in result.output
    assert "CONV, ifm 12x12x5 s8" in result.output
    data = json.loads(report.read_text())
    assert data["differing"] == 0
    assert len(data["outputs"][0][0]) == 4
    kinds = [operation["kind"] for operation in data["calls"][0]["operations"]]
    assert kinds[-1] == "STOP"
    assert f"{len(kinds)} operations" in result.output


def test_estimates(compiled: Path, tmp_path: Path) -> None:
    """The cycles are those of the stream, on the system that was asked for."""
    (stream,) = read_network(compiled.read_bytes()).streams
    path = tmp_path / "report.json"
    for name in ("Ethos_U55_High_End_Embedded", "Ethos_U55_Deep_Embedded"):
        expected = estimate(stream, SYSTEM_CONFIGS[name], MemoryMode.SRAM_ONLY)
        arguments = ["--system-config", name, "--memory-mode", "Sram_Only", "--json", str(path)]
        result = CliRunner().invoke(simulate, [str(compiled), "--trace", *arguments])
        assert f"estimate: {expected.total:.0f} cycles ({name}, Sram_Only)" in result.output
        report = json.loads(path.read_text())
        assert report["cycles"] == report["calls"][0]["cycles"] == expected.total
        found = [op for op in report["calls"][0]["operations"] if "cycles" in op]
        assert [(op["offset"], op["cycles"]) for op in found] == [
            (op.offset, op.total) for op in expected.operations
        ]
        last = expected.operations[-1]
        assert f", cycles {last.start:.0f} to {last.end:.0f}\n" in result.output


@pytest.mark.parametrize(
    ("accelerator", "core", "expected"),
    [
        (Accelerator.U65_256, Core.LEGACY, "Ethos_U65_High_End, Dedicated_Sram"),
        (Accelerator.U55_256, Core.LEGACY, "Ethos_U55_High_End_Embedded, Shared_Sram"),
    ],
)
def test_the_system_that_a_stream_was_made_for(
    original: Path, tmp_path: Path, accelerator: Accelerator, core: Core, expected: str
) -> None:
    file = compile_with_vela(original, tmp_path, VelaOptions(accelerator, core))
    assert expected in CliRunner().invoke(simulate, [str(file)]).output


def test_a_system_of_the_other_product(compiled: Path) -> None:
    result = CliRunner().invoke(simulate, [str(compiled), "--system-config", "Ethos_U65_Embedded"])
    assert isinstance(result.exception, UserError)
    assert "is not a system of this NPU (Ethos_U55)" in str(result.exception)


@pytest.mark.parametrize("wrong", [np.zeros((1, 12, 12, 5), np.uint8), np.zeros(720, np.int8)])
def test_an_input_of_another_type_or_shape(compiled: Path, tmp_path: Path, wrong: Array) -> None:
    np.save(tmp_path / "x.npy", wrong)
    result = CliRunner().invoke(simulate, [str(compiled), "--input", str(tmp_path / "x.npy")])
    assert isinstance(result.exception, UserError)
    assert "is int8 of shape [1, 12, 12, 5] (got" in str(result.exception)


def test_check_finds_another_network(compiled: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tflite"
    other.write_bytes(build_small("int8", seed=4))
    result = CliRunner().invoke(simulate, [str(compiled), "--check", str(other)])
    assert result.exit_code == 1
    assert "elements differ" in result.output


def test_given_inputs(original: Path, compiled: Path, tmp_path: Path) -> None:
    values = tmp_path / "x.npy"
    np.save(values, np.full((1, 12, 12, 5), 3, np.int8))
    arguments = [str(compiled), "--input", str(values), "--check", str(original)]
    result = CliRunner().invoke(simulate, arguments)
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(simulate, [*arguments, "--input", str(values)])
    assert isinstance(result.exception, UserError)
    assert "wrong number of inputs (got 2, limit 1)" in str(result.exception)


@pytest.mark.parametrize("core", Core)
def test_raw_output(original: Path, tmp_path: Path, core: Core) -> None:
    options = VelaOptions(Accelerator.U55_128, core)
    raw = compile_with_vela(original, tmp_path, options, raw=True)
    result = CliRunner().invoke(simulate, [str(raw), "--check", str(original)])
    assert result.exit_code == 0, result.output
    assert "0 elements differ" in result.output
    listing = CliRunner().invoke(disassemble, [str(raw)])
    assert "# raw output, ethos-u55-128" in listing.output


RAW_DAMAGES: list[tuple[dict[str, Array], str]] = [
    ({"scratch_size": np.array(1 << 40)}, r"scratch sizes \[1099511627776\]"),
    ({"scratch_size": np.array([1, 2])}, "scratch_size is not a whole number"),
    ({"scratch_size": np.array(64)}, r"Place\(region=1, start=\d+, stop=\d+\) is not in"),
    ({"input_region": np.array([7])}, r"Place\(region=7, .* is not in the scratch memory"),
    ({"input_offset": np.array([-16])}, "is not in the scratch memory"),
    ({"output_shape": np.array([[1 << 40]] * 4).T}, "is not in the scratch memory"),
    ({"output_offset": np.array([0, 16])}, "the columns of its outputs do not belong together"),
    ({"output_offset": np.array(0.5)}, "the columns of its outputs do not belong together"),
]


@pytest.fixture(scope="module")
def raw(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    return compile_with_vela(original, folder, VelaOptions(Accelerator.U55_128), raw=True)


def fields_of(raw: Path) -> dict[str, Array]:
    with np.load(raw) as archive:
        return {name: archive[name] for name in FIELDS}


@pytest.mark.parametrize(("changed_fields", "message"), RAW_DAMAGES)
def test_damaged_raw_output(
    raw: Path, tmp_path: Path, changed_fields: dict[str, Array], message: str
) -> None:
    fields = fields_of(raw) | changed_fields
    np.savez(tmp_path / "bad.npz", **fields)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        read_raw(tmp_path / "bad.npz")


def test_raw_output_without_a_field(raw: Path, tmp_path: Path) -> None:
    fields = fields_of(raw)
    del fields["input_offset"]
    np.savez(tmp_path / "bad.npz", **fields)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"not Vela's raw output \('input_offset is not a file"):
        read_raw(tmp_path / "bad.npz")


@pytest.mark.parametrize("kind", ["tflite", "npz"])
def test_damaged_files_of_vela(
    compiled: Path, raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Whatever is flipped or cut off: it runs, or one sentence says why not."""
    data = (compiled if kind == "tflite" else raw).read_bytes()
    rng = np.random.default_rng(11)
    file = tmp_path / "damaged"
    for turn in range(120):
        damaged = bytearray(data)
        if turn % 4 == 0:
            damaged = damaged[: int(rng.integers(len(data)))]
        else:
            start = int(rng.integers(max(8, len(data) - 4000) if turn % 2 else 8, len(data)))
            damaged[start : start + 4] = rng.integers(0, 256, 4, np.uint8).tobytes()
        file.write_bytes(damaged)
        for command in ("simulate", "disassemble"):
            code, _, err = call(capsys, command, file)
            assert code in (0, 2), err
            assert err.count("\n") == (code == 2)


def test_disassembly_can_be_diffed(compiled: Path) -> None:
    plain = CliRunner().invoke(disassemble, [str(compiled)])
    assert plain.exit_code == 0, plain.output
    lines = plain.output.splitlines()
    assert lines[0] == "# NPU call 0, ethos-u55-128"
    assert lines[-1] == "STOP mask=65535"
    with_offsets = CliRunner().invoke(disassemble, [str(compiled), "--offsets"])
    assert [line[8:] for line in with_offsets.output.splitlines()[1:]] == lines[1:]
    words = list(read_listings(compiled)[0].words)
    at = next(op.offset for op in decode(words, Accelerator.U55_128).operations)
    longer = [*words[:at], 0x0000012F, *words[at:]]
    changed = list(lines_of(longer, Accelerator.U55_128))
    assert sorted(set(changed) - set(lines)) in ([], ["    BLOCKDEP 0"])
    assert len(changed) == len(lines)


def test_lines_of_one_operation() -> None:
    text = "\n".join(lines_of(assemble(absolute(OFM_SCALE=5 | 3 << 32)), Accelerator.U55_128))
    assert "    OFM_SCALE 5 >> 3" in text
    assert "    IFM_PRECISION signed=1 bits=0 layout=0 rounding=0 scale_mode=0" in text
    assert "ELEMENTWISE_ABS, ifm 2x2x4 s8 NHWC r1+0x0, ofm 2x2x4 s8 NHWC r1+0x20" in text


def test_driver_payload(tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    words = assemble(absolute())
    file.write_bytes(npu_create_driver_payload(words, NpuAccelerator.Ethos_U65_512))
    listing = read_listings(file)[0]
    assert listing.words == tuple(words)
    assert listing.accelerator is Accelerator.U65_512


def test_a_bad_stream_is_the_users_error(tmp_path: Path) -> None:
    file = tmp_path / "payload.bin"
    file.write_bytes(npu_create_driver_payload([0xFF], NpuAccelerator.Ethos_U55_128))
    result = CliRunner().invoke(disassemble, [str(file)])
    assert isinstance(result.exception, UserError)
    assert "simulator: word 0: unknown CMD0 code 0x0ff" in str(result.exception)
    file.write_bytes(b"something else")
    result = CliRunner().invoke(disassemble, [str(file)])
    assert "neither TFLite" in str(result.exception)


# --- programs of this compiler -------------------------------------------------------------------


def own_program(graph: NpuGraph, accelerator: str = "ethos-u55-128") -> Program:
    return compile_graph(graph, find_arch(accelerator))


@pytest.fixture(scope="module")
def program() -> Program:
    return own_program(residual(Shape(1, 4, 4, 16)))


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run the command line; return exit code, stdout and stderr."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("accelerator", Accelerator)
def test_a_program_runs_as_the_host_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], accelerator: Accelerator
) -> None:
    program = own_program(chain([Shape(1, 6, 5, 19)] * 3), accelerator.value)
    file, values, report = (tmp_path / name for name in ("program", "x.npy", "report.json"))
    file.write_bytes(to_bytes(program))
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 5, 19)).astype(np.int8)
    np.save(values, x)
    code, out, err = call(capsys, "simulate", file, "--input", values, "--trace", "--json", report)
    assert (code, err) == (0, "")
    assert "CONV, ifm 6x5x19 s8" in out
    data = json.loads(report.read_text())
    expected = run_on(load_program(program), [as_bytes(x)])
    assert data["outputs"] == [array.tolist() for array in expected]
    assert data["differing"] is None
    assert sum(entry["macs"] for entry in data["calls"]) == program.macs


def test_random_inputs_of_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Program
) -> None:
    file = tmp_path / "program"
    file.write_bytes(to_bytes(program))
    first, again, other = (call(capsys, "simulate", file, "--seed", seed) for seed in (3, 3, 4))
    assert first[0] == 0
    assert first == again != other


def test_a_program_of_several_invocations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = own_program(many_outputs(13))
    file = tmp_path / "program"
    file.write_bytes(to_bytes(program))
    code, out, _ = call(capsys, "disassemble", file)
    assert code == 0
    titles = [line for line in out.splitlines() if line.startswith("#")]
    assert titles == [f"# {program.name} {index}, ethos-u55-128" for index in range(3)]
    assert out.count("STOP") == 3
    code, out, _ = call(capsys, "simulate", file)
    assert code == 0
    assert [line[:10] for line in out.splitlines()[:3]] == [f"NPU call {n}" for n in range(3)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([np.zeros(255, np.int8)], "input 0 has the wrong size in bytes (got 255, limit 256)"),
        ([np.zeros(256, np.float32)], "input 0 must be int8 or uint8 (got float32)"),
        ([np.zeros(256, np.int8)] * 2, "wrong number of inputs (got 2, limit 1)"),
    ],
)
def test_inputs_that_a_program_cannot_take(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: Program,
    values: list[Array],
    message: str,
) -> None:
    file = tmp_path / "program"
    file.write_bytes(to_bytes(program))
    options: list[object] = []
    for index, array in enumerate(values):
        np.save(tmp_path / f"{index}.npy", array)
        options += ["--input", tmp_path / f"{index}.npy"]
    code, _, err = call(capsys, "simulate", file, *options)
    assert code == 2
    assert message in err


def two_functions(seed: int) -> bytes:
    """Return a network in which the CPU does the operator between two NPU functions."""
    net = NetBuilder("int8", seed)
    first, second = net.input((1, 6, 6, 3)), net.input((1, 6, 6, 3))
    x = net.arithmetic("SUB", net.conv2d(second, filters=3), first, scale=0.1, zero_point=3)
    y = net.log_softmax(net.reshape(x, (36, 3)))
    net.output(net.conv2d(net.reshape(y, (1, 6, 6, 3)), filters=4), x)
    return net.build()


def functions_of(
    network: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[Path, ...]:
    options = ("--accelerator", "ethos-u55-64", "-o", folder, "--quiet")
    assert call(capsys, "compile", network, *options)[0] == 0
    return tuple(sorted((folder / "npu").iterdir()))


def test_functions_of_a_network_are_compared_with_its_inner_tensors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    networks = tuple(tmp_path / f"{seed}.tflite" for seed in (1, 2))
    for seed, network in enumerate(networks):
        network.write_bytes(two_functions(seed))
    files = functions_of(networks[0], tmp_path / "out", capsys)
    assert len(files) == 2
    for file in files:
        code, out, err = call(capsys, "simulate", file, "--check", networks[0], "--seed", 3)
        assert (code, err) == (0, "")
        assert out.endswith("\n0 elements differ from TensorFlow Lite Micro\n")
        with pytest.raises(SystemExit, match="1"):
            call(capsys, "simulate", file, "--check", networks[1], "--seed", 3)


def test_a_program_of_another_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], original: Path
) -> None:
    network = tmp_path / "network.tflite"
    network.write_bytes(two_functions(1))
    file = functions_of(network, tmp_path / "out", capsys)[0]
    code, _, err = call(capsys, "simulate", file, "--check", original)
    assert code == 2
    assert "not the network that was compiled: it has no tensor" in err


def changed(program: Program, **fields: object) -> bytes:
    """Return the bytes of a program with other fields than it has."""
    head, _, constants = to_bytes(program).partition(b"\n")
    return json.dumps(json.loads(head) | fields).encode() + b"\n" + constants


def with_tensor(program: Program, **fields: object) -> bytes:
    tensors = json.loads(to_bytes(program).partition(b"\n")[0])["tensors"]
    return changed(program, tensors=[tensors[0] | fields, *tensors[1:]])


def with_invocation(program: Program, **fields: object) -> bytes:
    invocation = json.loads(to_bytes(program).partition(b"\n")[0])["invocations"][0]
    return changed(program, invocations=[invocation | fields])


def with_binding(program: Program, index: int, **fields: object) -> bytes:
    head = json.loads(to_bytes(program).partition(b"\n")[0])
    bindings = head["invocations"][0]["bindings"]
    bindings[index] |= fields
    return with_invocation(program, bindings=bindings)


DAMAGES: list[tuple[Callable[[Program], bytes], str]] = [
    (lambda p: to_bytes(p)[:40], "NPU program: not readable"),
    (lambda p: to_bytes(p)[:-1], "the constants have another size than stated"),
    (lambda p: b"{" * 100_000 + b"\n", "damaged: "),
    (lambda p: changed(p, invocations=3), "NPU program: not readable"),
    (lambda p: changed(p, more=3), "NPU program: not readable"),
    (lambda p: changed(p, name="a\nb"), "its name is not printable text"),
    (lambda p: changed(p, accelerator=["x"]), "no such accelerator (got ['x'])"),
    (lambda p: changed(p, scratch_bytes=-1), "a size is not a whole number of bytes"),
    (lambda p: changed(p, scratch_bytes=1e3), "a size is not a whole number of bytes"),
    (lambda p: changed(p, scratch_bytes=256 << 20), "it takes too many bytes"),
    (lambda p: with_tensor(p, offset=1 << 20), "a tensor is not in its memory"),
    (lambda p: with_tensor(p, first="a"), "a tensor is not in its memory"),
    (lambda p: with_tensor(p, last=-1), "a tensor is not in its memory"),
    (lambda p: changed(p, tensors=[3]), "NPU program: not readable"),
    (lambda p: changed(p, invocations=[]), "it has no command stream"),
    (lambda p: with_invocation(p, words=[-1]), "a command word is not a 32-bit number"),
    (lambda p: with_invocation(p, words="ab"), "a command word is not a 32-bit number"),
    (lambda p: with_invocation(p, words=[0xFF]), "simulator: word 0: unknown CMD0 code 0x0ff"),
    (lambda p: with_binding(p, 1, region=8), "no such base pointer (limit 7)"),
    (lambda p: with_binding(p, 1, region=2), "two memories for one base pointer"),
    (lambda p: with_binding(p, 0, size_bytes=1 << 20), "more bytes than there are"),
    (lambda p: with_binding(p, 2, argument=7), "base pointer 2: no such argument"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
@pytest.mark.parametrize("command", ["simulate", "disassemble"])
def test_damaged_programs(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    program: Program,
    command: str,
    damage: Callable[[Program], bytes],
    message: str,
) -> None:
    file = tmp_path / "program"
    file.write_bytes(damage(program))
    code, out, err = call(capsys, command, file)
    assert (code, out.startswith("NPU call")) == (2, False)
    assert message in err
    assert err.count("\n") == 1


def test_a_program_with_a_too_small_scratch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Program
) -> None:
    file = tmp_path / "program"
    file.write_bytes(with_binding(program, 1, size_bytes=16))
    code, _, err = call(capsys, "simulate", file)
    assert code == 2
    assert "is outside region 1 of 16 bytes" in err
    assert err.count("\n") == 1


def test_flipped_bits_in_a_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: Program
) -> None:
    """Whatever is flipped: it runs, or one sentence says why not."""
    data = to_bytes(program)
    rng = np.random.default_rng(5)
    file = tmp_path / "program"
    for position in rng.integers(8, len(data), 150):
        flipped = bytearray(data)
        flipped[position] ^= 1 << int(rng.integers(8))
        file.write_bytes(flipped)
        code, _, err = call(capsys, "simulate", file)
        assert code in (0, 2)
        assert err.count("\n") == (code == 2)


def run_simulate(*arguments: object) -> str:
    """Return the sentence of the UserError that ends the command."""
    result = CliRunner().invoke(simulate, [str(argument) for argument in arguments])
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda data: data[: len(data) // 2]])
def test_a_damaged_original(
    compiled: Path,
    original: Path,
    tmp_path: Path,
    given: bool,
    damage: Callable[[bytes], bytes],
) -> None:
    """It is read with every offset checked, also when inputs are given."""
    broken, values = tmp_path / "broken.tflite", tmp_path / "x.npy"
    broken.write_bytes(damage(original.read_bytes()))
    np.save(values, np.zeros((1, 12, 12, 5), np.int8))
    options = ["--input", values] if given else []
    assert str(broken) in run_simulate(compiled, "--check", broken, *options)


def other_network(shape: tuple[int, int, int, int], filters: int) -> bytes:
    net = NetBuilder("int8")
    net.output(net.conv2d(net.input(shape), filters=filters))
    return net.build()


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((1, 6, 6, 5), r"inputs int8 [1, 6, 6, 5] (got int8 [1, 12, 12, 5])"),
        ((1, 12, 12, 5), r"outputs of [1008] bytes (got [4])"),
    ],
)
def test_an_original_of_another_network(
    compiled: Path, tmp_path: Path, given: bool, shape: tuple[int, int, int, int], text: str
) -> None:
    other, values = tmp_path / "other.tflite", tmp_path / "x.npy"
    other.write_bytes(other_network(shape, 7))
    np.save(values, np.zeros((1, 12, 12, 5), np.int8))
    options = ["--input", values] if given else []
    found = run_simulate(compiled, "--check", other, *options)
    assert found == f"{other}: not the network that was compiled: {text}"


def test_raw_output_is_checked_with_inputs_given_as_bytes(original: Path, tmp_path: Path) -> None:
    file = compile_with_vela(original, tmp_path, VelaOptions(Accelerator.U55_128), raw=True)
    values, other = tmp_path / "x.npy", tmp_path / "other.tflite"
    np.save(values, np.random.default_rng(3).integers(0, 256, 720).astype(np.uint8))
    result = CliRunner().invoke(
        simulate, [str(file), "--input", str(values), "--check", str(original)]
    )
    assert result.exit_code == 0, result.output
    assert "0 elements differ" in result.output
    other.write_bytes(other_network((1, 12, 12, 4), 7))
    text = "inputs of [576] bytes (got [720])"
    assert text in run_simulate(file, "--input", values, "--check", other)
    np.save(values, np.zeros(5, np.uint8))
    assert f"{file}: input has 5 bytes (limit 720)" == run_simulate(file, "--input", values)


@pytest.mark.parametrize(
    "header", [b"(99999999999999,)}", b"(4,), (          }", b"(4*4,),          }", b"(4,), \0"]
)
def test_arrays_that_cannot_be_read(compiled: Path, tmp_path: Path, header: bytes) -> None:
    """Numpy reads the header as Python text, and raises what that raises."""
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(4, np.int8))
    data = path.read_bytes()
    at = data.index(b"(4,)")
    path.write_bytes(data[:at] + header + data[at + len(header) :])
    found = run_simulate(compiled, "--input", path)
    assert found.startswith(f"{path}: not a readable .npy file (")
    assert "\n" not in found


def test_an_archive_is_no_input(compiled: Path, tmp_path: Path) -> None:
    archive = tmp_path / "x.npz"
    np.savez(archive, x=np.zeros(4))
    text = "not a readable .npy file (an archive of several arrays)"
    assert run_simulate(compiled, "--input", archive) == f"{archive}: {text}"


def test_a_file_of_another_kind(compiled: Path, tmp_path: Path) -> None:
    payload = tmp_path / "payload.bin"
    payload.write_bytes(read_network(compiled.read_bytes()).payloads[0])
    text = "neither TFLite, Vela's raw output nor a program"
    assert run_simulate(payload) == f"{payload}: {text}"
