"""Firmware as an ELF file: what is loaded, how large its sections are, which NPU it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.scheduler.errors import UserError

# The constant that the exported project defines: product << 16 | MACs per cycle.
ACCELERATOR_SYMBOL = "network_accelerator"


@dataclass(frozen=True)
class Segment:
    """Bytes to load at a physical address."""

    address: int
    data: bytes


@dataclass(frozen=True)
class Symbol:
    """A name's address and size in bytes."""

    address: int
    size_bytes: int


@dataclass(frozen=True)
class Section:
    """A section that takes memory when the program runs."""

    address: int
    size_bytes: int


@dataclass(frozen=True, eq=False)
class Image:
    """What is needed of an ELF file."""

    path: Path
    segments: tuple[Segment, ...]
    sections: Mapping[str, Section]
    symbols: Mapping[str, Symbol]

    @property
    def accelerator(self) -> Accelerator | None:
        """Return the NPU that the firmware was compiled for, None where it does not say so."""
        symbol = self.symbols.get(ACCELERATOR_SYMBOL)
        for segment in self.segments if symbol is not None else ():
            start = symbol.address - segment.address if symbol is not None else 0
            if 0 <= start <= len(segment.data) - 4:
                return accelerator_of(int.from_bytes(segment.data[start : start + 4], "little"))
        return None


def accelerator_number(accelerator: Accelerator) -> int:
    """Return an accelerator as the driver writes it: product << 16 | MACs per cycle."""
    return int(accelerator.is_u65) << 16 | accelerator.macs


def accelerator_of(number: int) -> Accelerator | None:
    """Return the accelerator that the driver writes so, None where there is none."""
    return next((a for a in Accelerator if accelerator_number(a) == number), None)


def read_image(path: Path) -> Image:
    """Read an ELF file for a 32-bit Arm.

    Raises:
        UserError: it cannot be read, or is another kind of file.
    """
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf["e_machine"] != "EM_ARM" or elf.elfclass != 32:
                raise UserError(
                    f"{path}: not for a 32-bit Arm (machine {elf['e_machine']}, "
                    f"{elf.elfclass} bits); build it with arm-none-eabi-gcc"
                )
            return Image(path, _segments(elf, path), _sections(elf), _symbols(elf))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ELFError, ValueError, KeyError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable ELF file ({error})") from None


def _segments(elf: ELFFile, path: Path) -> tuple[Segment, ...]:
    found = tuple(
        Segment(int(segment["p_paddr"]), bytes(segment.data()))
        for segment in elf.iter_segments("PT_LOAD")
        if segment["p_filesz"] > 0
    )
    if not found:
        raise UserError(f"{path}: the ELF file holds nothing to load; is it an object file?")
    return found


def _sections(elf: ELFFile) -> dict[str, Section]:
    has_memory = 2  # SHF_ALLOC
    return {
        str(section.name): Section(int(section["sh_addr"]), int(section["sh_size"]))
        for section in elf.iter_sections()
        if section["sh_flags"] & has_memory
    }


def _symbols(elf: ELFFile) -> dict[str, Symbol]:
    return {
        str(symbol.name): Symbol(int(symbol["st_value"]), int(symbol["st_size"]))
        for table in elf.iter_sections()
        if isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols()
        if symbol.name
    }
