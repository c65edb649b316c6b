/* Lists every function that the shim replaces, in one table, and every real one that it calls. */
#ifndef COTENANT_HOOKS_H
#define COTENANT_HOOKS_H

#include "cuda_abi.h"
#include "slot.h"

#define EXPORT __attribute__((visibility("default")))

/* HOOK(exported name, name as cuGetProcAddress takes it) */
#define CUDA_HOOKS(HOOK)                                                                                     \
    HOOK(cuGetProcAddress, cuGetProcAddress)                                                                 \
    HOOK(cuGetProcAddress_v2, cuGetProcAddress)                                                              \
    HOOK(cuCtxCreate, cuCtxCreate)                                                                           \
    HOOK(cuCtxCreate_v2, cuCtxCreate)                                                                        \
    HOOK(cuCtxCreate_v3, cuCtxCreate)                                                                        \
    HOOK(cuCtxCreate_v4, cuCtxCreate)                                                                        \
    HOOK(cuCtxDestroy, cuCtxDestroy)                                                                         \
    HOOK(cuCtxDestroy_v2, cuCtxDestroy)                                                                      \
    HOOK(cuCtxAttach, cuCtxAttach)                                                                           \
    HOOK(cuCtxDetach, cuCtxDetach)                                                                           \
    HOOK(cuGreenCtxCreate, cuGreenCtxCreate)                                                                 \
    HOOK(cuGreenCtxDestroy, cuGreenCtxDestroy)                                                               \
    HOOK(cuCtxFromGreenCtx, cuCtxFromGreenCtx)                                                               \
    HOOK(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                 \
    HOOK(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease)                                               \
    HOOK(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease)                                            \
    HOOK(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset)                                                   \
    HOOK(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset)                                                \
    HOOK(cuMemAlloc, cuMemAlloc)                                                                             \
    HOOK(cuMemAlloc_v2, cuMemAlloc)                                                                          \
    HOOK(cuMemAllocPitch, cuMemAllocPitch)                                                                   \
    HOOK(cuMemAllocPitch_v2, cuMemAllocPitch)                                                                \
    HOOK(cuMemAllocManaged, cuMemAllocManaged)                                                               \
    HOOK(cuMemFree, cuMemFree)                                                                               \
    HOOK(cuMemFree_v2, cuMemFree)                                                                            \
    HOOK(cuMemAllocAsync, cuMemAllocAsync)                                                                   \
    HOOK(cuMemAllocAsync_ptsz, cuMemAllocAsync)                                                              \
    HOOK(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync)                                                   \
    HOOK(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync)                                              \
    HOOK(cuMemFreeAsync, cuMemFreeAsync)                                                                     \
    HOOK(cuMemFreeAsync_ptsz, cuMemFreeAsync)                                                                \
    HOOK(cuMemPoolCreate, cuMemPoolCreate)                                                                   \
    HOOK(cuMemPoolDestroy, cuMemPoolDestroy)                                                                 \
    HOOK(cuMemPoolTrimTo, cuMemPoolTrimTo)                                                                   \
    HOOK(cuStreamSynchronize, cuStreamSynchronize)                                                           \
    HOOK(cuStreamSynchronize_ptsz, cuStreamSynchronize)                                                      \
    HOOK(cuEventSynchronize, cuEventSynchronize)                                                             \
    HOOK(cuCtxSynchronize, cuCtxSynchronize)                                                                 \
    HOOK(cuCtxSynchronize_v2, cuCtxSynchronize)                                                              \
    HOOK(cuMemCreate, cuMemCreate)                                                                           \
    HOOK(cuMemRelease, cuMemRelease)                                                                         \
    HOOK(cuMemMap, cuMemMap)                                                                                 \
    HOOK(cuMemUnmap, cuMemUnmap)                                                                             \
    HOOK(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle)                                           \
    HOOK(cuMemExportToShareableHandle, cuMemExportToShareableHandle)                                         \
    HOOK(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle)                                     \
    HOOK(cuArrayCreate, cuArrayCreate)                                                                       \
    HOOK(cuArrayCreate_v2, cuArrayCreate)                                                                    \
    HOOK(cuArray3DCreate, cuArray3DCreate)                                                                   \
    HOOK(cuArray3DCreate_v2, cuArray3DCreate)                                                                \
    HOOK(cuArrayDestroy, cuArrayDestroy)                                                                     \
    HOOK(cuMipmappedArrayCreate, cuMipmappedArrayCreate)                                                     \
    HOOK(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy)                                                   \
    HOOK(cuGraphInstantiate, cuGraphInstantiate)                                                             \
    HOOK(cuGraphInstantiate_v2, cuGraphInstantiate)                                                          \
    HOOK(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)                                           \
    HOOK(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams)                                         \
    HOOK(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams)                                    \
    HOOK(cuGraphLaunch, cuGraphLaunch)                                                                       \
    HOOK(cuGraphLaunch_ptsz, cuGraphLaunch)                                                                  \
    HOOK(cuGraphUpload, cuGraphUpload)                                                                       \
    HOOK(cuGraphUpload_ptsz, cuGraphUpload)                                                                  \
    HOOK(cuGraphExecDestroy, cuGraphExecDestroy)                                                             \
    HOOK(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim)                                                         \
    HOOK(cuLaunch, cuLaunch)                                                                                 \
    HOOK(cuLaunchGrid, cuLaunchGrid)                                                                         \
    HOOK(cuLaunchGridAsync, cuLaunchGridAsync)                                                               \
    HOOK(cuLaunchKernel, cuLaunchKernel)                                                                     \
    HOOK(cuLaunchKernel_ptsz, cuLaunchKernel)                                                                \
    HOOK(cuLaunchKernelEx, cuLaunchKernelEx)                                                                 \
    HOOK(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)                                                            \
    HOOK(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel)                                               \
    HOOK(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)                                          \
    HOOK(cuMemGetInfo, cuMemGetInfo)                                                                         \
    HOOK(cuMemGetInfo_v2, cuMemGetInfo)                                                                      \
    HOOK(cuDeviceTotalMem, cuDeviceTotalMem)                                                                 \
    HOOK(cuDeviceTotalMem_v2, cuDeviceTotalMem)

#define NVML_HOOKS(HOOK)                                                                                     \
    HOOK(nvmlDeviceGetCount, nvmlDeviceGetCount)                                                             \
    HOOK(nvmlDeviceGetCount_v2, nvmlDeviceGetCount)                                                          \
    HOOK(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex)                                             \
    HOOK(nvmlDeviceGetHandleByIndex_v2, nvmlDeviceGetHandleByIndex)                                          \
    HOOK(nvmlDeviceGetHandleByUUID, nvmlDeviceGetHandleByUUID)                                               \
    HOOK(nvmlDeviceGetHandleByUUIDV, nvmlDeviceGetHandleByUUIDV)                                             \
    HOOK(nvmlDeviceGetHandleBySerial, nvmlDeviceGetHandleBySerial)                                           \
    HOOK(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId)                                       \
    HOOK(nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetHandleByPciBusId)                                    \
    HOOK(nvmlDeviceGetIndex, nvmlDeviceGetIndex)                                                             \
    HOOK(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDeviceGetMigDeviceHandleByIndex)                           \
    HOOK(nvmlDeviceGetTopologyNearestGpus, nvmlDeviceGetTopologyNearestGpus)                                 \
    HOOK(nvmlSystemGetTopologyGpuSet, nvmlSystemGetTopologyGpuSet)                                           \
    HOOK(nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo)                                                   \
    HOOK(nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo)                                                \
    HOOK(nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses)                         \
    HOOK(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses)                      \
    HOOK(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDeviceGetComputeRunningProcesses)                      \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses, nvmlDeviceGetGraphicsRunningProcesses)                       \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses)                    \
    HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDeviceGetGraphicsRunningProcesses)                    \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDeviceGetMPSComputeRunningProcesses)                   \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses)                \
    HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDeviceGetMPSComputeRunningProcesses)                \
    HOOK(nvmlDeviceGetRunningProcessDetailList, nvmlDeviceGetRunningProcessDetailList)                       \
    HOOK(nvmlDeviceGetProcessUtilization, nvmlDeviceGetProcessUtilization)                                   \
    HOOK(nvmlDeviceGetProcessesUtilizationInfo, nvmlDeviceGetProcessesUtilizationInfo)                       \
    HOOK(nvmlDeviceGetEncoderSessions, nvmlDeviceGetEncoderSessions)                                         \
    HOOK(nvmlDeviceGetFBCSessions, nvmlDeviceGetFBCSessions)                                                 \
    HOOK(nvmlDeviceGetAccountingPids, nvmlDeviceGetAccountingPids)                                           \
    HOOK(nvmlDeviceGetAccountingStats, nvmlDeviceGetAccountingStats)

enum hook_id {
#define HOOK(name, base) H_##name,
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
