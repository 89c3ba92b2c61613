/* Register access of the driver; never inlined, so that it can be watched or replaced. */
#include "tvm_ethosu/driver.h"

__attribute__((noinline)) uint32_t npu_read32(uintptr_t address) {
  return *(const volatile uint32_t*)address;
}

__attribute__((noinline)) void npu_write32(uintptr_t address, uint32_t value) {
  *(volatile uint32_t*)address = value;
}
