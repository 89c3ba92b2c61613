"""One operator of the model as plain numbers, parsed once, for constraints and lowering alike."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tvm_ethosu.scheduler.ir import Clamp, ElementKind, Kernel, Padding, PoolKind, Quant

# Numbers that decide whether a function can be realised: name, value, whether it can be used.
Factors = list[tuple[str, float, bool]]


@dataclass(frozen=True)
class TensorType:
    """Dimensions and element type (numpy's name) as the model has them."""

    dims: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class OpParams:
    """What every operator has: the types of its first input and its result.

    ``is_float`` says that it is a float operator of the model between DEQUANTIZE and QUANTIZE.
    """

    origin: str
    ifm: TensorType
    ofm: TensorType
    is_float: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, eq=False)
class ConvParams(OpParams):
    """Convolution, depthwise convolution or dense layer with its bias and requantisation.

    ``weights`` is OHWI (I = 1 for depthwise) with the zero point taken off; ``bias`` is None or
    one int64 per output channel; ``requantize_scales`` is the scale that the model gives the
    accumulator, which must be ``ifm.scale * weight_scales``. ``channel_axes`` are the output
    dimensions along which the model applies the bias and per-channel scales. ``folded_pad`` says
    why a pad in front can't become ``padding``, and is empty otherwise. ``wide_sums`` says that
    TFLite's kernel sums in 64 bits, and then rounds once with a multiplier of 16 bits.
    """

    kind: str
    weights: npt.NDArray[np.int64]
    bias: npt.NDArray[np.int64] | None
    ifm_quant: Quant
    ofm_quant: Quant
    weight_scales: tuple[float, ...]
    requantize_scales: tuple[float, ...]
    requantize_zero_point: int
    kernel: Kernel
    padding: Padding
    groups: int
    depth_multiplier: int
    layout: str
    channel_axes: tuple[int, ...]
    clamp: Clamp
    folded_pad: str = ""
    wide_sums: bool = False


@dataclass(frozen=True)
class PoolParams(OpParams):
    """Maximum or average pooling; ``accumulator`` is the type in which an average is summed."""

    kind: PoolKind
    kernel: Kernel
    padding: Padding
    layout: str
    accumulator: str
    ceil_mode: bool
    count_include_pad: bool
    clamp: Clamp


@dataclass(frozen=True)
class AddParams(OpParams):
    """Quantised arithmetic of two operands with broadcasting; ``kind`` is what is calculated."""

    per_channel: bool

    ifm2: TensorType
    ifm_quant: Quant
    ifm2_quant: Quant
    ofm_quant: Quant
    clamp: Clamp
    kind: ElementKind = ElementKind.ADD


@dataclass(frozen=True)
class RequantizeParams(OpParams):
    """Change of scale, zero point or type.

    ``accumulator_of`` names the operator on the CPU whose int32 sums are the input, if any.
    """

    ifm_quant: Quant
    ofm_quant: Quant
    per_channel: bool
    clamp: Clamp
    accumulator_of: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class ClipParams(RequantizeParams):
    """Limits alone; ``limited`` names the operator on the CPU that they belong to, if any."""

    limited: str = ""


@dataclass(frozen=True)
class SoftmaxParams(OpParams):
    """Softmax over one axis of ``beta`` times the input."""

    ifm_quant: Quant
    ofm_quant: Quant
    axis: int
    beta: float


@dataclass(frozen=True)
class CurveParams(OpParams):
    """A function of one value, such as tanh; ``alpha`` is the slope of leaky ReLU's lower half."""

    function: str
    ifm_quant: Quant
    ofm_quant: Quant
    alpha: float = 0.0

    @property
    def ratio(self) -> float:
        """Return the input's scale over the output's."""
        return self.ifm_quant.scale / self.ofm_quant.scale

    @property
    def slopes(self) -> tuple[float, float]:
        """Return leaky ReLU's factors of values above and below zero, in steps of the output."""
        return self.ratio, self.ifm_quant.scale * self.alpha / self.ofm_quant.scale


@dataclass(frozen=True)
class ReshapeParams(OpParams):
    """The same elements under other dimensions."""
