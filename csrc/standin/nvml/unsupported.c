/* Answers queries for features that the simulated GPU lacks with NVML_ERROR_NOT_SUPPORTED. */
#include "nvml_abi.h"

#define UNSUPPORTED(name)                                                                                    \
    API name(nvmlDevice_t device) {                                                                          \
        DEVICE(device);                                                                                      \
        return NVML_ERROR_NOT_SUPPORTED;                                                                     \
    }

UNSUPPORTED(nvmlDeviceGetAccountingMode)
UNSUPPORTED(nvmlDeviceGetBoardPartNumber)
UNSUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo)
UNSUPPORTED(nvmlDeviceGetDriverModel)
UNSUPPORTED(nvmlDeviceGetDriverModel_v2)
UNSUPPORTED(nvmlDeviceGetFieldValues)
UNSUPPORTED(nvmlDeviceGetGpuOperationMode)
UNSUPPORTED(nvmlDeviceGetInforomImageVersion)
UNSUPPORTED(nvmlDeviceGetNvLinkState)
UNSUPPORTED(nvmlDeviceGetRetiredPages)
UNSUPPORTED(nvmlDeviceGetRetiredPagesPendingStatus)
UNSUPPORTED(nvmlDeviceGetVirtualizationMode)
