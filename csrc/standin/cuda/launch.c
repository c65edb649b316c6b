/* Implements kernel launches. Kernels do not run: a launch occupies the GPU for the time in the state. */
#include "driver.h"
#include "module.h"

CUresult launch(CUcontext context, CUstream stream) {
    struct device *device = context->device;
    uint64_t ns = __atomic_load_n(&device->shared->launch_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&device->use->launches, 1, __ATOMIC_RELAXED);
    if (ns) {
        struct driver *driver = driver_get();
        stream->until = standin_occupy(driver->state, device->card, driver->entry, ns);
    }
    return CUDA_SUCCESS;
}

static CUresult launch_function(CUfunction function, CUstream handle, uint64_t blocks, uint64_t threads) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    NEED(blocks && threads && threads <= 1024);
    if (stream->capture)
        return capture_kernel(stream, function);
    return launch(context, stream);
}

API cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
                   void **extra) {
    (void)shared, (void)params, (void)extra;
    return launch_function(function, stream, (uint64_t)gx * gy * gz, (uint64_t)bx * by * bz);
}

API cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params, void **extra) {
    (void)params, (void)extra;
    NEED(c);
    return launch_function(function, c->hStream, (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ,
                           (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ);
}

API cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                              unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                              CUstream stream, void **params) {
    (void)shared, (void)params;
    return launch_function(function, stream, (uint64_t)gx * gy * gz, (uint64_t)bx * by * bz);
}

/* The old way to launch, by parameters set one after the other: pycuda still has it. */
API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    NEED(function && x > 0 && y > 0 && z > 0);
    return CUDA_SUCCESS;
}

API cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
    (void)bytes;
    NEED(function);
    return CUDA_SUCCESS;
}

API cuParamSetSize(CUfunction function, unsigned int bytes) {
    (void)bytes;
    NEED(function);
    return CUDA_SUCCESS;
}

API cuParamSeti(CUfunction function, int offset, unsigned int value) {
    (void)value;
    NEED(function && offset >= 0);
    return CUDA_SUCCESS;
}

API cuParamSetf(CUfunction function, int offset, float value) {
    (void)value;
    NEED(function && offset >= 0);
    return CUDA_SUCCESS;
}

API cuParamSetv(CUfunction function, int offset, void *data, unsigned int bytes) {
    (void)bytes;
    NEED(function && offset >= 0 && data);
    return CUDA_SUCCESS;
}

API cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    NEED(width > 0 && height > 0);
    return launch_function(function, stream, (uint64_t)width * (uint64_t)height, 1);
}

API cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, NULL);
}

API cuLaunch(CUfunction function) {
    return cuLaunchGridAsync(function, 1, 1, NULL);
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                size_t shared) {
    NEED(blocks && function && threads > 0 && threads <= 1024);
    int by_threads = 2048 / threads, by_shared = shared ? (int)(167936 / (shared + 1024)) : 32;
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    *blocks = *blocks > 32 ? 32 : *blocks;
    return CUDA_SUCCESS;
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                         size_t shared, unsigned int flags) {
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

API cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *threads, CUfunction function,
                                              CUoccupancyB2DSize shared_of, size_t shared, int limit,
                                              unsigned int flags) {
    (void)flags;
    CUcontext context;
    TRY(current_context(&context));
    NEED(grid && threads && function);
    *threads = limit > 0 && limit < 1024 ? limit : 1024;
    int blocks;
    TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, *threads,
                                                    shared_of ? shared_of(*threads) : shared));
    *grid = blocks * (int)context->device->shared->multiprocessors;
    return CUDA_SUCCESS;
}

API cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction function,
                                     CUoccupancyB2DSize shared_of, size_t shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, threads, function, shared_of, shared, limit, 0);
}

API cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads) {
    NEED(bytes && function && blocks > 0 && threads > 0);
    *bytes = 167936u / (unsigned)blocks;
    return CUDA_SUCCESS;
}

API cuProfilerStart(void) {
    return CUDA_SUCCESS;
}

API cuProfilerStop(void) {
    return CUDA_SUCCESS;
}
