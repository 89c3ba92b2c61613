"""Words to commands: the encoding layer, which knows the register table and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.errors import DecodeError
from tvm_ethosu.backend.sim.registers import BY_CODE, Register, Space, Width

Words: TypeAlias = "Sequence[int] | np.ndarray[Any, np.dtype[Any]]"

_PAYLOAD_TAG_CONFIG = 1
_PAYLOAD_TAG_STREAM = 2
_PAYLOAD_TAG_NOP = 5


@dataclass(frozen=True)
class Command:
    """One command with the index of its first word and its value.

    ``value`` is the parameter (sign-extended if the register is signed) of a CMD0 command, the
    address, word or ``multiplier | shift << 32`` of a CMD1 command.
    """

    offset: int
    register: Register
    value: int


def read_commands(words: Words, accelerator: Accelerator) -> Iterator[Command]:
    """Yield the commands of a stream up to and including STOP.

    Raises DecodeError for unknown codes, reserved bits, a missing payload, words after STOP, a
    missing STOP, and registers the accelerator does not have.
    """
    stream = _as_ints(words)
    index = 0
    while index < len(stream):
        command = _read_command(stream, index, accelerator)
        yield command
        index += 1 + command.register.space.value
        if command.register.name == "STOP":
            break
    else:
        raise DecodeError(f"the stream of {len(stream)} words does not end with STOP")
    if index != len(stream):
        raise DecodeError(f"{len(stream) - index} words follow STOP", offset=index)


def _as_ints(words: Words) -> list[int]:
    try:
        stream = [int(word) for word in words]
    except (TypeError, ValueError) as error:
        raise DecodeError(f"words must be integers: {error}") from None
    for index, word in enumerate(stream):
        if not 0 <= word <= 0xFFFFFFFF:
            raise DecodeError(f"{word:#x} is not a 32-bit word", offset=index)
    return stream


def _read_command(stream: list[int], index: int, accelerator: Accelerator) -> Command:
    word = stream[index]
    size = word >> 14 & 3
    code = word & 0x3FF
    if size > Space.CMD1.value:
        raise DecodeError(f"word {word:#010x} announces {size} payload words", offset=index)
    if word & 0x3C00:
        raise DecodeError(f"word {word:#010x} has reserved bits 13:10 set", offset=index)
    register = BY_CODE.get((size, code))
    if register is None:
        raise DecodeError(f"unknown CMD{size} code {code:#05x}", offset=index)
    if register.u65_only and not accelerator.is_u65:
        raise DecodeError(f"{register.name} does not exist on {accelerator.value}", offset=index)
    parameter = word >> 16
    if register.space is Space.CMD0:
        return Command(index, register, _parameter(register, parameter, index))
    if index + 1 >= len(stream):
        raise DecodeError(f"the payload of {register.name} is missing", offset=index)
    payload = stream[index + 1]
    return Command(index, register, _payload(register, parameter, payload, index, accelerator))


def _parameter(register: Register, value: int, index: int) -> int:
    if value & ~register.used_bits:
        raise DecodeError(f"{register.name} has reserved bits set in {value:#06x}", offset=index)
    for field in register.fields:
        if field.legal is not None and field.extract(value) not in field.legal:
            text = f"{register.name}.{field.name} has no value {field.extract(value)}"
            raise DecodeError(text, offset=index)
    return value - 0x10000 if register.signed and value & 0x8000 else value


def _payload(
    register: Register, parameter: int, payload: int, index: int, accelerator: Accelerator
) -> int:
    if register.width is Width.STRIDE:
        return _stride(register, parameter, payload, index, accelerator)
    allowed = 0
    if register.width is Width.ADDRESS:
        allowed = (1 << (accelerator.address_bits - 32)) - 1
    elif register.width is Width.SCALE:
        allowed = 0x3F
    if parameter & ~allowed:
        text = f"{register.name} has reserved bits set in its parameter {parameter:#06x}"
        raise DecodeError(text, offset=index)
    if payload >> register.payload_bits:
        text = f"{register.name} has reserved bits set in its payload {payload:#010x}"
        raise DecodeError(text, offset=index + 1)
    return payload | parameter << 32


def _stride(
    register: Register, parameter: int, payload: int, index: int, accelerator: Accelerator
) -> int:
    """Return a signed stride; a negative one mirrors an axis."""
    bits = accelerator.address_bits
    value = payload | parameter << 32
    low = value & ((1 << bits) - 1)
    signed = low - (1 << bits) if low >> (bits - 1) else low
    extensions = {signed & ((1 << width) - 1) for width in (bits, 40, 48)}
    if value not in extensions:
        text = f"{register.name} has reserved bits set in its parameter {parameter:#06x}"
        raise DecodeError(text, offset=index)
    return signed


def payload_words(payload: bytes) -> tuple[int, ...]:
    """Return the command stream inside a driver payload (``COP1`` ...).

    Raises DecodeError when the payload is damaged or carries no command stream.
    """
    if len(payload) % 4 or len(payload) < 8 or payload[:4] != b"COP1":
        raise DecodeError("not a driver payload: no COP1 at its start or a size not in words")
    words = struct.unpack(f"<{len(payload) // 4}I", payload)
    index = 1
    while index < len(words):
        tag = words[index] & 0xFF
        if tag == _PAYLOAD_TAG_STREAM:
            length = (words[index] >> 8 & 0xFF) << 16 | words[index] >> 16
            if index + 1 + length > len(words):
                raise DecodeError(f"the driver payload announces {length} words, has fewer")
            return words[index + 1 : index + 1 + length]
        if tag == _PAYLOAD_TAG_CONFIG:
            index += 3
        elif tag == _PAYLOAD_TAG_NOP:
            index += 1
        else:
            raise DecodeError(f"driver payload tag {tag} is unknown")
    raise DecodeError("the driver payload carries no command stream")


def payload_accelerator(payload: bytes) -> Accelerator:
    """Return the accelerator a driver payload was made for.

    The configuration word has log2 of the multipliers in [3:0] and the product in [31:28].
    Raises DecodeError when there is no such word or no such accelerator.
    """
    if len(payload) < 16 or payload[:4] != b"COP1":
        raise DecodeError("not a driver payload: no COP1 at its start")
    tag, config = struct.unpack("<2I", payload[4:12])
    if tag & 0xFF != _PAYLOAD_TAG_CONFIG:
        raise DecodeError("the driver payload does not begin with a configuration")
    macs, is_u65 = 1 << (config & 0xF), config >> 28 == 1
    for accelerator in Accelerator:
        if accelerator.macs == macs and accelerator.is_u65 == is_u65:
            return accelerator
    raise DecodeError(f"the driver payload is for product {config >> 28} with {macs} MACs")
