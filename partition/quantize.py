"""Real factors as the fixed-point numbers that both TFLite's kernels and the NPU use."""

from __future__ import annotations

import math

import numpy as np

from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ir import Rescale

# TFLite treats a factor below 2**-32 as zero (tensorflow/lite/kernels/internal/quantization_util).
_SMALLEST_EXPONENT = -31
_LARGEST_EXPONENT = 31
# By how much TFLite's kernels shift 64-bit sums to the left at most (kernels/internal/common.cc).
MAX_WIDE_EXPONENT = 7


def quantize_multiplier(real: float) -> Rescale | None:
    """Return ``real`` as a 31-bit multiplier and a right shift, as TFLite's kernels round it.

    A factor below 2**-32 becomes zero, as it does there; None when it is too large for a shift or
    no positive number.
    """
    if not (math.isfinite(real) and real > 0):
        return None
    significand, exponent = math.frexp(real)
    multiplier = math.floor(significand * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, exponent = 1 << 30, exponent + 1
    if exponent > _LARGEST_EXPONENT:
        return None
    if exponent < _SMALLEST_EXPONENT:
        return Rescale(0, 31)
    return Rescale(multiplier, 31 - exponent)


def checked_multiplier(real: float) -> Rescale:
    """Return ``quantize_multiplier`` of a factor that a constraint has let through.

    Raises:
        InternalError: there is none.
    """
    found = quantize_multiplier(real)
    if found is None:
        raise InternalError(f"a factor of {real} passed the constraints wrongly")
    return found


def reduced(factor: Rescale) -> Rescale:
    """Return the factor with a multiplier of 16 bits, as TFLite's kernels scale 64-bit sums.

    It must be at most 2**MAX_WIDE_EXPONENT.
    """
    limit = (1 << 15) - 1
    return Rescale(min(limit, (factor.multiplier + (1 << 15)) >> 16), factor.shift - 16)


def accumulator_factor(
    ifm_scale: float, weight_scale: float, ofm_scale: float, *, product_in_float32: bool
) -> float:
    """Return the real factor from accumulator to OFM.

    TFLite's kernels multiply the input scales in float32 for uint8 (kernels/kernel_util.cc,
    GetQuantizedConvolutionMultipler), in float64 otherwise; TFLite Micro does so for fully
    connected layers as well, where TFLite itself takes float32.
    """
    if product_in_float32:
        product = float(np.float32(ifm_scale) * np.float32(weight_scale))
    else:
        product = ifm_scale * weight_scale
    return product / ofm_scale
