/* Exports the functions of programs compiled for a default stream per thread. Streams differ only in their
 * order, and here nothing runs at the same time: each is the same call under another name. */
#include "cuda_abi.h"

#define PER_THREAD(name, suffix, parameters, arguments)                                                      \
    API name parameters;                                                                                     \
    API name##suffix parameters {                                                                            \
        return name arguments;                                                                               \
    }

PER_THREAD(cuEventRecord, _ptsz, (CUevent event, CUstream handle), (event, handle))
PER_THREAD(cuEventRecordWithFlags, _ptsz, (CUevent event, CUstream handle, unsigned int flags),
           (event, handle, flags))
PER_THREAD(cuGraphInstantiateWithParams, _ptsz,
           (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (out, graph, params))
PER_THREAD(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream handle), (exec, handle))
PER_THREAD(cuGraphUpload, _ptsz, (CUgraphExec exec, CUstream handle), (exec, handle))
PER_THREAD(cuLaunchCooperativeKernel, _ptsz,
           (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
            unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params),
           (function, gx, gy, gz, bx, by, bz, shared, stream, params))
PER_THREAD(cuLaunchHostFunc, _ptsz, (CUstream handle, CUhostFn function, void *data),
           (handle, function, data))
PER_THREAD(cuLaunchKernel, _ptsz,
           (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
            unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
            void **extra),
           (function, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
PER_THREAD(cuLaunchKernelEx, _ptsz,
           (const CUlaunchConfig *c, CUfunction function, void **params, void **extra),
           (c, function, params, extra))
PER_THREAD(cuMemAllocAsync, _ptsz, (CUdeviceptr * address, size_t size, CUstream stream),
           (address, size, stream))
PER_THREAD(cuMemAllocFromPoolAsync, _ptsz,
           (CUdeviceptr * address, size_t size, CUmemoryPool pool, CUstream stream),
           (address, size, pool, stream))
PER_THREAD(cuMemFreeAsync, _ptsz, (CUdeviceptr address, CUstream handle), (address, handle))
PER_THREAD(cuMemPrefetchAsync, _ptsz, (CUdeviceptr address, size_t size, CUdevice device, CUstream stream),
           (address, size, device, stream))
PER_THREAD(cuMemPrefetchAsync_v2, _ptsz,
           (CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags, CUstream stream),
           (address, size, location, flags, stream))
PER_THREAD(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
PER_THREAD(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D *c, CUstream stream), (c, stream))
PER_THREAD(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D *c), (c))
PER_THREAD(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D *c), (c))
PER_THREAD(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D *c, CUstream stream), (c, stream))
PER_THREAD(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER *c), (c))
PER_THREAD(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER *c, CUstream stream), (c, stream))
PER_THREAD(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D *c), (c))
PER_THREAD(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
           (to, from, size, stream))
PER_THREAD(cuMemcpyAtoA_v2, _ptds,
           (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size),
           (to, to_offset, from, from_offset, size))
PER_THREAD(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr to, CUarray from, size_t offset, size_t size),
           (to, from, offset, size))
PER_THREAD(cuMemcpyAtoHAsync_v2, _ptsz, (void *to, CUarray from, size_t offset, size_t size, CUstream stream),
           (to, from, offset, size, stream))
PER_THREAD(cuMemcpyAtoH_v2, _ptds, (void *to, CUarray from, size_t offset, size_t size),
           (to, from, offset, size))
PER_THREAD(cuMemcpyDtoA_v2, _ptds, (CUarray to, size_t offset, CUdeviceptr from, size_t size),
           (to, offset, from, size))
PER_THREAD(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream),
           (to, from, size, stream))
PER_THREAD(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t size), (to, from, size))
PER_THREAD(cuMemcpyDtoHAsync_v2, _ptsz, (void *to, CUdeviceptr from, size_t size, CUstream stream),
           (to, from, size, stream))
