/* The NPU's driver: what generated NPU functions ask of it, and what a board tells it.
 *
 * Generated code calls tvm_ethosu_invoke. src/tvm_ethosu_driver.c implements it on the registers
 * of an Ethos-U55 or U65; a board calls tvm_ethosu_init once before. There is no heap, and one NPU:
 * calls must not overlap.
 */
#ifndef TVM_ETHOSU_DRIVER_H_
#define TVM_ETHOSU_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return values; everything but TVM_ETHOSU_OK makes the network's run function fail. */
#define TVM_ETHOSU_OK 0
#define TVM_ETHOSU_ERROR_MISALIGNED (-1)        /* a stream or region is not at a multiple of 16 */
#define TVM_ETHOSU_ERROR_WRONG_ACCELERATOR (-2) /* the stream is for another product or MAC count */
#define TVM_ETHOSU_ERROR_BUS (-3)               /* the NPU met a bus error */
#define TVM_ETHOSU_ERROR_TIMEOUT (-4)           /* the NPU did not end */
#define TVM_ETHOSU_ERROR_PARSE (-5)             /* the NPU met a word that is no command */
#define TVM_ETHOSU_ERROR_NOT_READY (-6)         /* tvm_ethosu_init was not called, or failed */
#define TVM_ETHOSU_ERROR_RESET (-7)             /* the NPU stays in reset, or denies the access level */
#define TVM_ETHOSU_ERROR_VERSION (-8)           /* no NPU of architecture version 1 is at this address */
#define TVM_ETHOSU_ERROR_ARGUMENT (-9)          /* no such region, an empty stream, a null pointer */
#define TVM_ETHOSU_ERROR_ADDRESS (-10)          /* a region or stream is in none of the board's memories */
#define TVM_ETHOSU_ERROR_NPU (-11)              /* weight decoder or ECC fault, or a stop before the end */

/* Accelerators: product (0 for U55, 1 for U65) in the upper half, MACs per cycle in the lower. */
#define TVM_ETHOSU_U55_32 0x00000020u
#define TVM_ETHOSU_U55_64 0x00000040u
#define TVM_ETHOSU_U55_128 0x00000080u
#define TVM_ETHOSU_U55_256 0x00000100u
#define TVM_ETHOSU_U65_256 0x00010100u
#define TVM_ETHOSU_U65_512 0x00010200u

/* Where a linker script finds the two kinds of read-only data; override to suit a board. */
#ifndef TVM_ETHOSU_CONSTANTS_IN_FLASH
#define TVM_ETHOSU_CONSTANTS_IN_FLASH \
  __attribute__((aligned(16), section(".rodata.tvm_ethosu_constants")))
#endif
#ifndef TVM_ETHOSU_CONSTANTS_IN_SRAM
#define TVM_ETHOSU_CONSTANTS_IN_SRAM \
  __attribute__((aligned(16), section(".sram.tvm_ethosu_constants")))
#endif
#ifndef TVM_ETHOSU_COMMAND_STREAM
#define TVM_ETHOSU_COMMAND_STREAM \
  __attribute__((aligned(16), section(".rodata.tvm_ethosu_stream")))
#endif

/* Memory behind one base pointer. Region 0 holds constants, all others are read and written. */
typedef struct {
  uint32_t region;
  size_t size_bytes;
  const void* address;
} tvm_ethosu_region_t;

/* The level at which the NPU accesses memory: bits of tvm_ethosu_config_t.access. */
#define TVM_ETHOSU_PRIVILEGED 1u
#define TVM_ETHOSU_NON_SECURE 2u

/* How the driver learns that the NPU has stopped. */
#define TVM_ETHOSU_POLLING 0u
#define TVM_ETHOSU_INTERRUPT 1u

/* A memory that the NPU reaches. `memory_type` is what REGIONCFG takes: 0 or 1 for the AXI port M0,
 * 2 or 3 for M1, which an Ethos-U55 only reads from.
 */
typedef struct {
  uintptr_t address;
  size_t size_bytes;
  uint32_t memory_type;
} tvm_ethosu_memory_t;

/* What a board tells the driver. The structure must stay where it is: the driver keeps a pointer. */
typedef struct {
  uintptr_t base;      /* the NPU's register block */
  uint32_t access;     /* TVM_ETHOSU_PRIVILEGED, TVM_ETHOSU_NON_SECURE, both or none */
  uint32_t completion; /* TVM_ETHOSU_POLLING or TVM_ETHOSU_INTERRUPT */
  /* The time limit: how often the NPU is looked at before the driver gives up, `wait` being called
   * each time in between. A look is a read over the bus, tens of cycles at least.
   */
  uint32_t max_waits;
  void (*wait)(void); /* may be NULL; must return by itself, as WFE does with a periodic event */
  /* The memories that the NPU reaches, or none: then addresses are not checked, and the types are
   * 0 for all regions.
   */
  const tvm_ethosu_memory_t* memories;
  size_t memory_count;
  /* For CPUs with a data cache: write back, and drop, these bytes. May be NULL. */
  void (*clean_cache)(const void* address, size_t size_bytes);
  void (*invalidate_cache)(const void* address, size_t size_bytes);
} tvm_ethosu_config_t;

/* What is known of the last call that failed. */
typedef struct {
  int32_t code;         /* TVM_ETHOSU_ERROR_... */
  uint32_t status;      /* the STATUS register, 0 where it was not read */
  uint32_t queue_bytes; /* how far the NPU had read its command stream */
} tvm_ethosu_failure_t;

/* Reset the NPU and check what it is. Returns TVM_ETHOSU_OK, or _ARGUMENT, _RESET, _VERSION. */
int32_t tvm_ethosu_init(const tvm_ethosu_config_t* config);

/* Run a command stream of stream_bytes bytes; blocks until the NPU has stopped. After a failure the
 * NPU has been reset, and the next call begins anew; if it stayed in reset, that call tries again.
 */
int32_t tvm_ethosu_invoke(uint32_t accelerator, const uint32_t* stream, size_t stream_bytes,
                          const tvm_ethosu_region_t* regions, size_t region_count);

/* To be called from the handler of the NPU's interrupt, with TVM_ETHOSU_INTERRUPT. */
void tvm_ethosu_irq_handler(void);

/* What the NPU is: one of TVM_ETHOSU_U55_32 and the others, or 0 before tvm_ethosu_init. */
uint32_t tvm_ethosu_accelerator(void);

/* NPU cycles of all runs since tvm_ethosu_init, by the NPU's own counter. */
uint64_t tvm_ethosu_cycles(void);

/* The last failure; its code is TVM_ETHOSU_OK where there was none. */
tvm_ethosu_failure_t tvm_ethosu_last_failure(void);

/* Register access, in a file of their own so that a debugger or a test can take their place. */
uint32_t npu_read32(uintptr_t address);
void npu_write32(uintptr_t address, uint32_t value);

#ifdef __cplusplus
}
#endif

#endif /* TVM_ETHOSU_DRIVER_H_ */
