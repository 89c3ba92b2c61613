"""Typed operations: what a command stream asks for, with every register already interpreted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

import numpy as np

from tvm_ethosu.backend.sim.accelerator import Accelerator


class ElementType(Enum):
    """Element type of a feature map; the value is (bits, signed), ``dtype`` little-endian."""

    U8 = (8, False)
    S8 = (8, True)
    U16 = (16, False)
    S16 = (16, True)
    U32 = (32, False)
    S32 = (32, True)

    def __init__(self, bits: int, signed: bool) -> None:
        self.bits = bits
        self.size_bytes = bits // 8
        self.minimum = -(1 << (bits - 1)) if signed else 0
        self.maximum = (1 << (bits - signed)) - 1
        self.dtype: np.dtype[Any] = np.dtype(f"<{'i' if signed else 'u'}{bits // 8}")


class Layout(Enum):
    """Order of a feature map in memory; the value is the register's."""

    NHWC = 0
    NHCWB16 = 1


class Rounding(Enum):
    """Rounding of scaled results; the value is the register's."""

    DOUBLE = 0
    TRUNCATE = 1
    NATURAL = 2


class Upscale(Enum):
    """2x2 upscaling of the IFM as it is read."""

    NONE = 0
    NEAREST = 1
    ZEROS = 2


class PoolMode(Enum):
    """Parameter of the POOL operation."""

    MAX = 0
    AVERAGE = 1
    REDUCE_SUM = 2


class ElementwiseMode(Enum):
    """Parameter of the ELEMENTWISE operation."""

    MUL = 0
    ADD = 1
    SUB = 2
    MIN = 3
    MAX = 4
    LRELU = 5
    ABS = 6
    CLZ = 7
    SHR = 8
    SHL = 9

    @property
    def is_unary(self) -> bool:
        """Tell whether the operation has one operand."""
        return self in UNARY_MODES


UNARY_MODES: Final = frozenset({ElementwiseMode.LRELU, ElementwiseMode.ABS, ElementwiseMode.CLZ})


class ScaleMode(Enum):
    """Which operand of ADD and SUB is scaled with 32 bits."""

    BOTH_16 = 0
    OPA_32 = 1
    OPB_32 = 2


class Function(Enum):
    """Activation function after scaling."""

    CLAMP = "clamp"
    TANH = "tanh"
    SIGMOID = "sigmoid"
    LUT = "lut"


@dataclass(frozen=True)
class Shape:
    """Height, width and channels of a feature map (N is always 1)."""

    height: int
    width: int
    depth: int

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return self.height * self.width * self.depth


@dataclass(frozen=True)
class FeatureMap:
    """Where the elements of a feature map live; addresses and strides in bytes."""

    name: str
    region: int
    bases: tuple[int | None, int | None, int | None, int | None]
    stride_y: int
    stride_x: int
    stride_c: int
    height0: int
    height1: int
    width0: int
    shape: Shape
    type: ElementType
    layout: Layout
    zero_point: int


@dataclass(frozen=True)
class Kernel:
    """Kernel size in taps, stride and dilation in elements."""

    height: int = 1
    width: int = 1
    stride_y: int = 1
    stride_x: int = 1
    dilation_y: int = 1
    dilation_x: int = 1
    part_kernel_first: bool = False
    decomposition: bool = False

    @property
    def taps(self) -> int:
        """Return the number of weights per channel."""
        return self.height * self.width


@dataclass(frozen=True)
class Padding:
    """Elements assumed around the IFM."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        """Tell whether there is padding at all."""
        return bool(self.top or self.left or self.bottom or self.right)


@dataclass(frozen=True)
class Scale:
    """Multiplier and right shift."""

    multiplier: int
    shift: int


@dataclass(frozen=True)
class Activation:
    """Function, LUT slot, clip range register value and clamp in OFM values."""

    function: Function
    slot: int
    clip_range: int
    minimum: int
    maximum: int


@dataclass(frozen=True)
class Block:
    """OFM block in elements."""

    height: int
    width: int
    depth: int


@dataclass(frozen=True)
class ByteRange:
    """Half-open range of bytes of a region."""

    region: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Return the number of bytes."""
        return self.stop - self.start


@dataclass(frozen=True)
class CoreParameters:
    """Weight and scale range of one core; ``None`` when the core has no channels."""

    weights: ByteRange
    scales: ByteRange | None