PER_THREAD(cuMemcpyDtoH_v2, _ptds, (void *to, CUdeviceptr from, size_t size), (to, from, size))
PER_THREAD(cuMemcpyHtoAAsync_v2, _ptsz,
           (CUarray to, size_t offset, const void *from, size_t size, CUstream stream),
           (to, offset, from, size, stream))
PER_THREAD(cuMemcpyHtoA_v2, _ptds, (CUarray to, size_t offset, const void *from, size_t size),
           (to, offset, from, size))
PER_THREAD(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void *from, size_t size, CUstream stream),
           (to, from, size, stream))
PER_THREAD(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void *from, size_t size), (to, from, size))
PER_THREAD(cuMemcpyPeer, _ptds,
           (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size),
           (to, to_context, from, from_context, size))
PER_THREAD(cuMemcpyPeerAsync, _ptsz,
           (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
            CUstream stream),
           (to, to_context, from, from_context, size, stream))
PER_THREAD(cuMemsetD16Async, _ptsz, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),
           (to, value, count, stream))
PER_THREAD(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))
PER_THREAD(cuMemsetD2D16Async, _ptsz,
           (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream),
           (to, pitch, value, width, height, stream))
PER_THREAD(cuMemsetD2D16_v2, _ptds,
           (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
           (to, pitch, value, width, height))
PER_THREAD(cuMemsetD2D32Async, _ptsz,
           (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream),
           (to, pitch, value, width, height, stream))
PER_THREAD(cuMemsetD2D32_v2, _ptds,
           (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height),
           (to, pitch, value, width, height))
PER_THREAD(cuMemsetD2D8Async, _ptsz,
           (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),
           (to, pitch, value, width, height, stream))
PER_THREAD(cuMemsetD2D8_v2, _ptds,
           (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
           (to, pitch, value, width, height))
PER_THREAD(cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned int value, size_t count, CUstream stream),
           (to, value, count, stream))
PER_THREAD(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned int value, size_t count), (to, value, count))
PER_THREAD(cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),
           (to, value, count, stream))
PER_THREAD(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))
PER_THREAD(cuStreamAddCallback, _ptsz,
           (CUstream handle, CUstreamCallback callback, void *data, unsigned int flags),
           (handle, callback, data, flags))
PER_THREAD(cuStreamAttachMemAsync, _ptsz,
           (CUstream handle, CUdeviceptr address, size_t length, unsigned int flags),
           (handle, address, length, flags))
PER_THREAD(cuStreamBeginCapture_v2, _ptsz, (CUstream handle, CUstreamCaptureMode mode), (handle, mode))
PER_THREAD(cuStreamEndCapture, _ptsz, (CUstream handle, CUgraph *graph), (handle, graph))
PER_THREAD(cuStreamGetCaptureInfo_v2, _ptsz,
           (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
            const CUgraphNode **dependencies, size_t *count),
           (handle, status, id, graph, dependencies, count))
PER_THREAD(cuStreamGetCaptureInfo_v3, _ptsz,
           (CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
            const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count),
           (handle, status, id, graph, dependencies, edges, count))
PER_THREAD(cuStreamGetCtx, _ptsz, (CUstream handle, CUcontext *out), (handle, out))
PER_THREAD(cuStreamGetDevice, _ptsz, (CUstream handle, CUdevice *device), (handle, device))
PER_THREAD(cuStreamGetFlags, _ptsz, (CUstream handle, unsigned int *flags), (handle, flags))
PER_THREAD(cuStreamGetId, _ptsz, (CUstream handle, unsigned long long *id), (handle, id))
PER_THREAD(cuStreamGetPriority, _ptsz, (CUstream handle, int *priority), (handle, priority))
PER_THREAD(cuStreamIsCapturing, _ptsz, (CUstream handle, CUstreamCaptureStatus *status), (handle, status))
PER_THREAD(cuStreamQuery, _ptsz, (CUstream handle), (handle))
PER_THREAD(cuStreamSynchronize, _ptsz, (CUstream handle), (handle))
PER_THREAD(cuStreamWaitEvent, _ptsz, (CUstream handle, CUevent event, unsigned int flags),
           (handle, event, flags))
