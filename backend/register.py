"""Everything that TVM must be told once, when the package is imported."""

from __future__ import annotations

from tvm_ethosu.backend.build_context import install
from tvm_ethosu.backend.codegen import register_codegen
from tvm_ethosu.backend.host import register_runner
from tvm_ethosu.backend.sram import check_planned_sram
from tvm_ethosu.backend.targets import register_targets


def register() -> None:
    """Register target tags, code generator and host runner; calling it again changes nothing."""
    register_targets()
    register_codegen()
    register_runner()
    install(check_planned_sram)
