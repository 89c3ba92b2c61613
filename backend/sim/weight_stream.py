"""Is a compressed weight stream complete? The codec ends the process when it is not.

The stream is a sequence of slices. A slice has a header (zero-run divisor, number of weights,
weight divisor, palette) and then chunks of up to twelve Golomb-Rice codes whose unary parts come
first and whose remainders follow one chunk later; zero runs, if used, alternate with the weights.
Divisor 7 ends a run of slices, and bytes after it are aligned. This module follows the lengths of
the codes without decoding the values. Source: the format as Arm's public encoder writes it,
confirmed by truncating and damaging streams and comparing with ``mlw_codec.decode``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tvm_ethosu.backend.sim.errors import DecodeError

_END: Final = 7
_NO_ZERO_RUNS: Final = 6
_MAX_ZERO_DIVISOR: Final = 3
_UNCOMPRESSED: Final = 7
_MAX_WEIGHT_DIVISOR: Final = 5
_CHUNK: Final = 12
_BALANCE: Final = 8


@dataclass(frozen=True)
class _Palette:
    """What the last palette said: its entries, and the bits of an uncompressed weight."""

    entries: int
    direct_bits: int

    @property
    def uncompressed_bits(self) -> int:
        return (self.entries - 1).bit_length() if self.entries else self.direct_bits


@dataclass(frozen=True)
class _Slice:
    """Number of codes and their divisors; ``zero_divisor`` is None without zero runs."""

    weights: int
    zero_runs: int
    zero_divisor: int | None
    divisor: int
    truncated: bool
    uncompressed: bool


class _Bits:
    """Little-endian bits; beyond the end there are zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def window(self, position: int) -> int:
        """Return at least 56 bits from ``position``."""
        start = position >> 3
        return int.from_bytes(self._data[start : start + 8], "little") >> (position & 7)


def check_complete(data: bytes) -> None:
    """Raise DecodeError unless ``data`` is a sequence of complete slices up to its last byte."""
    bits, end = _Bits(data), 8 * len(data)
    position = 0
    palette: _Palette | None = None
    zero_runs = False
    while position < end:
        zero_divisor = bits.window(position) & 7
        if zero_divisor == _END:
            position = (position + 3 + 7) & ~7
            palette = None
            continue
        part, palette, position = _header(bits, position, palette, zero_runs=zero_runs)
        zero_runs = part.zero_divisor is not None
        position = _skip_with_zero_runs(bits, position, part) if zero_runs else (
            _skip_weights(bits, position, part)
        )  # fmt: skip
        if position >= end:
            raise DecodeError("the weight stream ends inside a slice")
    if palette is not None or not data:
        raise DecodeError("the weight stream has no end mark")


def _header(
    bits: _Bits, position: int, palette: _Palette | None, *, zero_runs: bool
) -> tuple[_Slice, _Palette, int]:
    word = bits.window(position)
    zero_divisor, length, divisor = word & 7, (word >> 3 & 0x7FFF) + 1, word >> 18 & 7
    truncated, new_palette = bool(word >> 21 & 1), bool(word >> 22 & 1)
    position += 23
    has_runs = zero_divisor != _NO_ZERO_RUNS
    if has_runs and zero_divisor > _MAX_ZERO_DIVISOR:
        raise DecodeError(f"weight slice with zero-run divisor {zero_divisor}")
    if divisor != _UNCOMPRESSED and divisor > _MAX_WEIGHT_DIVISOR:
        raise DecodeError(f"weight slice with divisor {divisor}")
    if new_palette:
        palette, position = _palette(bits, position)
    elif palette is None:
        raise DecodeError("the first weight slice has no palette")
    elif has_runs != zero_runs:
        raise DecodeError("a weight slice changes the use of zero runs without a palette")
    uncompressed = divisor == _UNCOMPRESSED
    part = _Slice(
        weights=length,
        zero_runs=length + new_palette,
        zero_divisor=zero_divisor if has_runs else None,
        divisor=palette.uncompressed_bits if uncompressed else divisor,
        truncated=truncated,
        uncompressed=uncompressed,
    )
    return part, palette, position


def _palette(bits: _Bits, position: int) -> tuple[_Palette, int]:
    word = bits.window(position)
    entries, width = word >> 5 & 0x1F, (word >> 10 & 7) + 2
    entries += entries > 0
    return _Palette(entries, width), position + 13 + entries * width


def _skip_weights(bits: _Bits, position: int, part: _Slice) -> int:
    """Return the position after a slice without zero runs."""
    remainder_bits = part.weights * part.divisor
    if part.uncompressed:
        return position + remainder_bits
    window, divisor, truncated = bits.window, part.divisor, part.truncated
    seen = pending = 0
    while seen < part.weights:
        word = window(position)
        length = (word & 0xFFF).bit_count()
        symbols = _CHUNK
        if not truncated:
            symbols -= (word >> 12 & ((1 << length) - 1)).bit_count()
        position += 12 + length + pending * divisor
        pending = min(symbols, part.weights - seen)
        seen += symbols
    return position + pending * divisor


def _skip_with_zero_runs(bits: _Bits, position: int, part: _Slice) -> int:
    """Return the position after a slice whose weights alternate with zero runs."""
    zero_divisor = part.zero_divisor or 0
    zero_length = 12 if zero_divisor < 3 else 8
    zero_mask = (1 << zero_length) - 1
    weights = zeros = pending_weights = pending_zeros = 0
    while True:
        balance = weights - zeros
        take_weights = balance < _BALANCE and weights < part.weights
        take_zeros = balance >= 0 and zeros < part.zero_runs
        word = bits.window(position)
        unary = 0
        if take_weights and not part.uncompressed:
            unary, word, position = word & 0xFFF, word >> 12, position + 12
        position += pending_weights * part.divisor + pending_zeros * zero_divisor
        pending_weights = pending_zeros = 0
        if take_zeros:
            symbols = zero_length - (word & zero_mask).bit_count()
            word, position = word >> zero_length, position + zero_length
            pending_zeros = max(min(symbols, part.zero_runs - zeros), 0)
            zeros += symbols
        if take_weights:
            symbols, length = _weight_symbols(part, unary, word)
            position += length
            pending_weights = max(min(symbols, part.weights - weights), 0)
            weights += symbols
        if not (take_weights or take_zeros):
            return position


def _weight_symbols(part: _Slice, unary: int, second: int) -> tuple[int, int]:
    """Return the codes a chunk completes and the bits of its second unary part."""
    if part.uncompressed:
        return (8 if part.divisor > 5 else _CHUNK), 0
    length = unary.bit_count()
    if part.truncated:
        return _CHUNK, length
    return _CHUNK - (second & ((1 << length) - 1)).bit_count(), length
