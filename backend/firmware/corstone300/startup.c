/* Reset and faults of a Cortex-M33 or M55: vectors, memory as C expects it, the FPU, then main. */
#include <stdint.h>
#include <string.h>

#include "board.h"

#define CPACR (*(volatile uint32_t*)0xE000ED88u)
#define VTOR (*(volatile uint32_t*)0xE000ED08u)
#define CFSR (*(const volatile uint32_t*)0xE000ED28u)
#define BFAR (*(const volatile uint32_t*)0xE000ED38u)
#define CPACR_FPU (0xFu << 20)
#define EXIT_FAULT 3

/* From link.ld. */
extern uint32_t __stack_top[];
extern uint8_t __data_start[], __data_end[], __data_load[];
extern uint8_t __sram_start[], __sram_end[], __sram_load[];
extern uint8_t __bss_start[], __bss_end[];

int main(void);
void npu_interrupt(void);
_Noreturn void reset_handler(void);
_Noreturn void report_fault(const uint32_t* frame, uint32_t number);

static void print_hex(const char* name, uint32_t value) {
  char text[] = "00000000";
  for (uint32_t i = 0u; i < 8u; i++) {
    text[i] = "0123456789abcdef"[(value >> (28u - (4u * i))) & 0xFu];
  }
  board_print(name);
  board_print(text);
}

/* A fault that nobody tells of would hang a simulator until its time limit. */
_Noreturn void report_fault(const uint32_t* frame, uint32_t number) {
  print_hex("tvm-ethosu: fault, exception 0x", number);
  print_hex(" at pc 0x", frame[6]);
  print_hex(", cfsr 0x", CFSR);
  print_hex(", bfar 0x", BFAR);
  board_print("\ntvm-ethosu: exit 3\nEXITTHESIM\n");
  board_exit(EXIT_FAULT);
}

__attribute__((naked)) static void fault_handler(void) {
  __asm volatile(
      "mrs r0, msp\n"
      "mrs r1, ipsr\n"
      "ldr r2, =report_fault\n"
      "bx r2\n");
}

_Noreturn void reset_handler(void) {
  extern const void* const vectors[];
  VTOR = (uint32_t)(uintptr_t)vectors;
  CPACR |= CPACR_FPU;
  __asm volatile("dsb\nisb" ::: "memory");
  (void)memcpy(__data_start, __data_load, (size_t)(__data_end - __data_start));
  (void)memcpy(__sram_start, __sram_load, (size_t)(__sram_end - __sram_start));
  (void)memset(__bss_start, 0, (size_t)(__bss_end - __bss_start));
  board_exit(main());
}

#define VECTOR(handler) ((const void*)(handler))
#define FIRST_INTERRUPT 16

__attribute__((used, section(".vectors"), aligned(512))) const void* const vectors[FIRST_INTERRUPT + 64] = {
    __stack_top,
    VECTOR(reset_handler),
    [2 ... FIRST_INTERRUPT + 55] = VECTOR(fault_handler),
    [FIRST_INTERRUPT + 56] = VECTOR(npu_interrupt),
    [FIRST_INTERRUPT + 57 ... FIRST_INTERRUPT + 63] = VECTOR(fault_handler),
};
