/* What the firmware's main asks of a board: a console, an end, and the NPU made ready. */
#ifndef BOARD_H_
#define BOARD_H_

#include <stdint.h>

/* C99 has no word for a function that does not return. */
#define BOARD_NORETURN __attribute__((noreturn))

/* Write text to the console. */
void board_print(const char* text);

/* End the program with a status; on a board without a debugger it stays here. */
BOARD_NORETURN void board_exit(int32_t status);

/* Reset the NPU and tell the driver of it; returns TVM_ETHOSU_OK or the driver's error. */
int32_t board_start_npu(void);

/* The handlers of the NPU's interrupt and of SysTick, which startup.c puts into their places. */
void npu_interrupt(void);
void tick_interrupt(void);

#endif /* BOARD_H_ */
