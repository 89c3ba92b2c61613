"""NPU functions as C source: constants, command streams, and a call into the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jinja2
import tvm

from tvm_ethosu.backend.program import Binding, Program, Source
from tvm_ethosu.scheduler.arch import MemoryMode


def _lines(values: Sequence[str], per_line: int) -> Iterator[str]:
    for start in range(0, len(values), per_line):
        yield ", ".join(values[start : start + per_line]) + ","


# There are megabytes of them: looked up, not written out one by one.
_BYTES = tuple(f"0x{byte:02x}" for byte in range(256))


def byte_lines(data: bytes) -> list[str]:
    """Return bytes as the lines of a C initializer."""
    return list(_lines([_BYTES[byte] for byte in data], 16))


def _word_lines(words: Sequence[int]) -> list[str]:
    return list(_lines([f"0x{word:08x}" for word in words], 8))


def _pointer(binding: Binding, program: Program) -> str:
    match binding.source:
        case Source.CONSTANTS:
            return f"{program.name}_constants"
        case Source.SCRATCH:
            return "scratch"
        case Source.ARGUMENT:
            return _parameter(binding.argument, program)


def _parameter(argument: int, program: Program) -> str:
    """Return the name of a parameter in C."""
    inputs = len(program.inputs)
    return f"input{argument}" if argument < inputs else f"output{argument - inputs}"


def _copied(pair: tuple[int, int] | None, program: Program) -> tuple[str, str, int] | None:
    """Return target, source and bytes of what is copied between two parameters."""
    if pair is None:
        return None
    arguments = (*program.inputs, *program.outputs)
    to, source = (_parameter(argument, program) for argument in pair)
    return to, source, min(arguments[argument].size_bytes for argument in pair)


def accelerator_macro(accelerator: str) -> str:
    """Return an accelerator as driver.h names it, such as ``U55_128``."""
    return accelerator.removeprefix("ethos-").replace("-", "_").upper()


def render(template: str, **values: Any) -> str:
    """Return a C template of this package with its values filled in."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tvm_ethosu.backend", "templates"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def c_source(program: Program, memory_mode: str) -> str:
    """Return the C source of an NPU function, for TVM's unpacked calling convention."""
    sections = {MemoryMode.SRAM_ONLY.value: "TVM_ETHOSU_CONSTANTS_IN_SRAM"}
    return render(
        "npu_function.c.in",
        program=program,
        accelerator=accelerator_macro(program.accelerator),
        constants=byte_lines(program.constants),
        streams=[_word_lines(invocation.words) for invocation in program.invocations],
        word_counts=[len(invocation.words) for invocation in program.invocations],
        bindings=[
            [(b.region, _pointer(b, program), b.size_bytes) for b in invocation.bindings]
            for invocation in program.invocations
        ],
        copied_in=_copied(program.copied_in, program),
        copied_out=_copied(program.copied_out, program),
        placement=sections.get(memory_mode, "TVM_ETHOSU_CONSTANTS_IN_FLASH"),
    )


def c_module(program: Program, memory_mode: str) -> tvm.runtime.Module:
    """Return TVM's module of the C source."""
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    return create(c_source(program, memory_mode), "c", [program.name], [])
