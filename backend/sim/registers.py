"""Every command of the U55/U65 command stream, declared once.

A command word is ``code[9:0] | 0[13:10] | payload words[15:14] | parameter[31:16]``. Commands
without a payload (CMD0) and with one 32-bit payload word (CMD1) have separate code spaces.

Sources of the facts, by the tag in each row:

* ``HDR``: Arm's public ``ethosu55_interface.h`` and ``ethosu65_interface.h`` (names, codes,
  enumerations, and the width of every field and payload);
* ``EMIT``: what the two compilers of ethos-u-vela 5.2 write, confirmed by executing it;
* ``U65``: as EMIT, present on Ethos-U65 only;
* ``OPEN``: named by the header, never written by the compilers, hence without evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Space(Enum):
    """The two code spaces; the value is the payload size in words."""

    CMD0 = 0
    CMD1 = 1


class Role(Enum):
    """What executing the word does."""

    OPERATION = "operation"
    SET = "set"


class Width(Enum):
    """How the 16-bit parameter and the payload form the value of a CMD1 register."""

    NONE = "no payload"
    WORD = "32-bit payload, parameter zero"
    ADDRESS = "payload is the low word; on U65 parameter[7:0] are bits 39:32"
    STRIDE = "as ADDRESS, signed; parameter[15:8] and, on U55, [7:0] may repeat the sign"
    SCALE = "payload is the multiplier, parameter[5:0] the shift, stored above bit 32"


@dataclass(frozen=True)
class Field:
    """A named bit field of a parameter; ``legal`` lists the values with a meaning."""

    name: str
    low: int
    width: int
    legal: tuple[int, ...] | None = None

    @property
    def mask(self) -> int:
        """Return the field's bits in place."""
        return ((1 << self.width) - 1) << self.low

    def extract(self, value: int) -> int:
        """Return the field's value."""
        return (value & self.mask) >> self.low


@dataclass(frozen=True)
class Register:
    """One command word: a register to set or an operation to start."""

    name: str
    code: int
    space: Space
    role: Role
    fields: tuple[Field, ...]
    width: Width
    signed: bool
    source: str
    payload_bits: int = 32

    @property
    def u65_only(self) -> bool:
        """Tell whether Ethos-U55 has no such register."""
        return self.source == "U65"

    @property
    def used_bits(self) -> int:
        """Return the mask of parameter bits that are not reserved."""
        mask = 0
        for field in self.fields:
            mask |= field.mask
        return mask


def _set0(
    name: str, code: int, *fields: Field, signed: bool = False, source: str = "EMIT"
) -> Register:
    parts = fields or (Field("value", 0, 16),)
    return Register(name, code, Space.CMD0, Role.SET, parts, Width.NONE, signed, source)


def _narrow(name: str, code: int, bits: int) -> Register:
    """Return a register of fewer than 16 bits, without a sign."""
    return _set0(name, code, Field("value", 0, bits))


def _set1(
    name: str, code: int, width: Width, source: str = "EMIT", payload_bits: int = 32
) -> Register:
    return Register(name, code, Space.CMD1, Role.SET, (), width, False, source, payload_bits)


def _op(name: str, code: int, *fields: Field, source: str = "EMIT") -> Register:
    return Register(name, code, Space.CMD0, Role.OPERATION, fields, Width.NONE, False, source)


