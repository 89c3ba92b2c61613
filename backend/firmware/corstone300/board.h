/* What the firmware's main asks of a board: a console, an end, and the NPU made ready. */
#ifndef BOARD_H_
#define BOARD_H_

#include <stdint.h>

/* Write text to the console. */
void board_print(const char* text);

/* End the program with a status; on a board without a debugger it stays here. */
_Noreturn void board_exit(int32_t status);

/* Reset the NPU and tell the driver of it; returns TVM_ETHOSU_OK or the driver's error. */
int32_t board_start_npu(void);

#endif /* BOARD_H_ */
