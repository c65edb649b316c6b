/* Lists every function that the shim replaces, in one table, and every real one that it calls. */
#ifndef COTENANT_HOOKS_H
#define COTENANT_HOOKS_H

#include "cuda_abi.h"
#include "slot.h"

#define EXPORT __attribute__((visibility("default")))

/* HOOK(exported name, name as cuGetProcAddress takes it, first CUDA version of this form, per-thread stream)
 */
#define CUDA_HOOKS(HOOK)                                                                                     \
    HOOK(cuGetProcAddress, cuGetProcAddress, 11030, 0)                                                       \
    HOOK(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0)                                                    \
    HOOK(cuCtxCreate, cuCtxCreate, 2000, 0)                                                                  \
    HOOK(cuCtxCreate_v2, cuCtxCreate, 3020, 0)                                                               \
    HOOK(cuCtxCreate_v3, cuCtxCreate, 11040, 0)                                                              \
    HOOK(cuCtxCreate_v4, cuCtxCreate, 12050, 0)                                                              \
    HOOK(cuCtxDestroy, cuCtxDestroy, 2000, 0)                                                                \
    HOOK(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0)                                                             \
    HOOK(cuCtxAttach, cuCtxAttach, 2000, 0)                                                                  \
    HOOK(cuCtxDetach, cuCtxDetach, 2000, 0)                                                                  \
    HOOK(cuGreenCtxCreate, cuGreenCtxCreate, 12040, 0)                                                       \
    HOOK(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, 0)                                                     \
    HOOK(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, 0)                                                     \
    HOOK(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0)                                        \
    HOOK(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0)                                      \
    HOOK(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0)                                  \
    HOOK(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0)                                          \
    HOOK(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0)                                      \
    HOOK(cuMemAlloc, cuMemAlloc, 2000, 0)                                                                    \
    HOOK(cuMemAlloc_v2, cuMemAlloc, 3020, 0)                                                                 \
    HOOK(cuMemAllocPitch, cuMemAllocPitch, 2000, 0)                                                          \
    HOOK(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0)                                                       \
    HOOK(cuMemAllocManaged, cuMemAllocManaged, 6000, 0)                                                      \
    HOOK(cuMemFree, cuMemFree, 2000, 0)                                                                      \
    HOOK(cuMemFree_v2, cuMemFree, 3020, 0)                                                                   \
    HOOK(cuMemAllocAsync, cuMemAllocAsync, 11020, 0)                                                         \
    HOOK(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 1)                                                    \
    HOOK(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0)                                         \
    HOOK(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 1)                                    \
    HOOK(cuMemFreeAsync, cuMemFreeAsync, 11020, 0)                                                           \
    HOOK(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 1)                                                      \
    HOOK(cuMemPoolCreate, cuMemPoolCreate, 11020, 0)                                                         \
    HOOK(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0)                                                       \
    HOOK(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0)                                                         \
    HOOK(cuStreamSynchronize, cuStreamSynchronize, 2000, 0)                                                  \
    HOOK(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, 1)                                             \
    HOOK(cuEventSynchronize, cuEventSynchronize, 2000, 0)                                                    \
    HOOK(cuCtxSynchronize, cuCtxSynchronize, 2000, 0)                                                        \
    HOOK(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0)                                                    \
    HOOK(cuMemCreate, cuMemCreate, 10020, 0)                                                                 \
    HOOK(cuMemRelease, cuMemRelease, 10020, 0)                                                               \
    HOOK(cuMemMap, cuMemMap, 10020, 0)                                                                       \
    HOOK(cuMemUnmap, cuMemUnmap, 10020, 0)                                                                   \
    HOOK(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0)                                 \
    HOOK(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, 0)                               \
    HOOK(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0)                           \
    HOOK(cuArrayCreate, cuArrayCreate, 2000, 0)                                                              \
    HOOK(cuArrayCreate_v2, cuArrayCreate, 3020, 0)                                                           \
    HOOK(cuArray3DCreate, cuArray3DCreate, 2000, 0)                                                          \
    HOOK(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0)                                                       \
    HOOK(cuArrayDestroy, cuArrayDestroy, 2000, 0)                                                            \
    HOOK(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0)                                            \
    HOOK(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0)                                          \
    HOOK(cuGraphInstantiate, cuGraphInstantiate, 10000, 0)                                                   \
    HOOK(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0)                                                \
    HOOK(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0)                                 \
    HOOK(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0)                               \
    HOOK(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, 1)                          \
    HOOK(cuGraphLaunch, cuGraphLaunch, 10000, 0)                                                             \
    HOOK(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, 1)                                                        \
    HOOK(cuGraphUpload, cuGraphUpload, 11010, 0)                                                             \
    HOOK(cuGraphUpload_ptsz, cuGraphUpload, 11010, 1)                                                        \
    HOOK(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0)                                                   \
    HOOK(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0)                                               \
    HOOK(cuLaunch, cuLaunch, 2000, 0)                                                                        \
    HOOK(cuLaunchGrid, cuLaunchGrid, 2000, 0)                                                                \
    HOOK(cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0)                                                      \
    HOOK(cuLaunchKernel, cuLaunchKernel, 4000, 0)                                                            \
    HOOK(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, 1)                                                       \
    HOOK(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0)                                                       \
    HOOK(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, 1)                                                  \
    HOOK(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 0)                                      \
    HOOK(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, 1)                                 \
    HOOK(cuMemGetInfo, cuMemGetInfo, 2000, 0)                                                                \
    HOOK(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0)                                                             \
    HOOK(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0)                                                        \
    HOOK(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0)

