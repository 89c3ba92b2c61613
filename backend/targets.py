"""Target tags: ``Target("ethos-u/ethos-u55-128")`` is C code beside that NPU."""

from __future__ import annotations

from tvm.target import _ffi_api

from tvm_ethosu.partition.relay.partition import npu_target
from tvm_ethosu.scheduler.arch import ARCHS, find_arch

DEFAULT_ACCELERATOR = "ethos-u55-256"


def register_targets() -> None:
    """Register the tags ``ethos-u`` (for the default accelerator) and ``ethos-u/<accelerator>``."""
    tags = {f"ethos-u/{arch.accelerator.value}": arch for arch in ARCHS}
    tags["ethos-u"] = find_arch(DEFAULT_ACCELERATOR)
    for tag, arch in tags.items():
        _ffi_api.TargetTagAddTag(tag, dict(npu_target(arch).export()), True)
