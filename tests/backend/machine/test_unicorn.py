"""The machine with programs in C: console, ends, faults, interrupts, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backend.bare_metal import build_program, with_word
from tvm_ethosu.backend.machine.corstone300 import SystemMemory
from tvm_ethosu.backend.machine.image import Image, Segment, read_image
from tvm_ethosu.backend.machine.npu import NpuConfig, NpuRun, Observer
from tvm_ethosu.backend.machine.result import Ending, MachineResult
from tvm_ethosu.backend.machine.unicorn_machine import Limits, run_unicorn
from tvm_ethosu.backend.sim import Accelerator, HazardError
from tvm_ethosu.scheduler.errors import UserError

HEAD = """
#include <stddef.h>
#include <stdint.h>
#include "board.h"
#include "tvm_ethosu/driver.h"
"""
U55_128 = NpuConfig(Accelerator.U55_128)


def _run(
    directory: Path, body: str, *settings: str, seconds: float = 20, npu: NpuConfig = U55_128
) -> MachineResult:
    elf = build_program(directory, HEAD + body, *settings)
    return run_unicorn(read_image(elf), npu, Limits(seconds))


@pytest.mark.parametrize("console", ["semihosting", "uart"])
def test_text_and_status_arrive(tmp_path: Path, arm_gcc: str, console: str) -> None:
    body = r"""
    static volatile float half = 0.5f;
    int main(void) {
      board_print(half * 4.0f == 2.0f ? "floats work\n" : "floats do not\n");
      board_print("tvm-ethosu: exit 7\nEXITTHESIM\n");
      return 7;
    }"""
    result = _run(tmp_path, body, f"CONSOLE={console}")
    assert result.console == "floats work\ntvm-ethosu: exit 7\nEXITTHESIM\n"
    assert (result.ending, result.status) == (Ending.EXIT, 7)
    assert str(result) == "unicorn: the firmware ended with status 7"


def test_an_exit_without_a_last_line_has_its_status(tmp_path: Path, arm_gcc: str) -> None:
    result = _run(tmp_path, "int main(void) { return -3; }")
    assert (result.ending, result.status, result.console) == (Ending.EXIT, -3, "")


@pytest.mark.parametrize(
    ("statement", "address"),
    [
        ("(void)*(volatile uint32_t*)0x40000000u;", "40000000"),
        ("*(volatile uint32_t*)0x02000000u = 1u;", "02000000"),
        ("(void)*(volatile uint8_t*)(0x62000000u + 5u);", "62000005"),
        ("(void)*(volatile uint8_t*)0x48102005u;", "48102005"),
        ("*(volatile uint16_t*)0x58102004u = 1u;", "58102004"),
        ("((void (*)(void))0x30900001u)();", "30900000"),
    ],
)
def test_what_the_bus_refuses_is_a_fault_with_its_address(
    tmp_path: Path, arm_gcc: str, statement: str, address: str
) -> None:
    result = _run(tmp_path, f"int main(void) {{ {statement} return 0; }}")
    assert (result.ending, result.status) == (Ending.EXIT, 3)
    assert "fault, exception 0x00000003 at pc 0x" in result.console
    assert f"bfar 0x{address}\n" in result.console


ALIGNED = (
    "ldrd r2, r3, [%0]",
    "ldrd r2, r3, [%0], #8",
    "strd r2, r3, [%0, #8]!",
    "ldmia %0, {r2, r3}",
    "ldmia %0!, {r2, r3}",
    "ldmdb %0, {r2, r3, r4}",
    "stmia %0!, {r2, r3}",
    "stmdb %0!, {r2, r3}",
    "ldmia.w %0, {r2, r3, r8}",
    "vldr s0, [%0]",
    "vldr d0, [%0, #-8]",
    "vstr s1, [%0, #4]",
    "vldmia %0, {s0-s3}",
    "vstmia %0!, {d0-d1}",
    "vldmdb %0!, {s4}",
)


def test_words_of_several_registers_are_aligned_or_a_fault(tmp_path: Path, arm_gcc: str) -> None:
    """At 1, 2 and 3 bytes behind a multiple of four, as a Cortex-M has it; at 0 they work."""
    registers = '"r2", "r3", "r4", "r8", "memory"'
    case = f"""    case %d: __asm volatile("%s" : "+l"(at) : : {registers}); break;"""
    cases = "\n".join(case % numbered for numbered in enumerate(ALIGNED))
    body = f"""static uint8_t bytes[64] __attribute__((aligned(16)));
    extern const uint32_t number;
    const uint32_t number = 0xFFFFu;
    int main(void) {{
      const uint32_t chosen = *(const volatile uint32_t*)&number;
      uint8_t* at = &bytes[32u + (chosen & 3u)];
      switch (chosen >> 2u) {{
    {cases}
        default: return 9;
      }}
      return 0;
    }}"""
    image = read_image(build_program(tmp_path, HEAD + body))
    for number, instruction in enumerate(ALIGNED):
        for offset in range(4):
            result = run_unicorn(with_word(image, "number", 4 * number + offset), U55_128)
            assert (result.ending, result.status) == (Ending.EXIT, 3 if offset else 0), instruction
            assert ("cfsr 0x01000000" in result.console) is bool(offset)


def test_single_words_may_be_anywhere(tmp_path: Path, arm_gcc: str) -> None:
    body = """static volatile uint8_t bytes[16] __attribute__((aligned(16))) = {1, 2, 3, 4, 5, 6};
    int main(void) {
      uint32_t word; uint16_t half;
      __asm volatile("ldr %0, [%1]" : "=r"(word) : "r"(&bytes[1]) : "memory");
      __asm volatile("ldrh %0, [%1]" : "=r"(half) : "r"(&bytes[1]) : "memory");
      return (word == 0x05040302u) && (half == 0x0302u) ? 0 : 1;
    }"""
    assert _run(tmp_path, body).status == 0


def test_an_undefined_instruction_is_a_fault_at_its_place(tmp_path: Path, arm_gcc: str) -> None:
    body = '__attribute__((noinline)) int main(void) { __asm volatile("udf #0"); return 0; }'
    result = _run(tmp_path, body)
    assert result.status == 3
    pc = read_image(tmp_path / "build" / "firmware.elf").symbols["main"].address & ~1
    assert f"at pc 0x{pc:08x}, cfsr 0x00010000" in result.console


def test_a_fault_in_the_fault_handler_ends_the_run(tmp_path: Path, arm_gcc: str) -> None:
    # The first fault moves the stack to where there is no memory.
    body = """int main(void) {
      __asm volatile("msr msp, %0\\n" "udf #0" :: "r"(0x40000000u)); return 0; }"""
    result = _run(tmp_path, body)
    assert (result.ending, result.status) == (Ending.LOCKED_UP, None)


def test_a_loop_ends_at_the_time_limit(tmp_path: Path, arm_gcc: str) -> None:
    result = _run(tmp_path, "int main(void) { for (;;) {} }", seconds=0.3)
    assert (result.ending, result.status) == (Ending.TIME_LIMIT, None)
    assert "still running at the time limit (pc 0x" in str(result)


def test_sleep_without_an_interrupt_to_come_ends_at_once(tmp_path: Path, arm_gcc: str) -> None:
    result = _run(tmp_path, 'int main(void) { for (;;) { __asm volatile("wfi"); } }')
    assert result.ending is Ending.ASLEEP


INTERRUPTS = """
#define NPU(offset) (0x48102000u + (offset))
static volatile uint32_t interrupts;
static const uint32_t stop[4] __attribute__((aligned(16))) = {0xFFFF0000u};
extern void* const vectors[];
static void* own[80] __attribute__((aligned(512)));

