/* Memory and threads as generated CPU operators may ask for them; with USMP (the default for the
 * C runtime) they do not.
 */
#ifndef TVM_RUNTIME_C_BACKEND_API_H_
#define TVM_RUNTIME_C_BACKEND_API_H_

#include "tvm/runtime/c_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

void* TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t size_bytes, int type_code,
                               int type_bits);
int TVMBackendFreeWorkspace(int device_type, int device_id, void* pointer);

#ifdef __cplusplus
}
#endif

#endif /* TVM_RUNTIME_C_BACKEND_API_H_ */
