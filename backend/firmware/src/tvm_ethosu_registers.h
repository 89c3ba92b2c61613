/* Registers of the Ethos-U55 and U65 that the driver uses: byte offsets and bits.
 *
 * The facts are public, in Arm's ethosu55_interface.h and ethosu65_interface.h (core driver) and in
 * the Technical Reference Manual of the Ethos-U55 (Arm document 102420).
 */
#ifndef TVM_ETHOSU_REGISTERS_H_
#define TVM_ETHOSU_REGISTERS_H_

#include <stdint.h>

#define NPU_ID 0x000u
#define NPU_STATUS 0x004u
#define NPU_CMD 0x008u
#define NPU_RESET 0x00Cu
#define NPU_QBASE 0x010u /* 64 bits */
#define NPU_QREAD 0x018u
#define NPU_QCONFIG 0x01Cu
#define NPU_QSIZE 0x020u
#define NPU_PROT 0x024u
#define NPU_CONFIG 0x028u
#define NPU_REGIONCFG 0x03Cu
#define NPU_AXI_LIMIT0 0x040u /* four of them, 4 bytes apart */
#define NPU_BASEP0 0x080u     /* eight of them, 64 bits each */
#define NPU_PMCR 0x180u
#define NPU_PMCNTENSET 0x184u
#define NPU_PMCCNTR 0x1A0u /* 64 bits */

#define NPU_ID_ARCH_MAJOR_SHIFT 28u

#define NPU_STATUS_IRQ (1u << 1)
#define NPU_STATUS_BUS_ERROR (1u << 2)
#define NPU_STATUS_RESETTING (1u << 3)
#define NPU_STATUS_PARSE_ERROR (1u << 4)
#define NPU_STATUS_END_REACHED (1u << 5)
#define NPU_STATUS_WEIGHT_FAULT (1u << 7)
#define NPU_STATUS_ECC_FAULT ((uint32_t)1u << 8)
#define NPU_STATUS_ERRORS \
  (NPU_STATUS_BUS_ERROR | NPU_STATUS_PARSE_ERROR | NPU_STATUS_WEIGHT_FAULT | NPU_STATUS_ECC_FAULT)

#define NPU_CMD_RUN (1u << 0)
#define NPU_CMD_CLEAR_IRQ (1u << 1)
#define NPU_CMD_CLOCK_OFF_ALLOWED (1u << 2)
#define NPU_CMD_POWER_OFF_ALLOWED (1u << 3)
#define NPU_CMD_IDLE (NPU_CMD_CLOCK_OFF_ALLOWED | NPU_CMD_POWER_OFF_ALLOWED)

#define NPU_ACCESS_MASK 0x3u /* of RESET and PROT: bit 0 privileged, bit 1 non-secure */

#define NPU_CONFIG_MACS_MASK 0xFu /* log2 of the multiply-accumulates per cycle */
#define NPU_CONFIG_PRODUCT_SHIFT 28u

/* Bursts of up to 64 bytes, 32 outstanding reads, 16 outstanding writes: both products take that. */
#define NPU_AXI_LIMIT_VALUE 0x0F1F0000u

#define NPU_PMCR_ENABLE (1u << 0)
#define NPU_PMCR_RESET_CYCLES (1u << 2)
#define NPU_PMCNTEN_CYCLES ((uint32_t)1u << 31)

#define NPU_REGION_COUNT 8u
#define NPU_MEMORY_TYPE_BITS 2u
#define NPU_ALIGN_BYTES 16u
#define NPU_ARCH_MAJOR 1u

#endif /* TVM_ETHOSU_REGISTERS_H_ */