static void count(void) {
  interrupts++;
  npu_write32(NPU(0x08), 2u);
}

int main(void) {
  for (int i = 0; i < 80; i++) { own[i] = vectors[i]; }
  own[16 + 56] = (void*)(uintptr_t)count;
  *(volatile uint32_t*)0xE000ED08u = (uint32_t)own;
  *(volatile uint32_t*)0xE000E104u = 1u << 24;
  npu_write32(NPU(0x0C), 1u);
  npu_write32(NPU(0x10), (uint32_t)stop);
  npu_write32(NPU(0x20), 4u);
  uint32_t kept = 0x12345678u;
  for (uint32_t i = 1u; i <= 3u; i++) {
    npu_write32(NPU(0x08), 1u);
    while ((npu_read32(NPU(0x04)) & 2u) != 0u) { WAIT }
    kept += (interrupts == i) ? 0u : 1u;
  }
  return (int)(kept - 0x12345678u);
}
"""


@pytest.mark.parametrize("wait", ["wfi", "wfe"])
def test_interrupts_are_taken_where_the_cpu_waits(tmp_path: Path, arm_gcc: str, wait: str) -> None:
    result = _run(tmp_path, INTERRUPTS.replace("WAIT", f'__asm volatile("{wait}");'))
    assert (result.ending, result.status) == (Ending.EXIT, 0)
    assert len(result.npu_runs) == 3


def test_a_masked_interrupt_does_not_wake(tmp_path: Path, arm_gcc: str) -> None:
    masked = '__asm volatile("cpsid i"); __asm volatile("wfi");'
    result = _run(tmp_path, INTERRUPTS.replace("WAIT", masked))
    assert result.ending is Ending.ASLEEP


def test_the_npu_is_started_once_for_each_command(tmp_path: Path, arm_gcc: str) -> None:
    body = """int main(void) {
      static const uint32_t stop[4] __attribute__((aligned(16))) = {0xFFFF0000u};
      for (int i = 0; i < 50; i++) {
        (void)board_start_npu();
        if (tvm_ethosu_invoke(TVM_ETHOSU_U55_128, stop, 4u, NULL, 0u) != 0) { return 1; }
      }
      return 0;
    }"""
    result = _run(tmp_path, body)
    assert (result.status, len(result.npu_runs)) == (0, 50)


def test_caches_are_cleaned_before_a_run_and_dropped_after_it(tmp_path: Path, arm_gcc: str) -> None:
    """Bit 5 of STATUS says that the NPU has reached the end of its stream."""
    body = """
    static size_t cleaned, dropped;
    static const uint32_t stop[4] __attribute__((aligned(16))) = {0xFFFF0000u};
    static uint8_t data[48] __attribute__((aligned(16)));
    static uint32_t is_done(void) { return (npu_read32(0x48102004u) >> 5) & 1u; }
    static void clean(const void* address, size_t size_bytes) {
      cleaned += ((address == stop) || (address == data)) && !is_done() ? size_bytes : 1000u;
    }
    static void drop(const void* address, size_t size_bytes) {
      dropped += (address == data) && is_done() ? size_bytes : 1000u;
    }
    int main(void) {
      const tvm_ethosu_config_t config = {.base = 0x48102000u, .access = TVM_ETHOSU_PRIVILEGED,
        .max_waits = 10u, .clean_cache = clean, .invalidate_cache = drop};
      const tvm_ethosu_region_t regions[2] = {{1u, sizeof(data), data}, {2u, 0u, data}};
      if (tvm_ethosu_init(&config) != 0) { return 1; }
      if (tvm_ethosu_invoke(TVM_ETHOSU_U55_128, stop, 4u, regions, 2u) != 0) { return 2; }
      return ((cleaned == 4u + 48u) && (dropped == 48u)) ? 0 : 3;
    }"""
    result = _run(tmp_path, body)
    assert (result.ending, result.status) == (Ending.EXIT, 0)


def test_a_stream_that_cannot_be_judged_ends_the_run(tmp_path: Path, arm_gcc: str) -> None:
    """Hardware would go on; here it is told what the simulator found."""
    body = """int main(void) {
      static const uint32_t stop[4] __attribute__((aligned(16))) = {0xFFFF0000u};
      (void)board_start_npu();
      return tvm_ethosu_invoke(TVM_ETHOSU_U55_128, stop, 4u, NULL, 0u);
    }"""
    elf = build_program(tmp_path, HEAD + body)

    class Refuses(Observer):
        def before(self, run: NpuRun, memory: SystemMemory) -> None:
            raise HazardError("two writes at once")

    result = run_unicorn(read_image(elf), U55_128, observer=Refuses())
    assert (result.ending, result.status) == (Ending.NPU, None)
    assert "two writes at once" in str(result)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ((Segment(0x40000000, b"abcd"),), "0x40000000 to 0x40000004 are in no memory"),
        ((Segment(0x6, bytes(8)),), "no vector table at address 0"),
    ],
)
def test_an_image_for_another_board_is_refused(segments: tuple[Segment, ...], message: str) -> None:
    image = Image(Path("other.elf"), segments, {}, {})
    with pytest.raises(UserError, match=message):
        run_unicorn(image, U55_128)
