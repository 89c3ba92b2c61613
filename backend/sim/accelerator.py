"""The six accelerators and the few of their properties that change results."""

from __future__ import annotations

from enum import Enum


class Accelerator(Enum):
    """An Ethos-U55 or Ethos-U65 configuration; the value is its usual name."""

    U55_32 = "ethos-u55-32"
    U55_64 = "ethos-u55-64"
    U55_128 = "ethos-u55-128"
    U55_256 = "ethos-u55-256"
    U65_256 = "ethos-u65-256"
    U65_512 = "ethos-u65-512"

    @property
    def is_u65(self) -> bool:
        """Tell whether this is an Ethos-U65: 40-bit addresses, 2-D and 3-D DMA."""
        return self in (Accelerator.U65_256, Accelerator.U65_512)

    @property
    def cores(self) -> int:
        """Return the number of MAC cores, each with its own weight and scale stream."""
        return 2 if self is Accelerator.U65_512 else 1

    @property
    def macs(self) -> int:
        """Return the number of 8-bit multipliers, all cores together."""
        return int(self.value.rpartition("-")[2])

    @property
    def ofm_microblock_depth(self) -> int:
        """Return how many output channels the weight stream interleaves."""
        return 4 if self is Accelerator.U55_32 else 8

    @property
    def shram_banks(self) -> int:
        """Return the number of 1 KiB banks of shared RAM in one core."""
        small = (Accelerator.U55_32, Accelerator.U55_64)
        if self in small:
            return 16
        return 24 if self is Accelerator.U55_128 else 48

    @property
    def lut_address(self) -> int:
        """Return the shared-RAM byte address of LUT slot 0."""
        return (self.shram_banks - 2) * 1024

    @property
    def lut_shares_accumulators(self) -> bool:
        """Tell whether an operation without a LUT overwrites the LUT banks."""
        return self in (Accelerator.U55_32, Accelerator.U55_64)

    @property
    def address_bits(self) -> int:
        """Return the width of an address register in bits."""
        return 40 if self.is_u65 else 32

    @property
    def max_outstanding_dma(self) -> int:
        """Return how many DMA transfers can be in flight."""
        return 2 if self.is_u65 else 1
