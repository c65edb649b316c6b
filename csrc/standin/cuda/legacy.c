/* Exports first versions of functions whose second has the same parameters, as the real library does. */
#include "cuda_abi.h"

#define LEGACY(name, parameters, arguments)                                                                  \
    API name##_v2 parameters;                                                                                \
    API name parameters {                                                                                    \
        return name##_v2 arguments;                                                                          \
    }

LEGACY(cuCtxDestroy, (CUcontext context), (context))
LEGACY(cuCtxPopCurrent, (CUcontext * context), (context))
LEGACY(cuCtxPushCurrent, (CUcontext context), (context))
LEGACY(cuDevicePrimaryCtxRelease, (CUdevice device), (device))
LEGACY(cuDevicePrimaryCtxReset, (CUdevice device), (device))
LEGACY(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned int flags), (device, flags))
LEGACY(cuEventDestroy, (CUevent event), (event))
LEGACY(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags),
       (address, handle, flags))
LEGACY(cuMemHostRegister, (void *pointer, size_t size, unsigned int flags), (pointer, size, flags))
LEGACY(cuStreamDestroy, (CUstream stream), (stream))
