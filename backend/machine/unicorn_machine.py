"""A Corstone-300 that runs anywhere: a Cortex-M33 (Unicorn), its memories, a UART, our NPU.

The CPU has no interrupt controller in Unicorn. Interrupts and faults enter here as a Cortex-M does:
registers are pushed, and the handler comes from the vector table. Interrupts are delivered where
the firmware waits (WFI, WFE) only: to stop Unicorn anywhere else makes it run a block of code
twice, and with it every register access in there. For the same reason the run is only ever stopped
from outside in order to end it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import unicorn
from unicorn import arm_const

from tvm_ethosu.backend.machine.alignment import strict_accesses
from tvm_ethosu.backend.machine.corstone300 import (
    AREAS,
    NPU_BASE,
    NPU_BYTES,
    NPU_IRQ,
    PPB_BASE,
    PPB_BYTES,
    SECURE_ALIAS,
    UART_BASE,
    UART_BYTES,
    VECTORS,
    SystemMemory,
)
from tvm_ethosu.backend.machine.image import Image
from tvm_ethosu.backend.machine.npu import NpuBlock, NpuConfig, Observer
from tvm_ethosu.backend.machine.result import END_TOKEN, Ending, MachineResult, status_in
from tvm_ethosu.scheduler.errors import UserError

NAME: Final = "unicorn"
_NEVER: Final = 0xFFFFFFFE
_MAX_CONSOLE_BYTES: Final = 64 << 20
_LAST_LINE: Final = f"\n{END_TOKEN}\n".encode()

_WFI, _WFE = b"\x30\xbf", b"\x20\xbf"
_BKPT_SEMIHOSTING = b"\xab\xbe"
_EXCP_BKPT, _EXCP_EXIT = 7, 8
_EXC_RETURN: Final = 0xFFFFFFF9
_HARD_FAULT: Final = 3
_FIRST_INTERRUPT: Final = 16
_THUMB_BIT: Final = 1 << 24
_STACK_WAS_ALIGNED: Final = 1 << 9

_VTOR, _CFSR, _HFSR, _BFAR = 0xE000ED08, 0xE000ED28, 0xE000ED2C, 0xE000ED38
_NVIC_ENABLE: Final = 0xE000E100
_CFSR_PRECISE_BUS = 1 << 9 | 1 << 15
_CFSR_UNDEFINED = 1 << 16
_CFSR_INVALID_STATE = 1 << 17
_CFSR_UNALIGNED = 1 << 24
_HFSR_FORCED = 1 << 30

_UART_DATA: Final = 0x0


class _Semihosting(IntEnum):
    """Operations by their numbers in Arm's semihosting specification."""

    WRITEC = 0x03
    WRITE0 = 0x04
    WRITE = 0x05
    EXIT = 0x18
    EXIT_EXTENDED = 0x20


_APPLICATION_EXIT: Final = 0x20026

_FRAME: Final = (
    arm_const.UC_ARM_REG_R0,
    arm_const.UC_ARM_REG_R1,
    arm_const.UC_ARM_REG_R2,
    arm_const.UC_ARM_REG_R3,
    arm_const.UC_ARM_REG_R12,
    arm_const.UC_ARM_REG_LR,
    arm_const.UC_ARM_REG_PC,
    arm_const.UC_ARM_REG_XPSR,
)
_UNMAPPED: Final = frozenset(
    {
        unicorn.UC_ERR_READ_UNMAPPED,
        unicorn.UC_ERR_WRITE_UNMAPPED,
        unicorn.UC_ERR_FETCH_UNMAPPED,
        unicorn.UC_ERR_READ_UNALIGNED,
        unicorn.UC_ERR_WRITE_UNALIGNED,
        unicorn.UC_ERR_FETCH_UNALIGNED,
    }
)


# Base registers by their numbers; the stack pointer and the program counter are always aligned.
_REGISTERS: Final = (
    *range(arm_const.UC_ARM_REG_R0, arm_const.UC_ARM_REG_R12 + 1),
    arm_const.UC_ARM_REG_SP,
    arm_const.UC_ARM_REG_LR,
)


@dataclass(frozen=True)
class Limits:
    """How long a run may take, in seconds of this computer's clock."""

    seconds: float = 60.0


