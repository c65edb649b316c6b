/* Implements contexts: the memory they take, and what is freed with them. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT_STACK = 0, LIMIT_PRINTF = 1, LIMIT_HEAP = 2, LIMITS = 11 };

static CUresult context_make(struct driver *driver, struct device *device, unsigned flags, unsigned api,
                             CUcontext *made) {
    struct standin_card *card = device->shared;
    if (card->lost)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    CUcontext context = calloc(1, sizeof *context);
    if (!context || !standin_charge(driver->state, device->card, driver->entry, 0, card->context_bytes)) {
        free(context);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context->device = device;
    context->flags = flags;
    context->api = api;
    context->id = ++driver->next_id;
    context->legacy.context = context;
    context->limits[LIMIT_STACK] = 1024;
    context->limits[LIMIT_PRINTF] = STANDIN_MIB;
    context->limits[LIMIT_HEAP] = 8 * STANDIN_MIB;
    context->older = driver->newest;
    __atomic_store_n(&driver->newest, context, __ATOMIC_RELEASE);
    device->contexts++;
    *made = context;
    return CUDA_SUCCESS;
}

/* The struct stays: other threads may have it on their stacks, and learn from it that it is gone. */
static void context_end(struct driver *driver, CUcontext context) {
    struct device *device = context->device;
    memory_free_context(driver, context);
    context->dead = true;
    standin_uncharge(driver->state, device->card, driver->entry, 0, device->shared->context_bytes);
    if (--device->contexts == 0)
        pool_forget(device);
}

static CUresult context_create(CUcontext *context, unsigned flags, CUdevice index, unsigned api) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(context);
    struct driver *driver = driver_get();
    driver_lock(driver);
    CUresult result = context_make(driver, device, flags, api, context);
    driver_unlock(driver);
    return result == CUDA_SUCCESS ? cuCtxPushCurrent_v2(*context) : result;
}

API cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    return context_create(context, flags, device, 3020);
}

API cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned int flags,
                   CUdevice device) {
    (void)affinity;
    NEED(count >= 0);
    return context_create(context, flags, device, 3021);
}

API cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
    (void)params;
    return context_create(context, flags, device, 3021);
}

API cuCtxDestroy_v2(CUcontext context) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!context || context->dead || context->primary || context->green_of)
        return CUDA_ERROR_INVALID_CONTEXT;
    CUcontext top;
    if (cuCtxGetCurrent(&top) == CUDA_SUCCESS && top == context)
        cuCtxPopCurrent_v2(NULL);
    driver_lock(driver);
    context_end(driver, context);
    driver_unlock(driver);
    return CUDA_SUCCESS;
}

