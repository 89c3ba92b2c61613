/* Stands in for a board's driver: hands every NPU invocation to a callback of the test. */
#include <stddef.h>
#include <stdint.h>

#include "tvm/runtime/c_runtime_api.h"
#include "tvm_ethosu/driver.h"

typedef int32_t (*invoke_callback_t)(uint32_t accelerator, const uint32_t* stream,
                                     size_t stream_bytes, const tvm_ethosu_region_t* regions,
                                     size_t region_count);

static invoke_callback_t callback;

void set_invoke_callback(invoke_callback_t wanted) { callback = wanted; }

int32_t tvm_ethosu_invoke(uint32_t accelerator, const uint32_t* stream, size_t stream_bytes,
                          const tvm_ethosu_region_t* regions, size_t region_count) {
  return callback(accelerator, stream, stream_bytes, regions, region_count);
}

void TVMAPISetLastError(const char* message) { (void)message; }