@dataclass(frozen=True)
class Operation:
    """Anything executed, with the word it came from and all registers at that moment."""

    offset: int
    registers: Mapping[str, int] = field(repr=False, compare=False)

    @property
    def kind(self) -> str:
        """Return the command's name."""
        return type(self).__name__.upper()


@dataclass(frozen=True)
class BlockOperation(Operation):
    """What every kernel operation has in common."""

    ifm: FeatureMap
    ofm: FeatureMap
    kernel: Kernel
    padding: Padding
    upscale: Upscale
    activation: Activation
    rounding: Rounding
    global_scale: Scale | None
    block: Block
    blockdep: int
    acc_format: int
    ifm_rounding: Rounding


@dataclass(frozen=True)
class Conv(BlockOperation):
    """Convolution: OFM channel o sums over all IFM channels."""

    parameters: tuple[CoreParameters, ...]


@dataclass(frozen=True)
class Depthwise(BlockOperation):
    """Depthwise convolution: OFM channel c sums over IFM channel c."""

    parameters: tuple[CoreParameters, ...]


@dataclass(frozen=True)
class Pool(BlockOperation):
    """Pooling or sum over channels."""

    mode: PoolMode

    @property
    def kind(self) -> str:
        """Return the command's name with its mode."""
        return f"POOL_{self.mode.name}"


@dataclass(frozen=True)
class Elementwise(BlockOperation):
    """Elementwise operation on one or two operands; a scalar IFM2 is in ``scalar``."""

    mode: ElementwiseMode
    ifm2: FeatureMap | None
    ifm2_zero_point: int
    ifm2_type: ElementType | None
    scalar: int | None
    reversed: bool
    scale_mode: ScaleMode
    opa_scale: Scale
    opb_scale: int

    @property
    def kind(self) -> str:
        """Return the command's name with its mode."""
        return f"ELEMENTWISE_{self.mode.name}"


@dataclass(frozen=True)
class DmaEnd:
    """One end of a transfer; ``internal`` is the shared RAM."""

    region: int
    internal: bool
    stride_mode: int
    address: int


@dataclass(frozen=True)
class Dma(Operation):
    """Copy of ``length`` bytes, repeated ``rows`` times ``planes`` times."""

    source: DmaEnd
    destination: DmaEnd
    length: int
    rows: int
    planes: int
    skip_rows: int
    skip_planes: int

    def steps(self, end: DmaEnd) -> tuple[int, int]:
        """Return the bytes from one row to the next, and from one plane to the next, at an end."""
        row = self.length + (self.skip_rows if end.stride_mode >= 1 else 0)
        return row, row * self.rows + (self.skip_planes if end.stride_mode >= 2 else 0)


@dataclass(frozen=True)
class DmaWait(Operation):
    """Wait until at most ``outstanding`` transfers are in flight."""

    outstanding: int

    @property
    def kind(self) -> str:
        """Return the command's name."""
        return "DMA_WAIT"


@dataclass(frozen=True)
class KernelWait(Operation):
    """Wait until at most ``outstanding`` kernel operations are in flight."""

    outstanding: int

    @property
    def kind(self) -> str:
        """Return the command's name."""
        return "KERNEL_WAIT"


@dataclass(frozen=True)
class Irq(Operation):
    """Raise an interrupt with this mask."""

    mask: int


@dataclass(frozen=True)
class PmuMask(Operation):
    """Set the performance counter mask."""

    mask: int

    @property
    def kind(self) -> str:
        """Return the command's name."""
        return "PMU_MASK"


@dataclass(frozen=True)
class Stop(Operation):
    """End of the stream."""

    mask: int


AnyOperation: TypeAlias = (
    Conv | Depthwise | Pool | Elementwise | Dma | DmaWait | KernelWait | Irq | PmuMask | Stop
)


@dataclass(frozen=True)
class Stream:
    """A decoded command stream.

    ``cache`` holds decoded weights and other results that depend on the stream and on the bytes
    it reads, so that a second run does not compute them again.
    """

    accelerator: Accelerator
    operations: tuple[AnyOperation, ...]
    word_count: int
    cache: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kernel_count(self) -> int:
        """Return the number of kernel operations."""
        return sum(isinstance(op, BlockOperation) for op in self.operations)
