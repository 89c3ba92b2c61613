"""``tvm-ethosu simulate`` and ``tvm-ethosu disassemble``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from tvm_ethosu.backend.arrays import load_array
from tvm_ethosu.backend.cli_options import JSON, say, working
from tvm_ethosu.backend.original import Original, Result, about
from tvm_ethosu.backend.outputs import write_json
from tvm_ethosu.backend.program import (
    Binding,
    Invocation,
    Program,
    ScratchTensor,
    Source,
    from_bytes,
)
from tvm_ethosu.backend.sim import (
    SYSTEM_CONFIGS,
    Accelerator,
    CycleReport,
    MemoryMode,
    RunReport,
    SimulationError,
    Stream,
    SystemConfig,
    estimate,
    payload_words,
)
from tvm_ethosu.backend.sim.disassemble import describe
from tvm_ethosu.backend.sim.disassemble import disassemble as lines_of
from tvm_ethosu.backend.sim.hardware import FAST_REGION
from tvm_ethosu.backend.sim.operations import BlockOperation, Dma
from tvm_ethosu.backend.sim.words import payload_accelerator
from tvm_ethosu.backend.vela_files import (
    Array,
    Network,
    Tensor,
    read_network,
    run_network,
)
from tvm_ethosu.backend.vela_raw import read_raw, run_raw
from tvm_ethosu.scheduler.arch import MAX_REGIONS
from tvm_ethosu.scheduler.errors import InternalError, UserError

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_MAX_PROGRAM_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class Listing:
    """One command stream of a file."""

    title: str
    accelerator: Accelerator
    words: tuple[int, ...]


@dataclass(frozen=True)
class Estimates:
    """How long each stream of a run takes, and on which system."""

    system: SystemConfig
    mode: MemoryMode
    reports: tuple[CycleReport, ...]

    @classmethod
    def of(cls, result: Result, system_config: str | None, memory_mode: str | None) -> Estimates:
        """Estimate the streams of a run. Raises UserError, SimulationError."""
        is_u65 = result.streams[0].accelerator.is_u65
        product = "Ethos_U65" if is_u65 else "Ethos_U55"
        name = system_config or f"{product}_High_End{'' if is_u65 else '_Embedded'}"
        if not name.startswith(product):
            raise UserError(f"--system-config: {name} is not a system of this NPU ({product})")
        # Vela's third memory is there only where SRAM is a cache; in our programs it is an input.
        cached = not result.is_program and any(_uses_fast_scratch(s) for s in result.streams)
        default = MemoryMode.DEDICATED_SRAM if cached else MemoryMode.SHARED_SRAM
        mode = default if memory_mode is None else MemoryMode(memory_mode)
        system = SYSTEM_CONFIGS[name]
        return cls(system, mode, tuple(estimate(s, system, mode) for s in result.streams))

    @property
    def total_cycles(self) -> float:
        """Return the cycles of all streams, one after the other."""
        return sum(report.total for report in self.reports)


def _uses_fast_scratch(stream: Stream) -> bool:
    regions: set[int] = set()
    for op in stream.operations:
        if isinstance(op, Dma):
            regions |= {end.region for end in (op.source, op.destination) if not end.internal}
        elif isinstance(op, BlockOperation):
            regions |= {op.ifm.region, op.ofm.region}
    return FAST_REGION in regions


@click.command()
@_FILE
@click.option("--offsets", is_flag=True, help="Put the word offset in front of each line.")
@JSON
def disassemble(file: Path, offsets: bool, json_path: Path | None) -> None:
    """Print the command streams of FILE as text that can be compared with diff.

    FILE is a TFLite file compiled by Vela, Vela's raw output (.npz), a driver payload, or an NPU
    program of this compiler.
    """
    with _reported():
        listings = read_listings(file)
        if not listings:
            raise UserError(f"{file}: holds no command stream; was it compiled by Vela?")
        with working(f"reading {file.name}"):
            texts = [list(lines_of(x.words, x.accelerator, offsets=offsets)) for x in listings]
    streams = [
        {"title": x.title, "accelerator": x.accelerator.value, "words": len(x.words), "lines": text}
        for x, text in zip(listings, texts, strict=True)
    ]
    if json_path is not None:
        write_json(json_path, {"file": file.name, "streams": streams})
    for listing, text in zip(listings, texts, strict=True):
        say("\n".join([f"# {listing.title}, {listing.accelerator.value}", *text]))


@click.command()
@_FILE
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An input as .npy; repeat for each input of the network.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of random inputs, if none are given.",
    default=0,
)
@click.option(
    "--check",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The network before compilation: compare with TensorFlow Lite Micro on it.",
)
@click.option("--trace", is_flag=True, help="Print every operation and the cycles it takes.")
@click.option(
    "--system-config",
    type=click.Choice(list(SYSTEM_CONFIGS)),
    help="Memory system that cycles are estimated for; by default High_End of the product.",
)
@click.option(
    "--memory-mode",
    type=click.Choice([mode.value for mode in MemoryMode]),
    help="Where it keeps the arena; by default what the stream's use of region 2 suggests.",
)
@JSON
def simulate(
    file: Path, inputs: tuple[Path, ...], seed: int, check: Path | None, trace: bool,
    system_config: str | None, memory_mode: str | None, json_path: Path | None,
) -> None:  # fmt: skip
    """Run FILE on the simulator.

    FILE is a TFLite file compiled by Vela, Vela's raw output (.npz), or an NPU program of this
    compiler. The latter two take inputs as bytes, of type int8 or uint8 for a program; with
    --check they take the inputs of that network.
    """
    with _reported():
        original = None if check is None else Original.read(check)
        with working(f"simulating {file.name}"):
            result = _simulate(file, inputs, seed, original)
            estimates = Estimates.of(result, system_config, memory_mode)
        if trace:
            _print_trace(result, estimates)
        _print_outputs(result, estimates)
    if json_path is not None:
        write_json(json_path, _report(result, estimates))
    if result.differing is not None:
        say(f"{result.differing} elements differ from TensorFlow Lite Micro")
        if result.differing:
            raise SystemExit(1)


def read_listings(file: Path) -> list[Listing]:
    """Return the command streams of a file, whatever its kind. Raises UserError."""
    data = file.read_bytes()
    if data[4:8] == b"TFL3":
        with about(file):
            network = read_network(data)
        return [
            _listing(f"NPU call {index}", payload) for index, payload in enumerate(network.payloads)
        ]
    if data[:4] == b"COP1":
        return [_listing("driver payload", data)]
    if data[:2] == b"PK":
        return [_listing("raw output", read_raw(file).payload)]
    if data[:1] == b"{":
        program = read_program(file, data)
        return [
            Listing(f"{program.name} {index}", Accelerator(program.accelerator), invocation.words)
            for index, invocation in enumerate(program.invocations)
        ]
    raise UserError(f"{file}: neither TFLite, Vela's raw output, a driver payload nor a program")


def read_program(file: Path, data: bytes) -> Program:
    """Return the NPU program in these bytes of a file. Raises UserError when it is damaged."""
    try:
        program = from_bytes(data)
    except (InternalError, RecursionError) as error:
        raise UserError(f"{file}: damaged: {' '.join(str(error).split())}") from None
    for problem in _problems(program):
        raise UserError(f"{file}: damaged NPU program: {problem}")
    return program


def run_own(
    file: Path,
    data: bytes,
    seed: int,
    given: tuple[Array, ...],
    original: Original | None = None,
) -> Result:
    """Run an NPU program of this compiler; ``given`` are the original's inputs where there is one.

    Raises UserError.
    """
    from tvm_ethosu.backend.host import as_bytes, load_program, run_program

    program = read_program(file, data)
    expected = None
    if original is not None:
        given, expected = original.arguments(program, given)
    rng = np.random.default_rng(seed)
    values = given or tuple(
        rng.integers(0, 256, argument.size_bytes, np.uint8) for argument in program.inputs
    )
    if original is None:
        _check_bytes(file, values, program)
    loaded = load_program(program)
    outputs = tuple(np.zeros(argument.size_bytes, np.uint8) for argument in program.outputs)
    scratch = np.zeros(max(program.scratch_bytes, 1), np.uint8)
    reports = run_program(loaded, [*(as_bytes(value) for value in values), *outputs, scratch])
    return Result(loaded.streams, reports, outputs, expected, is_program=True)


def _check_bytes(file: Path, values: tuple[Array, ...], program: Program) -> None:
    """Check that inputs are the bytes that a program takes. Raises UserError."""
    _check_count(file, values, len(program.inputs))
    for index, (value, argument) in enumerate(zip(values, program.inputs, strict=True)):
        if value.dtype not in (np.int8, np.uint8):
            raise UserError(f"input {index} must be int8 or uint8 (got {value.dtype})")
        if value.size != argument.size_bytes:
            raise UserError(f"input {index} has the wrong size in bytes (got {value.size}, "
                            f"limit {argument.size_bytes})")  # fmt: skip


def _run_raw(file: Path, seed: int, given: tuple[Array, ...], original: Original | None) -> Result:
    raw = read_raw(file)
    rng = np.random.default_rng(seed)
    values = given or tuple(
        rng.integers(0, 256, place.stop - place.start).astype(np.uint8) for place in raw.inputs
    )
    _check_count(file, values, len(raw.inputs))
    with about(file):
        stream, report, outputs = run_raw(raw, values)
    result = Result((stream,), (report,), outputs)
    return result if original is None else original.judge(original.typed(values), result)


def _run_tflite(
    file: Path, data: bytes, seed: int, given: tuple[Array, ...], original: Original | None
) -> Result:
    with about(file):
        network = read_network(data)
    if not network.streams:
        raise UserError(f"{file}: no operator of it runs on the NPU; was it compiled by Vela?")
    if original is not None:
        original.check_inputs(network)
    values = given or random_inputs(network, seed)
    _check_count(file, values, len(network.inputs))
    for index, value in zip(network.inputs, values, strict=True):
        _check_type(network.tensors[index], value)
    run = run_network(network, values)
    result = Result(network.streams, run.reports, run.outputs)
    return result if original is None else original.judge(values, result)


def _check_count(file: Path, values: tuple[Array, ...], inputs: int) -> None:
    if len(values) != inputs:
        raise UserError(f"{file}: wrong number of inputs (got {len(values)}, limit {inputs})")


def _simulate(file: Path, paths: tuple[Path, ...], seed: int, original: Original | None) -> Result:
    """Run a file on the inputs given, else on random ones of the types of the original."""
    given = tuple(load_array(path) for path in paths)
    data = file.read_bytes()
    if not given and original is not None:
        given = random_inputs(original.network, seed)
    if data[:1] == b"{":
        return run_own(file, data, seed, given, original)
    if data[:2] == b"PK":
        return _run_raw(file, seed, given, original)
    if data[4:8] != b"TFL3":
        raise UserError(f"{file}: neither TFLite, Vela's raw output nor a program")
    return _run_tflite(file, data, seed, given, original)


def _check_type(tensor: Tensor, value: Array) -> None:
    """Check that an input is what the network states. Raises UserError."""
    dtype = np.dtype(tensor.dtype)
    if (value.dtype, value.shape) != (dtype, tensor.shape):
        raise UserError(
            f"input {tensor.name!r} is {dtype.name} of shape {list(tensor.shape)} "
            f"(got {value.dtype.name} of shape {list(value.shape)})"
        )


def random_inputs(network: Network, seed: int) -> tuple[Array, ...]:
    """Return one full-range random array per input of a network."""
    rng = np.random.default_rng(seed)
    values = []
    for index in network.inputs:
        tensor = network.tensors[index]
        dtype = np.dtype(tensor.dtype)
        if dtype.kind == "f":
            values.append(rng.standard_normal(tensor.shape).astype(dtype))
        else:
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            values.append(rng.integers(low, high, tensor.shape, endpoint=True).astype(dtype))
    return tuple(values)


def _print_trace(result: Result, estimates: Estimates) -> None:
    for stream, report in zip(result.streams, estimates.reports, strict=True):
        times = {op.offset: op for op in report.operations}
        for op in stream.operations:
            time = times.get(op.offset)
            text = "" if time is None else f", cycles {time.start:.0f} to {time.end:.0f}"
            say(f"{op.offset:6}  {describe(op)}{text}")


def _print_outputs(result: Result, estimates: Estimates) -> None:
    for index, report in enumerate(result.reports):
        say(f"NPU call {index}: {len(report.operations)} operations, "
                   f"{report.total_macs} MACs")  # fmt: skip
    say(f"estimate: {estimates.total_cycles:.0f} cycles "
               f"({estimates.system.name}, {estimates.mode.value})")  # fmt: skip
    for index, output in enumerate(result.outputs):
        text = np.array2string(output.reshape(-1), threshold=16)
        say(f"output {index} {output.dtype} {list(output.shape)}: {text}")


def _report(result: Result, estimates: Estimates) -> dict[str, Any]:
    outputs = [output.tolist() for output in result.outputs]
    return {
        "system_config": estimates.system.name,
        "memory_mode": estimates.mode.value,
        "core_clock_hz": estimates.system.core_clock_hz,
        "cycles": estimates.total_cycles,
        "calls": [
            _call_report(*call) for call in zip(result.reports, estimates.reports, strict=True)
        ],
        "outputs": outputs,
        "differing": result.differing,
    }


def _call_report(report: RunReport, cycles: CycleReport) -> dict[str, Any]:
    times = {
        op.offset: {
            "npu_cycles": op.npu_cycles,
            "cycles": op.total,
            "start": op.start,
            "end": op.end,
        }
        for op in cycles.operations
    }
    operations = [asdict(op) | times.get(op.offset, {}) for op in report.operations]
    return {"macs": report.total_macs, "cycles": cycles.total, "operations": operations}


def _problems(program: Program) -> Iterator[str]:
    """Yield what is wrong with a program; what comes after the first is not to be relied on."""
    arguments = (*program.inputs, *program.outputs)
    if not (isinstance(program.name, str) and program.name.isprintable()):
        yield "its name is not printable text"
    if program.accelerator not in [accelerator.value for accelerator in Accelerator]:
        yield f"no such accelerator (got {program.accelerator!r})"
    sizes = (program.scratch_bytes, *(argument.size_bytes for argument in arguments))
    if not all(_is_below(size, _MAX_PROGRAM_BYTES + 1) for size in sizes):
        yield f"a size is not a whole number of bytes (limit {_MAX_PROGRAM_BYTES})"
    if sum(sizes) > _MAX_PROGRAM_BYTES:
        yield f"it takes too many bytes (got {sum(sizes)}, limit {_MAX_PROGRAM_BYTES})"
    for tensor in program.tensors:
        if not _is_in_place(tensor, program):
            yield f"a tensor is not in its memory (scratch has {program.scratch_bytes} bytes)"
            break
    if not program.invocations:
        yield "it has no command stream"
    for index, invocation in enumerate(program.invocations):
        yield from (f"invocation {index}: {text}" for text in _faults(program, invocation))


def _faults(program: Program, invocation: Invocation) -> Iterator[str]:
    """Yield what is wrong with an invocation, as ``_problems`` does."""
    if not all(_is_below(word, 1 << 32) for word in invocation.words):
        yield "a command word is not a 32-bit number"
    regions = [binding.region for binding in invocation.bindings]
    if not all(_is_below(region, MAX_REGIONS) for region in regions):
        yield f"no such base pointer (limit {MAX_REGIONS - 1})"
    if len(set(regions)) != len(regions):
        yield "two memories for one base pointer"
    for binding in invocation.bindings:
        held = _bytes_behind(program, binding)
        if held is None:
            yield f"base pointer {binding.region}: no such argument"
        elif not _is_below(binding.size_bytes, held + 1):
            yield f"base pointer {binding.region}: more bytes than there are (limit {held})"


def _bytes_behind(program: Program, binding: Binding) -> int | None:
    """Return how many bytes a base pointer may cover, None if it has no such argument."""
    match binding.source:
        case Source.CONSTANTS:
            return len(program.constants)
        case Source.SCRATCH:
            return program.scratch_bytes
        case Source.ARGUMENT:
            arguments = (*program.inputs, *program.outputs)
            known = _is_below(binding.argument, len(arguments))
            return arguments[binding.argument].size_bytes if known else None


def _is_in_place(tensor: ScratchTensor, program: Program) -> bool:
    held = program.scratch_bytes
    if tensor.argument is not None:
        arguments = (*program.inputs, *program.outputs)
        if not _is_below(tensor.argument, len(arguments)):
            return False
        held = arguments[tensor.argument].size_bytes
    numbers = (tensor.offset, tensor.size_bytes, tensor.last)
    # What a transfer brings before the first kernel is there from -1 on.
    begins = tensor.first == -1 or _is_below(tensor.first, 1 << 31)
    known = begins and all(_is_below(number, 1 << 31) for number in numbers)
    if not (isinstance(tensor.name, str) and known):
        return False
    return tensor.offset + tensor.size_bytes <= held and tensor.first <= tensor.last


def _is_below(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def _listing(title: str, payload: bytes) -> Listing:
    return Listing(title, payload_accelerator(payload), payload_words(payload))


@contextmanager
def _reported() -> Iterator[None]:
    """Turn an error of the stream into one of the command line."""
    try:
        yield
    except SimulationError as error:
        raise UserError(f"simulator: {error}") from error
