/* What generated NPU functions ask of a driver: run one command stream on the NPU.
 *
 * A board's firmware implements tvm_ethosu_invoke. It must set base pointer r of the NPU to
 * regions[i].address for each region with regions[i].region == r, run the stream, and return when
 * the NPU is done. All addresses are multiples of 16.
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
#define TVM_ETHOSU_ERROR_MISALIGNED (-1)
#define TVM_ETHOSU_ERROR_WRONG_ACCELERATOR (-2)
#define TVM_ETHOSU_ERROR_FAULT (-3)
#define TVM_ETHOSU_ERROR_TIMEOUT (-4)

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

/* Memory behind one base pointer. */
typedef struct {
  uint32_t region;
  size_t size_bytes;
  const void* address;
} tvm_ethosu_region_t;

/* Run a command stream of stream_bytes bytes; blocks until the NPU has stopped. */
int32_t tvm_ethosu_invoke(uint32_t accelerator, const uint32_t* stream, size_t stream_bytes,
                          const tvm_ethosu_region_t* regions, size_t region_count);

#ifdef __cplusplus
}
#endif

#endif /* TVM_ETHOSU_DRIVER_H_ */
