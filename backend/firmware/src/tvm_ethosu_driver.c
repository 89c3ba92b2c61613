/* The driver of an Ethos-U55 or U65, on its registers; see tvm_ethosu/driver.h. */
#include "tvm_ethosu/driver.h"

#include <stdbool.h>

#include "tvm_ethosu_registers.h"

/* How often RESET is looked at: a soft reset takes some hundred cycles. */
#define RESET_LOOKS 100000u

typedef struct {
  const tvm_ethosu_config_t* config; /* NULL until the NPU is ready */
  uint32_t accelerator;
  bool needs_reset; /* it did not come out of the last reset, after a failure */
  tvm_ethosu_failure_t failure;
  uint64_t cycles;              /* of all runs */
  volatile uint32_t irq_status; /* STATUS as the interrupt's handler saw it, 0 before */
} driver_t;

static driver_t driver;

/* --- registers ------------------------------------------------------------------------------- */

static uint32_t read_register(const tvm_ethosu_config_t* config, uint32_t offset) {
  return npu_read32(config->base + offset);
}

static void write_register(const tvm_ethosu_config_t* config, uint32_t offset, uint32_t value) {
  npu_write32(config->base + offset, value);
}

static void write_address(const tvm_ethosu_config_t* config, uint32_t offset, const void* address) {
  const uint64_t value = (uint64_t)(uintptr_t)address;
  write_register(config, offset, (uint32_t)(value & 0xFFFFFFFFu));
  write_register(config, offset + 4u, (uint32_t)(value >> 32));
}

/* All writes to memory before this are seen by the NPU, and those of the NPU by all after it. */
static void barrier(void) {
#if defined(__ARM_ARCH)
  __asm volatile("dsb sy" ::: "memory");
#else
  __sync_synchronize();
#endif
}

static bool has_access(const tvm_ethosu_config_t* config) {
  return (read_register(config, NPU_PROT) & NPU_ACCESS_MASK) == (config->access & NPU_ACCESS_MASK);
}

/* Reset the NPU into the access level that the board asked for. */
static int32_t reset(const tvm_ethosu_config_t* config) {
  uint32_t looks = RESET_LOOKS;
  write_register(config, NPU_CMD, 0u); /* power and clock stay on */
  write_register(config, NPU_RESET, config->access & NPU_ACCESS_MASK);
  while ((looks > 0u) && ((read_register(config, NPU_STATUS) & NPU_STATUS_RESETTING) != 0u)) {
    looks--;
  }
  if ((looks == 0u) || !has_access(config)) {
    return TVM_ETHOSU_ERROR_RESET;
  }
  write_register(config, NPU_CMD, 0u);
  return TVM_ETHOSU_OK;
}

static uint32_t accelerator_of(const tvm_ethosu_config_t* config) {
  const uint32_t value = read_register(config, NPU_CONFIG);
  const uint32_t product = value >> NPU_CONFIG_PRODUCT_SHIFT;
  return (product << 16) | ((uint32_t)1u << (value & NPU_CONFIG_MACS_MASK));
}

/* --- arguments ------------------------------------------------------------------------------- */

static bool is_aligned(const void* address) {
  return ((uintptr_t)address % NPU_ALIGN_BYTES) == 0u;
}

/* Find the memory that holds all of these bytes; the type is 0 where the board names none. */
static bool find_memory(const tvm_ethosu_config_t* config, const void* address, size_t size_bytes,
                        uint32_t* memory_type) {
  const uintptr_t start = (uintptr_t)address;
  bool is_found = config->memory_count == 0u;
  *memory_type = 0u;
  for (size_t i = 0u; (i < config->memory_count) && !is_found; i++) {
    const tvm_ethosu_memory_t* memory = &config->memories[i];
    const uintptr_t offset = start - memory->address; /* of no use where it is below */
    const bool begins = (start >= memory->address) && (offset <= memory->size_bytes);
    if (begins && (size_bytes <= (memory->size_bytes - offset))) {
      *memory_type = memory->memory_type;
      is_found = true;
    }
  }
  return is_found;
}