_PRECISION_BITS = (0, 1, 2)
_LAYOUT = Field("layout", 6, 2, (0, 1))
_ROUNDING = Field("rounding", 14, 2, (0, 1, 2))
_REGION = Field("region", 0, 3)
_IFM2_PRECISION = (Field("signed", 0, 1), Field("bits", 2, 2, _PRECISION_BITS), _LAYOUT)
_IFM_PRECISION = (*_IFM2_PRECISION, _ROUNDING, Field("scale_mode", 8, 2, (0, 1, 2)))
_DMA_REGION = (
    Field("region", 0, 3),
    Field("internal", 8, 1),
    Field("stride_mode", 9, 2, (0, 1, 2)),
)
_STRIDE = (
    Field("x_low", 0, 1),
    Field("y_low", 1, 1),
    Field("part_kernel", 2, 1),
    Field("dilation_x", 3, 1),
    Field("dilation_y", 4, 1),
    Field("decomposition", 5, 1),
    Field("x_high", 6, 1),
    Field("y_high", 9, 1),
)
_BROADCAST = (
    Field("height", 0, 1),
    Field("width", 1, 1),
    Field("depth", 2, 1),
    Field("reversed", 6, 1),
    Field("scalar", 7, 1),
)
_ACTIVATION = (
    Field("function", 0, 12, (0, 3, 4, *range(16, 24))),
    Field("clip_range", 12, 4, (0, 2, 3, 5)),
)

_OPERATIONS = (
    _op("STOP", 0x000, Field("mask", 0, 16)),
    _op("IRQ", 0x001, Field("mask", 0, 16), source="OPEN"),
    _op("CONV", 0x002),
    _op("DEPTHWISE", 0x003),
    _op("POOL", 0x005, Field("mode", 0, 16, (0, 1, 2))),
    _op("ELEMENTWISE", 0x006, Field("mode", 0, 16, tuple(range(10)))),
    _op("DMA_START", 0x010),
    _op("DMA_WAIT", 0x011, Field("outstanding", 0, 4)),
    _op("KERNEL_WAIT", 0x012, Field("outstanding", 0, 2)),
    _op("PMU_MASK", 0x013, Field("enable", 0, 1), source="OPEN"),
)

_CMD0 = (
    _narrow("IFM_PAD_TOP", 0x100, 7),
    _narrow("IFM_PAD_LEFT", 0x101, 7),
    _narrow("IFM_PAD_RIGHT", 0x102, 8),
    _narrow("IFM_PAD_BOTTOM", 0x103, 8),
    _set0("IFM_DEPTH_M1", 0x104),
    _set0("IFM_PRECISION", 0x105, *_IFM_PRECISION),
    _set0("IFM_UPSCALE", 0x107, Field("mode", 0, 2, (0, 1, 2))),
    _set0("IFM_ZERO_POINT", 0x109, signed=True),
    _set0("IFM_WIDTH0_M1", 0x10A),
    _set0("IFM_HEIGHT0_M1", 0x10B),
    _set0("IFM_HEIGHT1_M1", 0x10C),
    _narrow("IFM_IB_END", 0x10D, 6),
    _set0("IFM_REGION", 0x10F, _REGION),
    _set0("OFM_WIDTH_M1", 0x111),
    _set0("OFM_HEIGHT_M1", 0x112),
    _set0("OFM_DEPTH_M1", 0x113),
    _set0(
        "OFM_PRECISION",
        0x114,
        Field("signed", 0, 1),
        Field("bits", 1, 2, _PRECISION_BITS),
        _LAYOUT,
        Field("global_scale", 8, 1),
        _ROUNDING,
    ),
    _narrow("OFM_BLK_WIDTH_M1", 0x115, 6),
    _narrow("OFM_BLK_HEIGHT_M1", 0x116, 5),
    _narrow("OFM_BLK_DEPTH_M1", 0x117, 7),
    _set0("OFM_ZERO_POINT", 0x118, signed=True),
    _set0("OFM_WIDTH0_M1", 0x11A),
    _set0("OFM_HEIGHT0_M1", 0x11B),
    _set0("OFM_HEIGHT1_M1", 0x11C),
    _set0("OFM_REGION", 0x11F, _REGION),
    _set0("KERNEL_WIDTH_M1", 0x120),
    _set0("KERNEL_HEIGHT_M1", 0x121),
    _set0("KERNEL_STRIDE", 0x122, *_STRIDE),
    _set0("PARALLEL_MODE", 0x123, Field("cores_m1", 0, 1), source="U65"),
    _set0("ACC_FORMAT", 0x124, Field("format", 0, 2, (0, 1, 2))),
    _set0("ACTIVATION", 0x125, *_ACTIVATION),
    _set0("ACTIVATION_MIN", 0x126, signed=True),
    _set0("ACTIVATION_MAX", 0x127, signed=True),
    _set0("WEIGHT_REGION", 0x128, _REGION),
    _set0("SCALE_REGION", 0x129, _REGION),
    _narrow("AB_START", 0x12D, 6),
    _set0("BLOCKDEP", 0x12F, Field("blocks", 0, 2)),
    _set0("DMA0_SRC_REGION", 0x130, *_DMA_REGION),
    _set0("DMA0_DST_REGION", 0x131, *_DMA_REGION),
    _set0("DMA0_SIZE0", 0x132, source="U65"),
    _set0("DMA0_SIZE1", 0x133, source="U65"),
    _set0("IFM2_BROADCAST", 0x180, *_BROADCAST),
    _set0("IFM2_SCALAR", 0x181),
    _set0("IFM2_PRECISION", 0x185, *_IFM2_PRECISION),
    _set0("IFM2_ZERO_POINT", 0x189, signed=True),
    _set0("IFM2_WIDTH0_M1", 0x18A),
    _set0("IFM2_HEIGHT0_M1", 0x18B),
    _set0("IFM2_HEIGHT1_M1", 0x18C),
    _narrow("IFM2_IB_START", 0x18D, 6),
    _set0("IFM2_REGION", 0x18F, _REGION),
)


