"""Damaged streams end in a SimulationError: no other exception, no hang, no unbounded memory."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backend.sim.assembler import assemble, encode
from tests.backend.sim.test_memory import absolute, convolution, lut
from tvm_ethosu.backend.sim import Accelerator, Region, SimulationError, decode, payload_words, run
from tvm_ethosu.backend.sim.registers import REGISTERS

LONGEST_SECONDS = 20
ACCELERATORS = st.sampled_from(Accelerator)


def attempt(words: list[int], accelerator: Accelerator, constants: bytes, *, strict: bool) -> bool:
    """Run words on small regions; return whether they ran to the end."""
    regions = {
        0: Region(np.frombuffer(constants, np.uint8), read_only=True),
        1: Region(np.zeros(4096, np.uint8), initialised=False, written=((0, 2048),)),
        2: Region(np.zeros(4096, np.uint8)),
    }
    start = time.monotonic()
    ended = True
    try:
        run(decode(words, accelerator), regions, strict=strict)
    except SimulationError:
        ended = False
    assert time.monotonic() - start < LONGEST_SECONDS
    return ended


@settings(max_examples=300, deadline=None)
@given(words=st.lists(st.integers(0, 0xFFFFFFFF), max_size=40), accelerator=ACCELERATORS)
def test_random_words(words: list[int], accelerator: Accelerator) -> None:
    attempt(words, accelerator, bytes(64), strict=True)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=80))
def test_random_payloads(data: bytes) -> None:
    for payload in (data, b"COP1" + data):
        try:
            words = payload_words(payload)
        except SimulationError:
            continue
        assert len(words) <= len(payload) // 4


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    commands=st.lists(
        st.tuples(st.sampled_from(REGISTERS), st.integers(0, 0xFFFFFFFF), st.booleans()),
        max_size=30,
    ),
    accelerator=ACCELERATORS,
    strict=st.booleans(),
)
def test_random_registers(
    commands: list[tuple[object, int, bool]], accelerator: Accelerator, strict: bool
) -> None:
    """Known commands with random values, small ones half of the time, after a valid operation."""
    start, constants = convolution()
    words = assemble(start)[:-1]
    for register, value, small in commands:
        words += encode(register.name, value & 15 if small else value)  # type: ignore[attr-defined]
    words += encode("CONV", 0) + encode("STOP", 0xFFFF)
    attempt(words, accelerator, constants, strict=strict)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits(seed: int) -> None:
    generator = random.Random(seed)
    convolution_commands, constants = convolution()
    commands = [*lut(), *absolute(ACTIVATION=16), ("ACTIVATION", 0), *convolution_commands]
    words = assemble(commands)
    ended = 0
    for _ in range(400):
        damaged = list(words)
        for _ in range(generator.choice([1, 1, 2, 4])):
            damaged[generator.randrange(len(words))] ^= 1 << generator.randrange(32)
        if generator.random() < 0.2:
            damaged = damaged[: generator.randrange(len(words))]
        data = bytearray(constants)
        if generator.random() < 0.3:
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        accelerator = generator.choice([Accelerator.U55_128, Accelerator.U65_512])
        ended += attempt(damaged, accelerator, bytes(data), strict=generator.random() < 0.5)
    assert 0 < ended < 400
