"""Options and inputs that are no such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tests.backend.error_ways.desk import Way, cli, given, python
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.scheduler.arch import ARCHS
from tvm_ethosu.scheduler.hardware import make_target


def _explain_with(*options: str) -> Way:
    return cli("explain", "model.tflite", *options)


OPTIONS: Mapping[str, Way] = {
    "accelerator: unknown name (got …, known: …)": _explain_with("--accelerator", "ethos-u85-256"),
    "memory_mode: unknown …": _explain_with("--memory-mode", "Tape"),
    "memory_mode: Dedicated_Sram is not supported yet …": _explain_with(
        "--memory-mode", "Dedicated_Sram"
    ),
    "optimise: unknown (got …, known: …)": _explain_with("--optimise", "beauty"),
    "system_config: unknown for … (got …, known: …)": _explain_with("--system-config", "Mine"),
    "system_config: unknown name (got …, known: …)": python(lambda: make_target(ARCHS[0], "Mine")),
    "size: not a number of bytes (got …)": _explain_with("--sram-size", "lots"),
    "sram_size: must be a positive number of bytes": python(lambda: EthosUOptions(sram_size=0)),
    "overwrite_inputs: is True or False (got …)": python(
        lambda: EthosUOptions(overwrite_inputs=cast(Any, "yes"))
    ),
    "share_io: is True or False (got …)": python(lambda: EthosUOptions(share_io=cast(Any, 2))),
    "inputs: the network has … (got … files)": cli(
        "run", "model.tflite", "--input", "a.npy", "--input", "b.npy"
    ),
    "…: not a readable .npy file (…)": given(
        lambda desk: desk.write("x.npy", "nonsense"), "run", "model.tflite", "--input", "x.npy"
    ),
    "…: does not fit input … (got …, needs …)": given(
        lambda desk: desk.save("x.npy", (8, 8, 3)), "run", "model.tflite", "--input", "x.npy"
    ),
}
