"""Tells TVM's ``tvmc`` of our target when it is imported, whoever imports it.

``tvm_ethosu.pth`` imports this module at each start of Python, so it does next to nothing: it puts
a finder in front that waits for ``tvm.driver.tvmc``. The environment variable
``TVM_ETHOSU_TVMC_HOOK=0`` switches it off.
"""

from __future__ import annotations

import os
import sys

# Only for annotations: importing typing here would be the dearest part of it all.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

VARIABLE = "TVM_ETHOSU_TVMC_HOOK"
WATCHED = "tvm.driver.tvmc"
_OURS = "tvm_ethosu.backend.tvmc"


class TvmcFinder:
    """Waits for ``tvm.driver.tvmc``, and lets it be loaded by whoever else finds it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of ``tvmc`` with a loader that registers our target, else None."""
        # What imports tvmc to register with it does not need help.
        if name != WATCHED or _OURS in sys.modules:
            return None
        others = (f for f in sys.meta_path if not isinstance(f, TvmcFinder))
        specs = (finder.find_spec(name, path) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads as another loader does, and then registers our target."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the other loader makes, mostly None."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; where we cannot be loaded, ``tvmc`` goes on as without us."""
        self._loader.exec_module(module)
        try:
            from tvm_ethosu.backend.tvmc import register_tvmc
        except ImportError as error:
            import warnings

            warnings.warn(f"tvmc does not know the target ethos-u: {error}", stacklevel=2)
        else:
            register_tvmc()


def install() -> None:
    """Wait for ``tvmc``, unless it was switched off or is loaded; a second call changes nothing."""
    is_waiting = any(isinstance(finder, TvmcFinder) for finder in sys.meta_path)
    if os.environ.get(VARIABLE) != "0" and WATCHED not in sys.modules and not is_waiting:
        sys.meta_path.insert(0, TvmcFinder())


install()