/* The old way to share a context within a process: it ends with its last user. */
API cuCtxAttach(CUcontext *context, unsigned int flags) {
    NEED(context && flags == 0);
    TRY(current_context(context));
    __atomic_fetch_add(&(*context)->attached, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

API cuCtxDetach(CUcontext context) {
    if (!context || context->dead)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (__atomic_load_n(&context->attached, __ATOMIC_RELAXED) == 0)
        return cuCtxDestroy_v2(context);
    __atomic_fetch_sub(&context->attached, 1, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(context);
    struct driver *driver = driver_get();
    CUresult result = CUDA_SUCCESS;
    driver_lock(driver);
    if (!device->primary) {
        result = context_make(driver, device, device->primary_flags, 3020, &device->primary);
        if (result == CUDA_SUCCESS)
            device->primary->primary = true;
    }
    if (result == CUDA_SUCCESS) {
        device->primary_uses++;
        *context = device->primary;
    }
    driver_unlock(driver);
    return result;
}

static void primary_end(struct driver *driver, struct device *device) {
    if (device->primary)
        context_end(driver, device->primary);
    device->primary = NULL;
    device->primary_uses = 0;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    struct driver *driver = driver_get();
    CUresult result = CUDA_SUCCESS;
    driver_lock(driver);
    if (!device->primary_uses)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--device->primary_uses == 0)
        primary_end(driver, device);
    driver_unlock(driver);
    return result;
}

API cuDevicePrimaryCtxReset_v2(CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    struct driver *driver = driver_get();
    driver_lock(driver);
    primary_end(driver, device);
    driver_unlock(driver);
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxSetFlags_v2(CUdevice index, unsigned int flags) {
    struct device *device;
    TRY(device_get(index, &device));
    device->primary_flags = flags;
    if (device->primary)
        device->primary->flags = flags;
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxGetState(CUdevice index, unsigned int *flags, int *active) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(flags && active);
    *flags = device->primary_flags;
    *active = device->primary != NULL;
    return CUDA_SUCCESS;
}

/* NULL where it is no context. The functions whose _v2 got a context as its only news use it: programs that
 * call every _v2 that they find with the parameters of the old form (numba before numba-cuda) leave there
 * whatever was in the register. */
CUcontext context_if_known(CUcontext context) {
    struct driver *driver = driver_get();
    CUcontext known = driver ? __atomic_load_n(&driver->newest, __ATOMIC_ACQUIRE) : NULL;
    while (known && known != context)
        known = known->older;
    return known;
}

/* The context given, or the current one. */
static CUresult context_or_current(CUcontext *context) {
    if (!*context)
        return current_context(context);
    return (*context)->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

API cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    context = context_if_known(context);
    TRY(context_or_current(&context));
    NEED(device);
    *device = context->device->index;
    return CUDA_SUCCESS;
}

API cuCtxGetDevice(CUdevice *device) {
    return cuCtxGetDevice_v2(device, NULL);
}

API cuCtxGetApiVersion(CUcontext context, unsigned int *version) {
    TRY(context_or_current(&context));
    NEED(version);
    *version = context->api;
    return CUDA_SUCCESS;
}

API cuCtxGetId(CUcontext context, unsigned long long *id) {
    TRY(context_or_current(&context));
    NEED(id);
    *id = context->id;
    return CUDA_SUCCESS;
}

API cuCtxGetFlags(unsigned int *flags) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(flags);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

API cuCtxSetFlags(unsigned int flags) {
    CUcontext context;
    TRY(current_context(&context));
    context->flags = flags;
    return CUDA_SUCCESS;
}

API cuCtxSetLimit(CUlimit limit, size_t value) {
    CUcontext context;
    TRY(current_context(&context));
    if ((unsigned)limit >= LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

API cuCtxGetLimit(size_t *value, CUlimit limit) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(value);
    if ((unsigned)limit >= LIMITS)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

API cuCtxGetCacheConfig(CUfunc_cache *config) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(config);
    *config = context->cache_config;
    return CUDA_SUCCESS;
}

API cuCtxSetCacheConfig(CUfunc_cache config) {
    CUcontext context;
    TRY(current_context(&context));
    context->cache_config = (int)config;
    return CUDA_SUCCESS;
}

API cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(config);
    *config = 1;
    return CUDA_SUCCESS;
}

API cuCtxSetSharedMemConfig(CUsharedconfig config) {
    (void)config;
    CUcontext context;
    return current_context(&context);
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CUcontext context;
    TRY(current_context(&context));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

API cuCtxResetPersistingL2Cache(void) {
    CUcontext context;
    return current_context(&context);
}

/* Cards of the stand-in have no links among each other. */
API cuDeviceCanAccessPeer(int *can, CUdevice one, CUdevice other) {
    struct device *device;
    TRY(device_get(one, &device));
    TRY(device_get(other, &device));
    NEED(can);
    *can = 0;
    return CUDA_SUCCESS;
}

API cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice one, CUdevice other) {
    (void)attribute;
    return cuDeviceCanAccessPeer(value, one, other);
}

API cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    (void)flags;
    CUcontext context;
    TRY(current_context(&context));
    return peer ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_ERROR_INVALID_CONTEXT;
}

API cuCtxDisablePeerAccess(CUcontext peer) {
    (void)peer;
    return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
