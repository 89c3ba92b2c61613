"""Target tags: ``Target("ethos-u/ethos-u55-128")`` is C code beside that NPU."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm.target import _ffi_api

from tvm_ethosu.partition.relay.partition import npu_target
from tvm_ethosu.partition.relay.prepare import COMPILER
from tvm_ethosu.scheduler.arch import ARCHS, find_arch
from tvm_ethosu.scheduler.errors import UserError

DEFAULT_ACCELERATOR = "ethos-u55-256"


def register_targets() -> None:
    """Register the tags ``ethos-u`` (for the default accelerator) and ``ethos-u/<accelerator>``."""
    tags = {f"ethos-u/{arch.accelerator.value}": arch for arch in ARCHS}
    tags["ethos-u"] = find_arch(DEFAULT_ACCELERATOR)
    for tag, arch in tags.items():
        _ffi_api.TargetTagAddTag(tag, dict(npu_target(arch).export()), True)


def _is_npu(target: tvm.target.Target) -> bool:
    return COMPILER in map(str, target.keys)


def joined(targets: Sequence[tvm.target.Target]) -> tvm.target.Target:
    """Return the one target of a build that names an NPU and what its other operators are for.

    TVM tells the targets of a list apart by device and kind, and both of these are C for the CPU;
    so ``[ethos-u, c -mcpu=cortex-m55]`` becomes C for that CPU with the NPU's name in it. Beside
    ``llvm`` the NPU is simulated, and nothing has to be known of it.

    Raises:
        UserError: there are several of either.
    """
    npus = [target for target in targets if _is_npu(target)]
    others = [target for target in targets if not _is_npu(target)]
    if len(npus) != 1 or len(others) != 1:
        names = ", ".join(str(target) for target in targets)
        raise UserError(
            f"target: a list is of one ethos-u and one other (got {names}); "
            "write [Target('ethos-u/ethos-u55-128'), Target('c')]"
        )
    (npu,), (other,) = npus, others
    if str(other.kind.name) != "c":
        return other
    described = dict(other.export())
    keys = [*map(str, described["keys"]), COMPILER]
    return tvm.target.Target({**described, "keys": keys, "model": str(npu.attrs["model"])})


def names_npu(targets: Sequence[tvm.target.Target]) -> bool:
    """Return whether one of several targets is an NPU's."""
    return len(targets) > 1 and any(map(_is_npu, targets))


def named_npu(targets: Sequence[tvm.target.Target]) -> str | None:
    """Return the accelerator that one of the targets names, or None."""
    return next((str(target.attrs["model"]) for target in targets if _is_npu(target)), None)
