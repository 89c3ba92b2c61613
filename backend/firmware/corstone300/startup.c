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

typedef void (*handler_t)(void);

/* What the CPU reads at a reset and for each exception. */
typedef struct {
  uint32_t* stack;
  handler_t handlers[79];
} vectors_t;

extern const vectors_t vectors;

int main(void);
BOARD_NORETURN void reset_handler(void);
BOARD_NORETURN void report_fault(const uint32_t* frame, uint32_t number);

static void print_hex(const char* name, uint32_t value) {
  char text[] = "00000000";
  for (uint32_t i = 0u; i < 8u; i++) {
    text[i] = "0123456789abcdef"[(value >> (28u - (4u * i))) & 0xFu];
  }
  board_print(name);
  board_print(text);
}

/* A fault that nobody tells of would hang a simulator until its time limit. */
BOARD_NORETURN void report_fault(const uint32_t* frame, uint32_t number) {
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

/* Of addresses that the linker knows; as pointers they would be of different objects. */
static size_t bytes_between(const uint8_t* start, const uint8_t* end) {
  return (size_t)((uintptr_t)end - (uintptr_t)start);
}

BOARD_NORETURN void reset_handler(void) {
  VTOR = (uint32_t)(uintptr_t)&vectors;
  CPACR |= CPACR_FPU;
  __asm volatile("dsb\nisb" ::: "memory");
  (void)memcpy(__data_start, __data_load, bytes_between(__data_start, __data_end));
  (void)memcpy(__sram_start, __sram_load, bytes_between(__sram_start, __sram_end));
  (void)memset(__bss_start, 0, bytes_between(__bss_start, __bss_end));
  board_exit(main());
}

#define SEVEN(handler) handler, handler, handler, handler, handler, handler, handler

/* Number 14 of the handlers is SysTick's and 15 interrupt 0, so the NPU's interrupt 56 is number 71. */
__attribute__((used, section(".vectors"), aligned(512))) const vectors_t vectors = {
    __stack_top,
    {reset_handler, SEVEN(fault_handler), fault_handler, fault_handler, fault_handler, fault_handler,
     fault_handler, fault_handler, tick_interrupt, SEVEN(SEVEN(fault_handler)),
     SEVEN(fault_handler), npu_interrupt, SEVEN(fault_handler)},
};