class UnicornMachine:
    """One machine for one run."""

    def __init__(self, npu: NpuConfig, observer: Observer | None = None) -> None:
        self.memory = SystemMemory()
        self.npu = NpuBlock(npu, self.memory, observer or Observer())
        self._console = bytearray()
        self._ending: Ending | None = None
        self._exit_status: int | None = None
        self._detail = ""
        self._fault_address = 0
        self._access_fault = False
        self._unaligned_at: int | None = None
        self._in_handler: list[int] = []
        self._ppb = np.zeros(PPB_BYTES, np.uint8)
        self._uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self._uc.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M33)
        self._map()

    def run(self, image: Image, limits: Limits | None = None) -> MachineResult:
        """Load an image, run it from its reset vector, and return what came of it.

        Raises:
            UserError: the image does not fit the memory map, or has no vectors at 0.
        """
        self._load(image)
        deadline = time.monotonic() + (limits or Limits()).seconds
        while self._ending is None:
            left = deadline - time.monotonic()
            if left <= 0:
                self._end(Ending.TIME_LIMIT, f"pc {self._pc():#010x}")
            else:
                self._go_on(left)
        console = self._console.decode("utf-8", errors="replace")
        said = status_in(console)
        status = said if said is not None else self._exit_status
        ended = self._ending is Ending.EXIT
        return MachineResult(
            NAME,
            self._ending,
            status if ended else None,
            console,
            self._detail,
            tuple(self.npu.runs),
        )

    # --- set-up ---------------------------------------------------------------------------------

    def _map(self) -> None:
        uc = self._uc
        for area in AREAS:
            pointer = self.memory.bytes[area].ctypes.data
            for base in (area.base, area.base + SECURE_ALIAS):
                uc.mem_map_ptr(base, area.size_bytes, unicorn.UC_PROT_ALL, pointer)
        uc.mem_map_ptr(PPB_BASE, PPB_BYTES, unicorn.UC_PROT_ALL, self._ppb.ctypes.data)
        for base in (NPU_BASE, NPU_BASE + SECURE_ALIAS):
            uc.mmio_map(base, NPU_BYTES, self._read_npu, base, self._write_npu, base)
        for base in (UART_BASE, UART_BASE + SECURE_ALIAS):
            uc.mmio_map(base, UART_BYTES, self._read_uart, None, self._write_uart, None)
        uc.hook_add(unicorn.UC_HOOK_INTR, self._on_exception)
        uc.hook_add(unicorn.UC_HOOK_MEM_INVALID, self._on_invalid_access)

    def _load(self, image: Image) -> None:
        for segment in image.segments:
            if not self.memory.write(segment.address, segment.data):
                end = segment.address + len(segment.data)
                raise UserError(
                    f"{image.path}: bytes {segment.address:#010x} to {end:#010x} are in no memory "
                    "of Corstone-300; link it with the project's link.ld"
                )
            for address, base in strict_accesses(segment.data, segment.address).items():
                self._uc.hook_add(
                    unicorn.UC_HOOK_CODE, self._on_strict_access, _REGISTERS[base], address, address
                )
        stack, reset = self._word(VECTORS), self._word(VECTORS + 4)
        if not reset & 1 or self.memory.window(stack - 4) is None:
            raise UserError(
                f"{image.path}: no vector table at address 0 (stack {stack:#010x}, reset "
                f"{reset:#010x}); link it with the project's link.ld"
            )
        self._uc.reg_write(arm_const.UC_ARM_REG_SP, stack)
        self._uc.reg_write(arm_const.UC_ARM_REG_PC, reset)

    # --- running --------------------------------------------------------------------------------

    def _pc(self) -> int:
        return int(self._uc.reg_read(arm_const.UC_ARM_REG_PC))

    def _word(self, address: int) -> int:
        return int.from_bytes(self.memory.read(address, 4), "little")

    def _ppb_word(self, address: int) -> int:
        start = address - PPB_BASE
        return int.from_bytes(self._ppb[start : start + 4].tobytes(), "little")

    def _set_ppb_word(self, address: int, value: int) -> None:
        start = address - PPB_BASE
        self._ppb[start : start + 4] = np.frombuffer(value.to_bytes(4, "little"), np.uint8)

    def _end(self, ending: Ending, detail: str = "") -> None:
        if self._ending is None:
            self._ending, self._detail = ending, detail

    def _go_on(self, seconds: float) -> None:
        """Run until something happens, and answer to it."""
        try:
            self._uc.emu_start(self._pc() | 1, _NEVER, timeout=math.ceil(seconds * 1e6))
        except unicorn.UcError as error:
            if self._ending is None:
                self._on_error(error)
            return
        if self._access_fault:
            self._access_fault = False
            self._fault(_CFSR_PRECISE_BUS)
        elif self._unaligned_at is not None:
            self._uc.reg_write(arm_const.UC_ARM_REG_PC, self._unaligned_at | 1)
            self._unaligned_at = None
            self._fault(_CFSR_UNALIGNED)
        elif self._ending is None and self.memory.read(self._pc() - 2, 2) == _WFI:
            self._sleep()

    def _sleep(self) -> None:
        if not self._deliver_interrupt():
            self._end(Ending.ASLEEP, f"pc {self._pc():#010x}")

    def _stop_if_ended(self) -> None:
        """End the run from inside a device, where it may be over."""
        if self.npu.complaint is not None:
            self._end(Ending.NPU, str(self.npu.complaint))
        elif self._console.endswith(_LAST_LINE):
            self._end(Ending.EXIT)
        elif len(self._console) > _MAX_CONSOLE_BYTES:
            self._end(Ending.MACHINE, f"more than {_MAX_CONSOLE_BYTES} bytes of output")
        if self._ending is not None:
            self._uc.emu_stop()

    def _on_error(self, error: unicorn.UcError) -> None:
        pc = self._pc()
        if error.errno == unicorn.UC_ERR_INSN_INVALID and self.memory.read(pc - 2, 2) == _WFE:
            # With none due this is a wake-up for no reason, which WFE may have.
            self._deliver_interrupt()
        elif error.errno in _UNMAPPED:
            self._fault(_CFSR_PRECISE_BUS)
        elif error.errno == unicorn.UC_ERR_INSN_INVALID:
            self._fault(_CFSR_UNDEFINED)
        else:
            self._fault(_CFSR_INVALID_STATE)

    # --- exceptions -----------------------------------------------------------------------------

    def _deliver_interrupt(self) -> bool:
        enable = self._ppb_word(_NVIC_ENABLE + 4 * (NPU_IRQ // 32)) >> NPU_IRQ % 32 & 1
        masked = self._uc.reg_read(arm_const.UC_ARM_REG_PRIMASK) & 1
        if not self.npu.irq or not enable or masked or self._in_handler:
            return False
        self._enter(_FIRST_INTERRUPT + NPU_IRQ)
        return True

    def _fault(self, cause: int) -> None:
        if _HARD_FAULT in self._in_handler:
            self._end(
                Ending.LOCKED_UP, f"pc {self._pc():#010x}, address {self._fault_address:#010x}"
            )
            return
        self._set_ppb_word(_CFSR, cause)
        self._set_ppb_word(_HFSR, _HFSR_FORCED)
        self._set_ppb_word(_BFAR, self._fault_address)
        self._enter(_HARD_FAULT)

    def _enter(self, number: int) -> None:
        """Enter an exception: push the frame, set LR to the return code, go to the handler."""
        uc = self._uc
        handler = self._word(self._ppb_word(_VTOR) + 4 * number)
        values = [int(uc.reg_read(register)) for register in _FRAME]
        stack = int(uc.reg_read(arm_const.UC_ARM_REG_SP))
        values[-1] = values[-1] | _THUMB_BIT | (_STACK_WAS_ALIGNED if stack % 8 else 0)
        target = stack - stack % 8 - 4 * len(values)
        frame = b"".join(value.to_bytes(4, "little") for value in values)
        if not handler & 1 or not self.memory.write(target, frame):
            self._end(Ending.LOCKED_UP, f"exception {number} at pc {values[-2]:#010x}")
            return
        self._in_handler.append(number)
        uc.reg_write(arm_const.UC_ARM_REG_SP, target)
        uc.reg_write(arm_const.UC_ARM_REG_LR, _EXC_RETURN)
        uc.reg_write(arm_const.UC_ARM_REG_IPSR, number)
        uc.reg_write(arm_const.UC_ARM_REG_PC, handler)

    def _leave(self) -> None:
        """Leave the innermost exception: pop its frame."""
        uc = self._uc
        stack = int(uc.reg_read(arm_const.UC_ARM_REG_SP))
        values = [self._word(stack + 4 * index) for index in range(len(_FRAME))]
        self._in_handler.pop()
        uc.reg_write(arm_const.UC_ARM_REG_IPSR, self._in_handler[-1] if self._in_handler else 0)
        was_aligned = 4 if values[-1] & _STACK_WAS_ALIGNED else 0
        uc.reg_write(arm_const.UC_ARM_REG_SP, stack + 4 * len(_FRAME) + was_aligned)
        for register, value in zip(_FRAME[:-2], values[:-2], strict=True):
            uc.reg_write(register, value)
        uc.reg_write(arm_const.UC_ARM_REG_APSR, values[-1] & 0xF80F0000)
        uc.reg_write(arm_const.UC_ARM_REG_PC, values[-2] | 1)

    def _on_exception(self, uc: Any, number: int, _data: Any) -> None:
        pc = self._pc()
        if number == _EXCP_BKPT and self.memory.read(pc, 2) == _BKPT_SEMIHOSTING:
            self._semihosting()
            if self._ending is None:
                uc.reg_write(arm_const.UC_ARM_REG_PC, (pc + 2) | 1)
        elif number == _EXCP_EXIT and self._in_handler:
            self._leave()
        else:
            self._end(Ending.MACHINE, f"exception {number} of the emulator at pc {pc:#010x}")
            uc.emu_stop()

    def _on_strict_access(self, uc: Any, address: int, _size: int, base: int) -> None:
        """Stop in front of an instruction that a Cortex-M does not do at such an address."""
        if uc.reg_read(base) % 4:
            self._unaligned_at = address
            uc.emu_stop()

    def _on_invalid_access(
        self, _uc: Any, _access: int, address: int, _size: int, _value: int, _data: Any
    ) -> bool:
        self._fault_address = address
        return False

    # --- devices --------------------------------------------------------------------------------

    def _refuse(self, base: int, offset: int) -> None:
        """Turn an access that the bus refuses into a fault, at the end of the block of code."""
        self._fault_address = base + offset
        self._access_fault = True
        self._uc.emu_stop()

    def _read_npu(self, _uc: Any, offset: int, size: int, base: int) -> int:
        if size != 4 or offset % 4:
            self._refuse(base, offset)
            return 0
        return self.npu.read(offset)

    def _write_npu(self, _uc: Any, offset: int, size: int, value: int, base: int) -> None:
        if size != 4 or offset % 4:
            self._refuse(base, offset)
            return
        if self._ending is None:
            self.npu.write(offset, value & 0xFFFFFFFF)
            self._stop_if_ended()

    def _read_uart(self, _uc: Any, offset: int, _size: int, _data: Any) -> int:
        del offset  # STATE is 0: never full, nothing received; so is all else.
        return 0

    def _write_uart(self, _uc: Any, offset: int, _size: int, value: int, _data: Any) -> None:
        if offset == _UART_DATA and self._ending is None:
            self._console.append(value & 0xFF)
            self._stop_if_ended()

    # --- semihosting ----------------------------------------------------------------------------

    def _semihosting(self) -> None:
        uc = self._uc
        operation = int(uc.reg_read(arm_const.UC_ARM_REG_R0))
        argument = int(uc.reg_read(arm_const.UC_ARM_REG_R1))
        result = 0
        match operation:
            case _Semihosting.WRITE0:
                self._console += self._text(argument)
            case _Semihosting.WRITEC:
                self._console += self.memory.read(argument, 1)
            case _Semihosting.WRITE:  # handle, address, length
                self._console += self.memory.read(
                    self._word(argument + 4), self._word(argument + 8)
                )
            case _Semihosting.EXIT:  # the reason itself
                self._exit(argument, 0)
            case _Semihosting.EXIT_EXTENDED:  # reason and status
                self._exit(self._word(argument), self._word(argument + 4))
            case _:
                result = 0xFFFFFFFF
        uc.reg_write(arm_const.UC_ARM_REG_R0, result)
        self._stop_if_ended()

    def _text(self, address: int) -> bytes:
        window = self.memory.window(address)
        if window is None:
            return b""
        ends = np.flatnonzero(window[: 1 << 16] == 0)
        return window[: ends[0] if ends.size else 1 << 16].tobytes()

    def _exit(self, reason: int, status: int) -> None:
        if reason == _APPLICATION_EXIT:
            self._exit_status = status - (1 << 32) if status >> 31 else status
            self._end(Ending.EXIT)
        else:
            self._end(Ending.MACHINE, f"semihosting exit for reason {reason:#x}")


def run_unicorn(
    image: Image, npu: NpuConfig, limits: Limits | None = None, observer: Observer | None = None
) -> MachineResult:
    """Run firmware on a new machine. Raises UserError."""
    return UnicornMachine(npu, observer).run(image, limits)
