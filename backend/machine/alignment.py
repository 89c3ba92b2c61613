"""Which instructions of a Cortex-M want words at multiples of four; Unicorn takes them anywhere.

A single load or store may be unaligned on a Cortex-M; one of several words, or of a register of the
FPU, may not, and is a usage fault. Firmware that does so works in the emulator and not on a chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_SP, _PC = 13, 15


@dataclass(frozen=True)
class _Encoding:
    """Instructions whose halfwords have these bits; ``base_at`` is where their base register is.

    ``second_mask`` is 0 for instructions of one halfword.
    """

    name: str
    mask: int
    value: int
    second_mask: int = 0
    second_value: int = 0
    base_at: int = 0
    base_mask: int = 0xF


# The FPU's registers are those of coprocessors 10 and 11.
_FPU: Final = {"second_mask": 0x0E00, "second_value": 0x0A00}
_ENCODINGS: Final = (
    _Encoding("STM and LDM", 0xF000, 0xC000, base_at=8, base_mask=0x7),
    _Encoding("STM and LDM, wide", 0xFFC0, 0xE880, 0x2000, 0),
    _Encoding("STMDB and LDMDB", 0xFFC0, 0xE900, 0x2000, 0),
    _Encoding("STRD and LDRD", 0xFF40, 0xE940),
    _Encoding("STRD and LDRD, stepping behind", 0xFF60, 0xE860),
    _Encoding("VSTR and VLDR", 0xFF20, 0xED00, **_FPU),
    _Encoding("VSTM and VLDM", 0xFF80, 0xEC80, **_FPU),
    _Encoding("VSTMDB and VLDMDB", 0xFFA0, 0xED20, **_FPU),
)


def strict_accesses(code: bytes, address: int) -> Mapping[int, int]:
    """Return address -> number of the base register of each instruction that wants alignment.

    Each halfword is looked at as if an instruction began there, so what is data or the second half
    of an instruction is among them; an emulator never comes to such an address. Stack and literals
    are always aligned, and left out.
    """
    first = np.frombuffer(code[: len(code) // 2 * 2], "<u2")
    second = np.append(first[1:], np.uint16(0))
    found: dict[int, int] = {}
    for encoding in _ENCODINGS:
        places = _places(encoding, first, second)
        bases = first[places] >> encoding.base_at & encoding.base_mask
        found |= {
            address + 2 * int(place): int(base)
            for place, base in zip(places, bases, strict=True)
            if base not in (_SP, _PC)
        }
    return found


def _places(
    encoding: _Encoding, first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    is_first = first & encoding.mask == encoding.value
    is_second = second & encoding.second_mask == encoding.second_value
    return np.flatnonzero(is_first & is_second)
