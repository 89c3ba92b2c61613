"""Command streams as text: one line per command, made to be compared with ``diff``."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.decode import decode
from tvm_ethosu.backend.sim.operations import (
    BlockOperation,
    Conv,
    Depthwise,
    Dma,
    DmaEnd,
    Elementwise,
    FeatureMap,
    Operation,
)
from tvm_ethosu.backend.sim.registers import Role, Width
from tvm_ethosu.backend.sim.words import Command, Words, read_commands


def disassemble(words: Words, accelerator: Accelerator, *, offsets: bool = False) -> Iterator[str]:
    """Yield lines: registers as they are set, and each operation with what it will do.

    ``offsets`` puts the word offset in front; without it two streams that differ in one command
    differ in one line. Raises DecodeError.
    """
    operations = {op.offset: op for op in decode(words, accelerator).operations}
    for command in read_commands(words, accelerator):
        prefix = f"{command.offset:6}  " if offsets else ""
        if command.register.role is Role.SET:
            yield f"{prefix}    {command.register.name} {_value(command)}"
        else:
            yield f"{prefix}{describe(operations[command.offset])}"


def describe(op: Operation) -> str:
    """Return one line that says what an operation reads and writes."""
    if isinstance(op, Dma):
        return f"{op.kind} {_end(op.source)} -> {_end(op.destination)} {op.length} bytes"
    if not isinstance(op, BlockOperation):
        own = {
            name: value for name, value in vars(op).items() if name not in ("offset", "registers")
        }
        return " ".join([op.kind, *(f"{name}={value}" for name, value in own.items())])
    kernel, block = op.kernel, op.block
    parts = [op.kind, f"ifm {_map(op.ifm)}"]
    if isinstance(op, Elementwise) and not op.mode.is_unary:
        parts.append(f"scalar {op.scalar}" if op.ifm2 is None else f"ifm2 {_map(op.ifm2)}")
    parts.append(f"ofm {_map(op.ofm)}")
    if not isinstance(op, Elementwise):
        parts.append(f"kernel {kernel.height}x{kernel.width}")
    if isinstance(op, Conv | Depthwise):
        parts += [
            f"weights r{core.weights.region}[{core.weights.start:#x}, {core.weights.stop:#x})"
            for core in op.parameters
        ]
    parts.append(f"block {block.height}x{block.width}x{block.depth}")
    return ", ".join(parts)


def _value(command: Command) -> str:
    register, value = command.register, command.value
    if register.width is Width.SCALE:
        return f"{value & 0xFFFFFFFF} >> {value >> 32}"
    if register.width in (Width.ADDRESS, Width.STRIDE):
        return f"{value:#x}"
    if len(register.fields) < 2:
        return str(value)
    return " ".join(f"{field.name}={field.extract(value)}" for field in register.fields)


def _map(fm: FeatureMap) -> str:
    shape, base = fm.shape, fm.bases[0] or 0
    size = f"{shape.height}x{shape.width}x{shape.depth}"
    return f"{size} {fm.type.name.lower()} {fm.layout.name} r{fm.region}+{base:#x}"


def _end(end: DmaEnd) -> str:
    return f"{'shram' if end.internal else f'r{end.region}'}+{end.address:#x}"
