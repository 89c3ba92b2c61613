"""What ``relay.build`` was asked for, as seen from inside the code generator.

TVM calls an external code generator with the function alone: neither the target nor the executor
can be reached from there, and both decide what must be returned (C or a host module, and how the
arguments arrive). So ``BuildModule.build`` is wrapped once, when ``tvm_ethosu.backend`` is
imported; the wrapper notes the request for the time of the call and checks the memory that TVM
planned afterwards.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.relay.build_module import BuildModule

from tvm_ethosu.backend.program import Program
from tvm_ethosu.backend.targets import joined, named_npu, names_npu
from tvm_ethosu.partition import partition_for_ethosu
from tvm_ethosu.partition.relay.attrs import FunctionAttrs
from tvm_ethosu.partition.relay.rewrite import npu_functions
from tvm_ethosu.scheduler.allocate import Allocation
from tvm_ethosu.scheduler.errors import UserError


@dataclass(frozen=True)
class CompiledFunction:
    """An NPU function that was compiled during a build, with all that is known of it."""

    program: Program
    attrs: FunctionAttrs
    allocation: Allocation


@dataclass(frozen=True)
class BuildRequest:
    """The arguments of ``relay.build`` that matter to the code generator.

    ``compiled`` collects the NPU functions of this build.
    """

    target: tvm.target.Target
    executor: tvm.relay.backend.Executor
    compiled: list[CompiledFunction] = field(default_factory=list)

    @property
    def makes_c(self) -> bool:
        """Return whether the program becomes C source (for firmware) instead of host code."""
        return str(self.target.kind.name) == "c"

    @property
    def has_unpacked_api(self) -> bool:
        """Return whether functions are called with plain pointers."""
        attrs = self.executor.attrs
        named = str(self.executor.name) == "aot" and "unpacked-api" in attrs.keys()  # noqa: SIM118
        return named and bool(attrs["unpacked-api"])

    @property
    def model(self) -> str:
        """Return the accelerator that the target names, or an empty string."""
        return str(self.target.attrs.get("model", "") or "")


_CURRENT: ContextVar[BuildRequest | None] = ContextVar("tvm_ethosu_build", default=None)


_COLLECTED: ContextVar[list[BuildRequest] | None] = ContextVar("tvm_ethosu_builds", default=None)


@contextlib.contextmanager
def collect_builds() -> Iterator[list[BuildRequest]]:
    """Collect the requests of all builds with NPU functions inside the ``with`` block."""
    requests: list[BuildRequest] = []
    token = _COLLECTED.set(requests)
    try:
        yield requests
    finally:
        _COLLECTED.reset(token)


def current_request() -> BuildRequest:
    """Return the request of the running build.

    Raises:
        UserError: the code generator was not called through ``relay.build``.
    """
    request = _CURRENT.get()
    if request is None:
        raise UserError(
            "NPU functions can only be compiled by relay.build (or tvmc), which says whether C or "
            "a host module is wanted"
        )
    return request


def _partitioned(mod: Any, target: Any, options: dict[str, Any]) -> Any:
    """Return the module to build: one without NPU functions, for an NPU, is partitioned now.

    Its constants are then part of it, so that ``params`` of ``options`` are used up.
    """
    npu = named_npu(_targets(target))
    if npu is None or not isinstance(mod, tvm.IRModule) or npu_functions(mod):
        return mod
    params, name = options.get("params"), options.get("mod_name") or "default"
    options["params"] = None
    return partition_for_ethosu(mod, params, accelerator_config=npu, mod_name=name)


def _targets(target: Any) -> list[tvm.target.Target]:
    several = isinstance(target, list | tuple | tvm.ir.Array)
    return [tvm.target.Target(each) for each in (target if several else [target])]


def _one_target(target: Any) -> Any:
    """Return what is built for: a list with an NPU in it becomes one target, all else stays."""
    if not isinstance(target, list | tuple | tvm.ir.Array):
        return target
    targets = _targets(target)
    return [joined(targets)] if names_npu(targets) else target


def install(after_build: Callable[[BuildModule, BuildRequest, tvm.IRModule], None]) -> None:
    """Wrap ``BuildModule.build``: an NPU's target is enough, and lists of targets become one.

    ``after_build`` sees every finished build with NPU functions.
    """
    original = BuildModule.build
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def build(self: BuildModule, mod: Any, target: Any = None, *args: Any, **kwargs: Any) -> Any:
        mod = _partitioned(mod, target, kwargs)
        target = _one_target(target)
        executor = kwargs.get("executor") or tvm.relay.backend.Executor("graph")
        request = BuildRequest(_targets(target)[0], executor)
        token = _CURRENT.set(request)
        try:
            result = original(self, mod, target, *args, **kwargs)
        finally:
            _CURRENT.reset(token)
        if request.compiled:
            after_build(self, request, mod)
            collected = _COLLECTED.get()
            if collected is not None:
                collected.append(request)
        return result

    BuildModule.build = build
