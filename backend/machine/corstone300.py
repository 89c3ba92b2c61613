"""The memory map of Corstone-300: what is where, and what of it the NPU reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SECURE_ALIAS: Final = 0x10000000
NPU_BASE: Final = 0x48102000
NPU_BYTES: Final = 0x1000
NPU_IRQ: Final = 56
UART_BASE: Final = 0x49303000
UART_BYTES: Final = 0x1000
# Private peripheral bus: interrupt controller, system control, debug.
PPB_BASE: Final = 0xE0000000
PPB_BYTES: Final = 0x100000
VECTORS: Final = 0x00000000


@dataclass(frozen=True)
class Area:
    """A memory, at its non-secure address; it is seen again at ``base + SECURE_ALIAS``."""

    name: str
    base: int
    size_bytes: int
    npu_reaches: bool


AREAS: Final = (
    Area("ITCM", 0x00000000, 512 << 10, False),
    Area("data SRAM", 0x01000000, 2 << 20, True),
    Area("DTCM", 0x20000000, 512 << 10, False),
    Area("SRAM", 0x21000000, 2 << 20, True),
    Area("DDR", 0x60000000, 32 << 20, True),
)


class SystemMemory:
    """The bytes of all areas."""

    def __init__(self) -> None:
        self.bytes: dict[Area, Bytes] = {
            area: np.zeros(area.size_bytes, np.uint8) for area in AREAS
        }

    def window(self, address: int, *, by_npu: bool = False) -> Bytes | None:
        """Return the bytes from an address to the end of its area, as a view.

        None where there is no memory, or with ``by_npu`` none that the NPU reaches.
        """
        for area, data in self.bytes.items():
            for base in (area.base, area.base + SECURE_ALIAS):
                if base <= address < base + area.size_bytes and (area.npu_reaches or not by_npu):
                    return data[address - base :]
        return None

    def read(self, address: int, size_bytes: int) -> bytes:
        """Return bytes of one area; fewer where it ends before."""
        window = self.window(address)
        return b"" if window is None else window[:size_bytes].tobytes()

    def write(self, address: int, data: bytes) -> bool:
        """Store bytes and return whether one area holds all of them; if not, nothing is stored."""
        window = self.window(address)
        if window is None or window.size < len(data):
            return not data
        window[: len(data)] = np.frombuffer(data, np.uint8)
        return True
