"""TVM without its tuning logs: it would try to download them, and complain that it has none.

It also says of each CPU operator that C is not optimised for any CPU, which is known.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from tvm import autotvm

_LOCATION = "TOPHUB_LOCATION"


@contextlib.contextmanager
def quiet_tuning_logs() -> Iterator[None]:
    """Keep TVM from looking for tuning logs inside of the ``with`` block."""
    before = os.environ.get(_LOCATION)
    strategy = logging.getLogger("strategy")
    level = strategy.level
    silent = autotvm.GLOBAL_SCOPE.silent
    os.environ[_LOCATION] = "NONE"
    autotvm.GLOBAL_SCOPE.silent = True
    strategy.setLevel(logging.ERROR)
    try:
        yield
    finally:
        autotvm.GLOBAL_SCOPE.silent = silent
        strategy.setLevel(level)
        if before is None:
            del os.environ[_LOCATION]
        else:
            os.environ[_LOCATION] = before