#define NVML_HOOKS(HOOK)                                                                                     \
    HOOK(nvmlDeviceGetCount, nvmlDeviceGetCount, 0, 0)                                                       \
    HOOK(nvmlDeviceGetCount_v2, nvmlDeviceGetCount, 0, 0)                                                    \
    HOOK(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex, 0, 0)                                       \
    HOOK(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex, 0, 0)                                    \
    HOOK(nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID, 0, 0)                                         \
    HOOK(nvmlDeviceGetHandleByUUIDV, nvmlDeviceGetHandleByUUIDV, 0, 0)                                       \
    HOOK(nvmlDeviceGetHandleBySerial, nvmlDeviceGetHandleBySerial, 0, 0)                                     \
    HOOK(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId, 0, 0)                                 \
    HOOK(nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetHandleByPciBusId, 0, 0)                              \
    HOOK(nvmlDeviceGetIndex, nvmlDeviceGetIndex, 0, 0)                                                       \
    HOOK(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetMigDeviceHandleByIndex, 0, 0)                     \
    HOOK(nvmlDeviceGetTopologyNearestGpus, nvmlDeviceGetTopologyNearestGpus, 0, 0)                           \
    HOOK(nvmlSystemGetTopologyGpuSet, nvmlSystemGetTopologyGpuSet, 0, 0)                                     \
    HOOK(nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo, 0, 0)                                             \
    HOOK(nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo, 0, 0)                                          \
    HOOK(nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses, 0, 0)                   \
    HOOK(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses, 0, 0)                \
    HOOK(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses, 0, 0)                \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses, 0, 0)                 \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses, 0, 0)              \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses, 0, 0)              \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses, 0, 0)             \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses, 0, 0)          \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses, 0, 0)          \
    HOOK(nvmlDeviceGetRunningProcessDetailList, nvmlDeviceGetRunningProcessDetailList, 0, 0)                 \
    HOOK(nvmlDeviceGetProcessUtilization, nvmlDeviceGetProcessUtilization, 0, 0)                             \
    HOOK(nvmlDeviceGetProcessesUtilizationInfo, nvmlDeviceGetProcessesUtilizationInfo, 0, 0)                 \
    HOOK(nvmlDeviceGetEncoderSessions, nvmlDeviceGetEncoderSessions, 0, 0)                                   \
    HOOK(nvmlDeviceGetFBCSessions, nvmlDeviceGetFBCSessions, 0, 0)                                           \
    HOOK(nvmlDeviceGetAccountingPids, nvmlDeviceGetAccountingPids, 0, 0)                                     \
    HOOK(nvmlDeviceGetAccountingStats, nvmlDeviceGetAccountingStats, 0, 0)

enum hook_id {
#define HOOK(name, base, since, ptsz) H_##name,
    CUDA_HOOKS(HOOK) HOOK_NVML_FIRST,
    HOOK_NVML_BEFORE = HOOK_NVML_FIRST - 1,
    NVML_HOOKS(HOOK) HOOK_COUNT
#undef HOOK
};