/* Check the regions and write their base pointers, then REGIONCFG. An empty one is not used. */
static int32_t set_regions(const tvm_ethosu_config_t* config, const tvm_ethosu_region_t* regions,
                           size_t region_count) {
  uint32_t types = 0u;
  for (size_t i = 0u; i < region_count; i++) {
    const tvm_ethosu_region_t* region = &regions[i];
    uint32_t memory_type = 0u;
    if (region->region >= NPU_REGION_COUNT) {
      return TVM_ETHOSU_ERROR_ARGUMENT;
    }
    if (!is_aligned(region->address)) {
      return TVM_ETHOSU_ERROR_MISALIGNED;
    }
    if ((region->size_bytes > 0u) &&
        !find_memory(config, region->address, region->size_bytes, &memory_type)) {
      return TVM_ETHOSU_ERROR_ADDRESS;
    }
    types |= memory_type << (NPU_MEMORY_TYPE_BITS * region->region);
    write_address(config, NPU_BASEP0 + (8u * region->region), region->address);
  }
  write_register(config, NPU_REGIONCFG, types);
  return TVM_ETHOSU_OK;
}

static int32_t set_stream(const tvm_ethosu_config_t* config, const uint32_t* stream,
                          size_t stream_bytes) {
  uint32_t memory_type = 0u;
  if ((stream == NULL) || (stream_bytes == 0u) || ((stream_bytes % 4u) != 0u)) {
    return TVM_ETHOSU_ERROR_ARGUMENT;
  }
  if (!is_aligned(stream)) {
    return TVM_ETHOSU_ERROR_MISALIGNED;
  }
  if (!find_memory(config, stream, stream_bytes, &memory_type)) {
    return TVM_ETHOSU_ERROR_ADDRESS;
  }
  write_register(config, NPU_QCONFIG, memory_type);
  write_address(config, NPU_QBASE, stream);
  write_register(config, NPU_QSIZE, (uint32_t)stream_bytes);
  for (uint32_t i = 0u; i < 4u; i++) {
    write_register(config, NPU_AXI_LIMIT0 + (4u * i), NPU_AXI_LIMIT_VALUE);
  }
  return TVM_ETHOSU_OK;
}

typedef void (*cache_hook_t)(const void* address, size_t size_bytes);

static void for_each_region(cache_hook_t hook, const tvm_ethosu_region_t* regions,
                            size_t region_count) {
  if (hook != NULL) {
    for (size_t i = 0u; i < region_count; i++) {
      if (regions[i].size_bytes > 0u) {
        hook(regions[i].address, regions[i].size_bytes);
      }
    }
  }
}

/* --- a run ----------------------------------------------------------------------------------- */

/* Return STATUS as soon as the NPU has stopped, or as it is after the time limit. */
static uint32_t wait_for_end(const tvm_ethosu_config_t* config) {
  uint32_t status = 0u;
  for (uint32_t waits = config->max_waits; waits > 0u; waits--) {
    status = (config->completion == TVM_ETHOSU_INTERRUPT) ? driver.irq_status
                                                          : read_register(config, NPU_STATUS);
    if ((status & (NPU_STATUS_IRQ | NPU_STATUS_ERRORS)) != 0u) {
      return status;
    }
    if (config->wait != NULL) {
      config->wait();
    }
  }
  return status;
}

static int32_t code_of(uint32_t status) {
  int32_t code = TVM_ETHOSU_OK;
  if ((status & NPU_STATUS_BUS_ERROR) != 0u) {
    code = TVM_ETHOSU_ERROR_BUS;
  } else if ((status & NPU_STATUS_PARSE_ERROR) != 0u) {
    code = TVM_ETHOSU_ERROR_PARSE;
  } else if ((status & NPU_STATUS_ERRORS) != 0u) {
    code = TVM_ETHOSU_ERROR_NPU;
  } else if ((status & NPU_STATUS_IRQ) == 0u) {
    code = TVM_ETHOSU_ERROR_TIMEOUT;
  } else if ((status & NPU_STATUS_END_REACHED) == 0u) {
    code = TVM_ETHOSU_ERROR_NPU;
  } else {
    code = TVM_ETHOSU_OK;
  }
  return code;
}

static uint64_t read_cycles(const tvm_ethosu_config_t* config) {
  const uint64_t low = read_register(config, NPU_PMCCNTR);
  return ((uint64_t)read_register(config, NPU_PMCCNTR + 4u) << 32) | low;
}

