"""What all tests share: where shared data is, whether a compiler is there, a network to work on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MLPERF_TINY = (
    "mlperf_tiny/ad01_int8",
    "mlperf_tiny/kws_ref_model",
    "mlperf_tiny/pretrainedResnet_quant",
    "mlperf_tiny/str_ww_ref_model",
    "mlperf_tiny/vww_96_int8",
    "tflm/person_detect",
)


def shared_folder() -> Path | None:
    """Return the folder of shared models, None where it is absent."""
    path = Path(os.environ.get("TVM_ETHOSU_SHARED", REPOSITORY.parent / "shared"))
    return path if (path / "models").is_dir() else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of shared models; a test that needs it is skipped where it is absent."""
    path = shared_folder()
    if path is None:
        pytest.skip("the shared models are not on this machine (TVM_ETHOSU_SHARED)")
    return path


@pytest.fixture(scope="session")
def gcc() -> str:
    """Return the path of gcc; a test that needs it is skipped where there is none."""
    path = shutil.which("gcc")
    if path is None:
        pytest.skip("gcc is not installed")
    return path


@pytest.fixture(scope="session")
def arm_gcc() -> str:
    """Return the path of Arm's gcc; a test that builds firmware is skipped where there is none."""
    path = shutil.which("arm-none-eabi-gcc")
    if path is None:
        pytest.skip("arm-none-eabi-gcc is not installed (Debian: gcc-arm-none-eabi)")
    return path
