"""What the hardware is: one row per accelerator, and every limit that a constraint quotes.

Sources: Arm's public Ethos-U55 and U65 Technical Overviews (shared RAM), the
option lists of ethos-u-vela 5.2 and the report of ``vela --supported-ops-report`` (limits).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tvm_ethosu.scheduler.errors import UserError


class Accelerator(Enum):
    """The accelerators; the value is the name users write."""

    U55_32 = "ethos-u55-32"
    U55_64 = "ethos-u55-64"
    U55_128 = "ethos-u55-128"
    U55_256 = "ethos-u55-256"
    U65_256 = "ethos-u65-256"
    U65_512 = "ethos-u65-512"


class MemoryMode(Enum):
    """Where constants and the arena live, in Vela's words."""

    SRAM_ONLY = "Sram_Only"
    SHARED_SRAM = "Shared_Sram"
    DEDICATED_SRAM = "Dedicated_Sram"


class Layout(Enum):
    """How a feature map lies in memory; NHCWB16 keeps 16 channels of a column together."""

    NHWC = "NHWC"
    NHCWB16 = "NHCWB16"


@dataclass(frozen=True)
class Arch:
    """One accelerator: ``cores`` share the output channels, even ones first."""

    accelerator: Accelerator
    cores: int
    default_system_config: str
    system_configs: tuple[str, ...]
    shared_ram_bytes: int

    @property
    def table_address(self) -> int:
        """Return where tables lie in the shared RAM: in its last two banks."""
        return self.shared_ram_bytes - TABLE_BYTES

    @property
    def tables_are_kept(self) -> bool:
        """Return whether operators without a table leave the tables as they are.

        The smallest shared RAM has no banks to spare: there they take them for accumulators.
        """
        return self.shared_ram_bytes > 16 * 1024


# Memory of tables: eight of 256 bytes, or fewer larger ones.
TABLE_BYTES = 2048
TABLE_SLOT_BYTES = 256

_U55_SYSTEMS = ("Ethos_U55_High_End_Embedded", "Ethos_U55_Deep_Embedded")
_U65_SYSTEMS = ("Ethos_U65_High_End", "Ethos_U65_Embedded")

ARCHS: tuple[Arch, ...] = (
    Arch(Accelerator.U55_32, 1, _U55_SYSTEMS[0], _U55_SYSTEMS, 16 * 1024),
    Arch(Accelerator.U55_64, 1, _U55_SYSTEMS[0], _U55_SYSTEMS, 16 * 1024),
    Arch(Accelerator.U55_128, 1, _U55_SYSTEMS[0], _U55_SYSTEMS, 24 * 1024),
    Arch(Accelerator.U55_256, 1, _U55_SYSTEMS[0], _U55_SYSTEMS, 48 * 1024),
    Arch(Accelerator.U65_256, 1, _U65_SYSTEMS[0], _U65_SYSTEMS, 48 * 1024),
    Arch(Accelerator.U65_512, 2, _U65_SYSTEMS[0], _U65_SYSTEMS, 48 * 1024),
)

# Addresses and lengths that the NPU takes: base pointers, NHCWB16 feature maps, weight streams.
ALIGN_BYTES = 16
# Channels that NHCWB16 keeps together.
BRICK_CHANNELS = 16
# The block config: height, width and channels of the OFM at most; what splits the channels is a
# multiple of BLOCK_SPLIT_CHANNELS.
MAX_BLOCK = (32, 64, 128)
BLOCK_SPLIT_CHANNELS = 16
# Rows and columns that the hardware covers of a kernel at a time.
SUB_KERNEL = 8
# Base pointers BASEP0..7 of the driver interface.
MAX_REGIONS = 8

MAX_DIM = 65536
MAX_STRIDE = 3
MAX_DILATION = 2
MAX_KERNEL_H = 64
MAX_KERNEL_ELEMENTS = 64 * 64
MAX_POOL_H = 256
MAX_POOL_ELEMENTS = 256 * 256
MAX_PADDED_AVERAGE_KERNEL = 8
MAX_PAD_TOP_LEFT = 31
MAX_PAD_BOTTOM_RIGHT = 32
MAX_POOL_PAD = 127
# Sum of the weights of one output channel: what the 40-bit accumulator can take.
MAX_WEIGHT_SUM = 127 * 65536
# Weights are encoded as 9-bit signed numbers; what lies outside is silently lost by the encoder.
MIN_WEIGHT = -255
MAX_WEIGHT = 255
BIAS_BITS = 40
# Accumulators of operators on 8-bit feature maps.
ACCUMULATOR_BITS = 32
# Biases of operators on 16-bit feature maps: with the largest sum of products they fill 40 bits.
WIDE_BIAS_BITS = 39
# A rescale's shift has 6 bits, its multiplier 32.
MAX_RESCALE_SHIFT = 63


def find_arch(name: str) -> Arch:
    """Return the accelerator of that name.

    Raises:
        UserError: there is none; the message lists those there are.
    """
    for arch in ARCHS:
        if arch.accelerator.value == name:
            return arch
    known = ", ".join(arch.accelerator.value for arch in ARCHS)
    raise UserError(f"accelerator: unknown name (got '{name}', known: {known})")