/* Real functions that are called but not replaced: NEED(name, parameters). */
#define CUDA_NEEDS(NEED)                                                                                     \
    NEED(cuCtxGetCurrent, (CUcontext *))                                                                     \
    NEED(cuCtxGetDevice, (CUdevice *))                                                                       \
    NEED(cuCtxPushCurrent_v2, (CUcontext))                                                                   \
    NEED(cuCtxPopCurrent_v2, (CUcontext *))                                                                  \
    NEED(cuStreamGetDevice, (CUstream, CUdevice *))                                                          \
    NEED(cuStreamGetCtx, (CUstream, CUcontext *))                                                            \
    NEED(cuStreamIsCapturing, (CUstream, int *))                                                             \
    NEED(cuStreamIsCapturing_ptsz, (CUstream, int *))                                                        \
    NEED(cuDeviceGetCount, (int *))                                                                          \
    NEED(cuDeviceGet, (CUdevice *, int))                                                                     \
    NEED(cuDeviceGetUuid, (CUuuid *, CUdevice))                                                              \
    NEED(cuDeviceGetUuid_v2, (CUuuid *, CUdevice))                                                           \
    NEED(cuDevicePrimaryCtxGetState, (CUdevice, unsigned *, int *))                                          \
    NEED(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice))                                              \
    NEED(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice))                                                     \
    NEED(cuMemGetAllocationGranularity, (size_t *, const CUmemAllocationProp *, int))                        \
    NEED(cuMemGetAllocationPropertiesFromHandle, (CUmemAllocationProp *, CUmemGenericAllocationHandle))      \
    NEED(cuPointerGetAttribute, (void *, int, CUdeviceptr))                                                  \
    NEED(cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))              \
    NEED(cuMemAddressFree, (CUdeviceptr, size_t))                                                            \
    NEED(cuMemPoolGetAttribute, (CUmemoryPool, int, void *))                                                 \
    NEED(cuDeviceGetGraphMemAttribute, (CUdevice, int, void *))                                              \
    NEED(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))                                                \
    NEED(cuGraphNodeGetType, (CUgraphNode, int *))                                                           \
    NEED(cuGraphMemAllocNodeGetParams, (CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS *))                          \
    NEED(cuGraphMemFreeNodeGetParams, (CUgraphNode, CUdeviceptr *))                                          \
    NEED(cuGraphGetEdges, (CUgraph, CUgraphNode *, CUgraphNode *, size_t *))                                 \
    NEED(cuGraphGetEdges_v2, (CUgraph, CUgraphNode *, CUgraphNode *, void *, size_t *))                      \
    NEED(cuGraphChildGraphNodeGetGraph, (CUgraphNode, CUgraph *))

#define NVML_NEEDS(NEED)                                                                                     \
    NEED(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned))                                                \
    NEED(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned *))                                         \
    NEED(nvmlDeviceIsMigDeviceHandle, (nvmlDevice_t, unsigned *))                                            \
    NEED(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (nvmlDevice_t, nvmlDevice_t *))

struct needs {
#define NEED(name, parameters) CUresult(*name) parameters;
    CUDA_NEEDS(NEED)
#undef NEED
#define NEED(name, parameters) nvmlReturn_t(*name) parameters;
    NVML_NEEDS(NEED)
#undef NEED
};

extern struct needs cot_driver;
extern void *cot_real[HOOK_COUNT];

/* Find the real functions, loading the library where it is not loaded yet. */
void cot_bind_cuda(void);
void cot_bind_nvml(void);
extern int cot_cuda_bound, cot_nvml_bound;

/* Hooks whose real function other hooks call too. */
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice);
EXPORT CUresult cuMemFree_v2(CUdeviceptr);
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                            unsigned long long);
EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
EXPORT CUresult cuMemPoolDestroy(CUmemoryPool);
EXPORT CUresult cuDeviceGraphMemTrim(CUdevice);
EXPORT CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
EXPORT CUresult cuGraphExecDestroy(CUgraphExec);
EXPORT CUresult cuStreamSynchronize(CUstream);

/* The real function behind a hook, found at the first call. cuInit is no hook: it changes nothing here, and a
 * framework's own stub of it may load the driver from where only the framework knows. */
#define REAL(name) ((__typeof__(&name))cot_real[H_##name])
#define ENTER(name)                                                                                          \
    do {                                                                                                     \
        if (__builtin_expect(!__atomic_load_n(&cot_cuda_bound, __ATOMIC_ACQUIRE), 0))                        \
            cot_bind_cuda();                                                                                 \
        if (__builtin_expect(cot_real[H_##name] == NULL, 0))                                                 \
            return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;                                                \
    } while (0)

/* Whether a call of an NVML hook comes from the program: NVML calls its own functions as any program does,
 * and must get what they answer. */
bool cot_nvml_called_by_program(const void *caller);
#define NVML_ENTER(name, arguments)                                                                          \
    do {                                                                                                     \
        if (!__atomic_load_n(&cot_nvml_bound, __ATOMIC_ACQUIRE))                                             \
            cot_bind_nvml();                                                                                 \
        if (cot_real[H_##name] == NULL)                                                                      \
            return NVML_ERROR_FUNCTION_NOT_FOUND;                                                            \
        if (!slot_present() || !cot_nvml_called_by_program(__builtin_return_address(0)))                     \
            return REAL(name) arguments;                                                                     \
    } while (0)

#endif
