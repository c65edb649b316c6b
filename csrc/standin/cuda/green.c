/* Implements green contexts: they share a device's primary context and its memory. Multiprocessors are not
 * divided here, so any description of resources will do. */
#include "driver.h"

#include <stdlib.h>

struct CUgreenCtx_st {
    struct CUctx_st context; /* what cuCtxFromGreenCtx gives */
    bool dead;
};

API cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc resources, CUdevice index, unsigned int flags) {
    (void)resources, (void)flags;
    struct device *device;
    CUcontext primary;
    TRY(device_get(index, &device));
    NEED(out);
    CUgreenCtx green = calloc(1, sizeof *green);
    CUresult result = green ? cuDevicePrimaryCtxRetain(&primary, index) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(green);
        return result;
    }
    green->context = *primary;
    green->context.legacy = (struct CUstream_st){.context = &green->context};
    green->context.id = __atomic_add_fetch(&driver_get()->next_id, 1, __ATOMIC_RELAXED);
    green->context.green_of = primary;
    struct driver *driver = driver_get();
    driver_lock(driver);
    green->context.older = driver->newest;
    __atomic_store_n(&driver->newest, &green->context, __ATOMIC_RELEASE);
    driver_unlock(driver);
    *out = green;
    return CUDA_SUCCESS;
}

/* The struct stays, as that of other contexts. */
API cuGreenCtxDestroy(CUgreenCtx green) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!green || green->dead)
        return CUDA_ERROR_INVALID_CONTEXT;
    green->dead = green->context.dead = true;
    if (green->context.green_of->dead) /* the primary context was reset */
        return CUDA_SUCCESS;
    return cuDevicePrimaryCtxRelease_v2(green->context.device->index);
}

API cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green) {
    if (!green || green->dead)
        return CUDA_ERROR_INVALID_CONTEXT;
    NEED(context);
    *context = &green->context;
    return CUDA_SUCCESS;
}

API cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id) {
    NEED(green && id);
    *id = green->context.id;
    return CUDA_SUCCESS;
}

API cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags, int priority) {
    NEED(green && !green->dead);
    TRY(cuCtxPushCurrent_v2(&green->context));
    CUresult result = cuStreamCreateWithPriority(stream, flags, priority);
    cuCtxPopCurrent_v2(NULL);
    return result;
}
