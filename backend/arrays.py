"""Arrays from files in numpy's format, which may be damaged."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tvm_ethosu.scheduler.errors import UserError

UNREADABLE: Final = (
    *(OSError, ValueError, KeyError, EOFError, MemoryError, NotImplementedError, RuntimeError),
    *(SyntaxError, TypeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""What numpy raises for a damaged file; it reads the header of an array as Python text."""


def load_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of a .npy file. Raises UserError."""
    try:
        with path.open("rb") as file:
            values = np.load(file, allow_pickle=False)
    except UNREADABLE as error:
        text = " ".join(str(error).split())
        raise UserError(f"{path}: not a readable .npy file ({text})") from None
    if not isinstance(values, np.ndarray):
        raise UserError(f"{path}: not a readable .npy file (an archive of several arrays)")
    return values