def _feature_map(prefix: str, code: int) -> tuple[Register, ...]:
    names = ("BASE0", "BASE1", "BASE2", "BASE3", "STRIDE_X", "STRIDE_Y", "STRIDE_C")
    return tuple(
        _set1(f"{prefix}_{name}", code + index, Width.ADDRESS if index < 4 else Width.STRIDE)
        for index, name in enumerate(names)
    )


_CMD1 = (
    *_feature_map("IFM", 0x000),
    *_feature_map("OFM", 0x010),
    _set1("WEIGHT_BASE", 0x020, Width.ADDRESS),
    _set1("WEIGHT_LENGTH", 0x021, Width.WORD),
    _set1("SCALE_BASE", 0x022, Width.ADDRESS),
    _set1("SCALE_LENGTH", 0x023, Width.WORD, payload_bits=20),
    _set1("OFM_SCALE", 0x024, Width.SCALE),
    _set1("OPA_SCALE", 0x025, Width.SCALE),
    _set1("OPB_SCALE", 0x026, Width.WORD, payload_bits=16),
    _set1("DMA0_SRC", 0x030, Width.ADDRESS),
    _set1("DMA0_DST", 0x031, Width.ADDRESS),
    _set1("DMA0_LEN", 0x032, Width.ADDRESS),
    _set1("DMA0_SKIP0", 0x033, Width.ADDRESS, source="U65"),
    _set1("DMA0_SKIP1", 0x034, Width.ADDRESS, source="U65"),
    *_feature_map("IFM2", 0x080),
    _set1("WEIGHT1_BASE", 0x090, Width.ADDRESS, source="U65"),
    _set1("WEIGHT1_LENGTH", 0x091, Width.WORD, source="U65"),
    _set1("SCALE1_BASE", 0x092, Width.ADDRESS, source="U65"),
    _set1("SCALE1_LENGTH", 0x093, Width.WORD, source="U65", payload_bits=20),
)

REGISTERS: tuple[Register, ...] = (*_OPERATIONS, *_CMD0, *_CMD1)
BY_CODE = MappingProxyType({(row.space.value, row.code): row for row in REGISTERS})
BY_NAME = MappingProxyType({row.name: row for row in REGISTERS})
