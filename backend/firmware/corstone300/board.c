/* Corstone-300 (Arm's FVP, the MPS3 board with the AN547 or AN552 image, and our own machine).
 * To port the firmware, write another of these, startup.c and link.ld.
 */
#include "board.h"

#include "tvm_ethosu/driver.h"

/* What is added to the addresses of memories and devices; 0x10000000 for those of secure code. */
#ifndef BOARD_ALIAS
#define BOARD_ALIAS 0u
#endif
#ifndef BOARD_NPU_BASE
#define BOARD_NPU_BASE (BOARD_ALIAS + 0x48102000u)
#endif
#ifndef BOARD_NPU_ACCESS
#define BOARD_NPU_ACCESS TVM_ETHOSU_PRIVILEGED
#endif
#ifndef BOARD_NPU_COMPLETION
#define BOARD_NPU_COMPLETION TVM_ETHOSU_POLLING
#endif
/* The time limit. Polling, a look takes some 20 cycles of the CPU, so this is 4 seconds and more at
 * 100 MHz and below. With interrupts, the driver looks after each tick, 10 seconds at 25 MHz.
 */
#ifndef BOARD_NPU_MAX_WAITS
#define BOARD_NPU_MAX_WAITS ((BOARD_NPU_COMPLETION == TVM_ETHOSU_INTERRUPT) ? 1000u : 20000000u)
#endif
#define TICK_CYCLES 250000u

#define NPU_IRQ 56u
#define NVIC_ENABLE ((volatile uint32_t*)0xE000E100u)
#define SYSTICK_CONTROL (*(volatile uint32_t*)0xE000E010u)
#define SYSTICK_RELOAD (*(volatile uint32_t*)0xE000E014u)
#define SYSTICK_VALUE (*(volatile uint32_t*)0xE000E018u)
#define SYSTICK_OF_CPU_CLOCK 4u
#define SYSTICK_INTERRUPT 2u
#define SYSTICK_ENABLE 1u

/* --- console --------------------------------------------------------------------------------- */

#ifdef BOARD_CONSOLE_UART

#define UART_DATA (*(volatile uint32_t*)(BOARD_ALIAS + 0x49303000u))
#define UART_STATE (*(volatile uint32_t*)(BOARD_ALIAS + 0x49303004u))
#define UART_CONTROL (*(volatile uint32_t*)(BOARD_ALIAS + 0x49303008u))
#define UART_BAUD_DIVIDER (*(volatile uint32_t*)(BOARD_ALIAS + 0x49303010u))
#define UART_TRANSMIT_FULL 1u
#define UART_TRANSMIT_ENABLE 1u

void board_print(const char* text) {
  UART_BAUD_DIVIDER = 16u;
  UART_CONTROL = UART_TRANSMIT_ENABLE;
  for (size_t i = 0u; text[i] != '\0'; i++) {
    while ((UART_STATE & UART_TRANSMIT_FULL) != 0u) {
    }
    UART_DATA = (uint32_t)(uint8_t)text[i];
  }
}

/* The last line of main's output ends the FVP and our machine. */
BOARD_NORETURN void board_exit(int32_t status) {
  (void)status;
  for (;;) {
    __asm volatile("wfi");
  }
}

#else

#define SYS_WRITE0 0x04u
#define SYS_EXIT_EXTENDED 0x20u
#define APPLICATION_EXIT 0x20026u

static void semihosting(uint32_t operation, const void* argument) {
  register uint32_t r0 __asm("r0") = operation;
  register const void* r1 __asm("r1") = argument;
  __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

void board_print(const char* text) { semihosting(SYS_WRITE0, text); }

BOARD_NORETURN void board_exit(int32_t status) {
  const uint32_t block[2] = {APPLICATION_EXIT, (uint32_t)status};
  semihosting(SYS_EXIT_EXTENDED, block);
  for (;;) {
    __asm volatile("wfi");
  }
}

#endif

/* --- NPU ------------------------------------------------------------------------------------- */

static void wait_for_event(void) { __asm volatile("wfe"); }

/* An exception ends WFE, so that the driver can count how long the NPU hangs. */
void tick_interrupt(void) {}

static void start_ticks(void) {
  SYSTICK_RELOAD = TICK_CYCLES - 1u;
  SYSTICK_VALUE = 0u;
  SYSTICK_CONTROL = SYSTICK_OF_CPU_CLOCK | SYSTICK_INTERRUPT | SYSTICK_ENABLE;
}

void npu_interrupt(void) { tvm_ethosu_irq_handler(); }

int32_t board_start_npu(void) {
  /* What the NPU reaches; it cannot reach the tightly coupled memories. */
  static const tvm_ethosu_memory_t memories[] = {
      {BOARD_ALIAS + 0x01000000u, 0x00200000u, 0u}, /* data SRAM */
      {BOARD_ALIAS + 0x21000000u, 0x00200000u, 0u}, /* SRAM of the SSE-300 */
      {BOARD_ALIAS + 0x60000000u, 0x02000000u, 0u}, /* DDR */
  };
  static const tvm_ethosu_config_t config = {
      .base = BOARD_NPU_BASE,
      .access = BOARD_NPU_ACCESS,
      .completion = BOARD_NPU_COMPLETION,
      .max_waits = BOARD_NPU_MAX_WAITS,
      .wait = (BOARD_NPU_COMPLETION == TVM_ETHOSU_INTERRUPT) ? wait_for_event : NULL,
#ifdef BOARD_NPU_ANY_ADDRESS
      .memories = NULL,
      .memory_count = (0u * sizeof(memories)),
#else
      .memories = memories,
      .memory_count = sizeof(memories) / sizeof(memories[0]),
#endif
  };
  if (BOARD_NPU_COMPLETION == TVM_ETHOSU_INTERRUPT) {
    start_ticks();
    NVIC_ENABLE[NPU_IRQ / 32u] = (uint32_t)1u << (NPU_IRQ % 32u);
  }
  return tvm_ethosu_init(&config);
}
