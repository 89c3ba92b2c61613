/* The network as main sees it: tensors, cases to run, and the call. network.c is generated. */
#ifndef NETWORK_H_
#define NETWORK_H_

#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char* name;
  const char* dtype;
  size_t size_bytes;
  uint8_t* data; /* in the arena */
} network_tensor_t;

/* One inference: what goes in, and what must come out. One pointer per input and output. */
typedef struct {
  const uint8_t* const* inputs;
  const uint8_t* const* expected;
} network_case_t;

extern const char network_title[];
extern const uint32_t network_accelerator; /* TVM_ETHOSU_U55_128 and so on */

extern const network_tensor_t network_inputs[];
extern const size_t network_input_count;
extern const network_tensor_t network_outputs[];
extern const size_t network_output_count;
extern const network_case_t network_cases[];
extern const size_t network_case_count;

/* Run the network on the inputs as they are; returns 0 when all went well. */
int32_t network_run(void);

#endif /* NETWORK_H_ */
