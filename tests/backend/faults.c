/* Takes main's place: a run with a fault, what the driver says of it, and a run without. Linked with
 * --wrap=tvm_ethosu_invoke, so that generated code calls the function below.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "board.h"
#include "network.h"
#include "tvm_ethosu/driver.h"

enum { NO_FAULT, BAD_WORD, OTHER_MACS, UNMAPPED, MISALIGNED, EMPTY, NO_SUCH_REGION, HANG };

/* Which fault: written over in the file by the test, so the compiler must not know the value. */
__attribute__((used, section(".rodata.fault_kind"))) const uint32_t fault_kind = NO_FAULT;

static uint32_t armed;
static uint32_t copy[65536] __attribute__((aligned(16), section(".bss.noinit.network_io")));

int32_t __real_tvm_ethosu_invoke(uint32_t, const uint32_t*, size_t, const tvm_ethosu_region_t*,
                                 size_t);
int32_t __wrap_tvm_ethosu_invoke(uint32_t, const uint32_t*, size_t, const tvm_ethosu_region_t*,
                                 size_t);

int32_t __wrap_tvm_ethosu_invoke(uint32_t accelerator, const uint32_t* stream, size_t stream_bytes,
                                 const tvm_ethosu_region_t* regions, size_t region_count) {
  tvm_ethosu_region_t changed[8];
  (void)memcpy(changed, regions, region_count * sizeof(changed[0]));
  if (stream_bytes > sizeof(copy)) {
    return 99;
  }
  (void)memcpy(copy, stream, stream_bytes);
  switch (armed) {
    case BAD_WORD:
      copy[0] = 0x00003FFFu; /* later words may be parameters */
      break;
    case OTHER_MACS:
      accelerator ^= 0x180u;
      break;
    case UNMAPPED:
      changed[1].address = (const void*)0x41000000u;
      break;
    case MISALIGNED:
      changed[1].address = (const uint8_t*)changed[1].address + 8;
      break;
    case EMPTY:
      stream_bytes = 0u;
      break;
    case NO_SUCH_REGION:
      changed[1].region = 8u;
      break;
    default:
      break;
  }
  return __real_tvm_ethosu_invoke(accelerator, copy, stream_bytes, changed, region_count);
}

static void print_number(const char* name, int32_t value) {
  char digits[] = "-00";
  const int32_t size = (value < 0) ? -value : value;
  digits[0] = (value < 0) ? '-' : '+';
  digits[1] = (char)('0' + (size / 10) % 10);
  digits[2] = (char)('0' + size % 10);
  board_print(name);
  board_print(digits);
}

static int32_t differing(void) {
  int32_t count = 0;
  for (size_t i = 0u; i < network_output_count; i++) {
    count += (memcmp(network_outputs[i].data, network_cases[0].expected[i],
                     network_outputs[i].size_bytes) != 0);
    (void)memset(network_outputs[i].data, 0x55, network_outputs[i].size_bytes);
  }
  return count;
}

static void run_once(const char* name) {
  for (size_t i = 0u; i < network_input_count; i++) {
    (void)memcpy(network_inputs[i].data, network_cases[0].inputs[i], network_inputs[i].size_bytes);
  }
  board_print(name);
  print_number(": run ", network_run());
  print_number(", driver ", tvm_ethosu_last_failure().code);
  print_number(", outputs wrong ", differing());
  board_print("\n");
}

void TVMAPISetLastError(const char* message);
void TVMAPISetLastError(const char* message) { board_print(message); }

int main(void) {
  run_once("before the start");
  print_number("start ", board_start_npu());
  board_print("\n");
  armed = *(const volatile uint32_t*)&fault_kind;
  run_once("with the fault");
  armed = NO_FAULT;
  run_once("after it");
  board_print("tvm-ethosu: exit 0\nEXITTHESIM\n");
  return 0;
}