static int32_t run(const tvm_ethosu_config_t* config) {
  driver.irq_status = 0u;
  write_register(config, NPU_PMCR, NPU_PMCR_ENABLE | NPU_PMCR_RESET_CYCLES);
  write_register(config, NPU_PMCNTENSET, NPU_PMCNTEN_CYCLES);
  barrier();
  write_register(config, NPU_CMD, NPU_CMD_RUN);
  const uint32_t status = wait_for_end(config);
  barrier();
  const int32_t code = code_of(status);
  driver.cycles += read_cycles(config);
  if (code != TVM_ETHOSU_OK) {
    driver.failure.status = read_register(config, NPU_STATUS) | status;
    driver.failure.queue_bytes = read_register(config, NPU_QREAD);
  }
  write_register(config, NPU_CMD, NPU_CMD_CLEAR_IRQ);
  return code;
}

/* Note a failure; where the NPU may be at work still, reset it for the next call. */
static int32_t fail(int32_t code, bool has_run) {
  driver.failure.code = code;
  if (!has_run) {
    driver.failure.status = 0u;
    driver.failure.queue_bytes = 0u;
  } else {
    driver.needs_reset = (reset(driver.config) != TVM_ETHOSU_OK);
    write_register(driver.config, NPU_CMD, NPU_CMD_IDLE);
  }
  return code;
}

/* --- the interface --------------------------------------------------------------------------- */

int32_t tvm_ethosu_init(const tvm_ethosu_config_t* config) {
  driver = (driver_t){0};
  if ((config == NULL) || (config->max_waits == 0u) ||
      ((config->memories == NULL) && (config->memory_count > 0u))) {
    return fail(TVM_ETHOSU_ERROR_ARGUMENT, false);
  }
  if ((read_register(config, NPU_ID) >> NPU_ID_ARCH_MAJOR_SHIFT) != NPU_ARCH_MAJOR) {
    return fail(TVM_ETHOSU_ERROR_VERSION, false);
  }
  const int32_t code = reset(config);
  if (code != TVM_ETHOSU_OK) {
    return fail(code, false);
  }
  driver.accelerator = accelerator_of(config);
  driver.config = config;
  write_register(config, NPU_CMD, NPU_CMD_IDLE);
  return TVM_ETHOSU_OK;
}

int32_t tvm_ethosu_invoke(uint32_t accelerator, const uint32_t* stream, size_t stream_bytes,
                          const tvm_ethosu_region_t* regions, size_t region_count) {
  const tvm_ethosu_config_t* config = driver.config;
  if (config == NULL) {
    return fail(TVM_ETHOSU_ERROR_NOT_READY, false);
  }
  if (accelerator != driver.accelerator) {
    return fail(TVM_ETHOSU_ERROR_WRONG_ACCELERATOR, false);
  }
  if ((regions == NULL) && (region_count > 0u)) {
    return fail(TVM_ETHOSU_ERROR_ARGUMENT, false);
  }
  write_register(config, NPU_CMD, 0u); /* wake it, power and clock stay on */
  /* An NPU that was without power has forgotten its access level. */
  const bool is_awake = !driver.needs_reset && has_access(config);
  int32_t code = is_awake ? TVM_ETHOSU_OK : reset(config);
  driver.needs_reset = (code != TVM_ETHOSU_OK);
  if (code == TVM_ETHOSU_OK) {
    code = set_stream(config, stream, stream_bytes);
  }
  if (code == TVM_ETHOSU_OK) {
    code = set_regions(config, regions, region_count);
  }
  if (code != TVM_ETHOSU_OK) {
    write_register(config, NPU_CMD, NPU_CMD_IDLE);
    return fail(code, false);
  }
  const tvm_ethosu_region_t stream_region = {0u, stream_bytes, stream};
  for_each_region(config->clean_cache, &stream_region, 1u);
  for_each_region(config->clean_cache, regions, region_count);
  code = run(config);
  for_each_region(config->invalidate_cache, regions, region_count);
  if (code != TVM_ETHOSU_OK) {
    return fail(code, true);
  }
  write_register(config, NPU_CMD, NPU_CMD_IDLE);
  return TVM_ETHOSU_OK;
}

void tvm_ethosu_irq_handler(void) {
  const tvm_ethosu_config_t* config = driver.config;
  if (config != NULL) {
    driver.irq_status = read_register(config, NPU_STATUS);
    write_register(config, NPU_CMD, NPU_CMD_CLEAR_IRQ);
    barrier(); /* the interrupt line is low before the handler returns */
  }
}

uint32_t tvm_ethosu_accelerator(void) { return driver.accelerator; }

uint64_t tvm_ethosu_cycles(void) { return driver.cycles; }

tvm_ethosu_failure_t tvm_ethosu_last_failure(void) { return driver.failure; }
