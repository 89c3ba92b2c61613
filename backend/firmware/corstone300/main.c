/* Runs a network on the cases that it was built with, prints the outputs, compares them.
 *
 * The lines that begin with "case", and the last two, are read by tvm-ethosu. The status is 0 when
 * all outputs are as expected, 1 when one differs, 2 when the NPU or the network fails.
 */
#include <stdbool.h>
#include <string.h>

#include "board.h"
#include "network.h"
#include "tvm_ethosu/driver.h"

#define EXIT_GOOD 0
#define EXIT_DIFFERENT 1
#define EXIT_FAILED 2

#define HEX_BYTES_PER_LINE 32u
#define MAX_DIGITS 20u

int main(void);

/* --- printing without a heap ----------------------------------------------------------------- */

static void print_unsigned(uint64_t value) {
  char text[MAX_DIGITS + 1u];
  uint64_t left = value;
  size_t at = MAX_DIGITS;
  text[at] = '\0';
  do {
    at--;
    text[at] = "0123456789"[left % 10u];
    left /= 10u;
  } while (left > 0u);
  board_print(&text[at]);
}

static void print_signed(int32_t value) {
  if (value < 0) {
    board_print("-");
    print_unsigned((uint64_t)(-(int64_t)value));
  } else {
    print_unsigned((uint64_t)value);
  }
}

static void print_bytes(const uint8_t* data, size_t size_bytes) {
  char text[(2u * HEX_BYTES_PER_LINE) + 1u];
  for (size_t i = 0u; i < size_bytes; i++) {
    text[2u * i] = "0123456789abcdef"[data[i] >> 4];
    text[(2u * i) + 1u] = "0123456789abcdef"[data[i] & 0xFu];
  }
  text[2u * size_bytes] = '\0';
  board_print(text);
}

static void print_case(size_t index, const char* what) {
  board_print("case ");
  print_unsigned(index);
  board_print(what);
}

/* --- cases ----------------------------------------------------------------------------------- */

static void print_output(size_t index, size_t output) {
  const network_tensor_t* tensor = &network_outputs[output];
  for (size_t at = 0u; at < tensor->size_bytes; at += HEX_BYTES_PER_LINE) {
    const size_t left = tensor->size_bytes - at;
    print_case(index, " output ");
    print_unsigned(output);
    board_print(" bytes ");
    print_bytes(&tensor->data[at], (left < HEX_BYTES_PER_LINE) ? left : HEX_BYTES_PER_LINE);
    board_print("\n");
  }
}

static size_t compare_output(size_t index, size_t output) {
  const network_tensor_t* tensor = &network_outputs[output];
  const uint8_t* expected = network_cases[index].expected[output];
  size_t differing = 0u;
  for (size_t i = 0u; i < tensor->size_bytes; i++) {
    differing += (tensor->data[i] != expected[i]) ? 1u : 0u;
  }
  print_case(index, " output ");
  print_unsigned(output);
  board_print(" ");
  board_print(tensor->name);
  board_print(" ");
  board_print(tensor->dtype);
  board_print(": ");
  print_unsigned(differing);
  board_print(" of ");
  print_unsigned(tensor->size_bytes);
  board_print(" bytes differ\n");
  return differing;
}

static void print_failure(size_t index, int32_t status) {
  const tvm_ethosu_failure_t failure = tvm_ethosu_last_failure();
  print_case(index, " failed with ");
  print_signed(status);
  board_print(", NPU driver ");
  print_signed(failure.code);
  board_print(", status ");
  print_unsigned(failure.status);
  board_print(", read ");
  print_unsigned(failure.queue_bytes);
  board_print(" bytes of the stream\n");
}

static int32_t run_case(size_t index) {
  const uint64_t cycles = tvm_ethosu_cycles();
  int32_t result = EXIT_GOOD;
  /* First the outputs: one may lie in the memory of an input. */
  for (size_t i = 0u; i < network_output_count; i++) {
    (void)memset(network_outputs[i].data, 0, network_outputs[i].size_bytes);
  }
  for (size_t i = 0u; i < network_input_count; i++) {
    (void)memcpy(network_inputs[i].data, network_cases[index].inputs[i],
                 network_inputs[i].size_bytes);
  }
  const int32_t status = network_run();
  if (status != 0) {
    print_failure(index, status);
    return EXIT_FAILED;
  }
  print_case(index, " took ");
  print_unsigned(tvm_ethosu_cycles() - cycles);
  board_print(" NPU cycles\n");
  for (size_t i = 0u; i < network_output_count; i++) {
    print_output(index, i);
    if (compare_output(index, i) > 0u) {
      result = EXIT_DIFFERENT;
    }
  }
  return result;
}

/* Generated code calls this when an argument is wrong. */
void TVMAPISetLastError(const char* message);
void TVMAPISetLastError(const char* message) {
  board_print("TVM: ");
  board_print(message);
  board_print("\n");
}

static int32_t run_all(void) {
  int32_t worst = EXIT_GOOD;
  for (size_t i = 0u; i < network_case_count; i++) {
    const int32_t result = run_case(i);
    worst = (result > worst) ? result : worst;
  }
  return worst;
}

int main(void) {
  int32_t result = EXIT_FAILED;
  board_print(network_title);
  board_print("\n");
  const int32_t started = board_start_npu();
  if (started == TVM_ETHOSU_OK) {
    result = run_all();
  } else {
    board_print("the NPU did not start, NPU driver ");
    print_signed(started);
    board_print("\n");
  }
  board_print("tvm-ethosu: exit ");
  print_signed(result);
  board_print("\nEXITTHESIM\n");
  return result;
}
