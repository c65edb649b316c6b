/* Implements stream-ordered allocation. A pool takes memory from the GPU in steps of 32 MiB and keeps it
 * after frees; what it holds above its release threshold is freed when the program synchronises. What counts
 * on the GPU is what pools hold, not what they hand out. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum {
    POOL_REUSE_FIRST = 1,
    POOL_REUSE_LAST = 3,
    POOL_THRESHOLD = 4,
    POOL_RESERVED = 5,
    POOL_RESERVED_HIGH = 6,
    POOL_USED = 7,
    POOL_USED_HIGH = 8,
    POOL_ALLOCATION_TYPE = 9,
    POOL_LOCATION_ID = 11,
    POOL_LOCATION_TYPE = 12,
    POOL_MAX_SIZE = 13
};
enum { MANAGED = 2 };

static void pool_link(CUmemoryPool pool, struct device *device) {
    pool->device = device;
    pool->next = device->pools;
    device->pools = pool;
}

static CUmemLocation device_location(int device) {
    CUmemLocation location = {.type = 1};
    location.id = device;
    return location;
}

/* Without a device it is in the host's memory. */
static CUmemoryPool pool_make(struct device *device, const CUmemPoolProps *props) {
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->props.allocType = 1;
    pool->props.location = device_location(device ? device->index : 0);
    if (props)
        pool->props = *props;
    for (int i = 0; i < 3; i++)
        pool->reuse[i] = 1;
    if (device)
        pool_link(pool, device);
    return pool;
}

static CUmemoryPool default_pool(struct device *device) {
    if (!device->default_pool)
        device->default_pool = pool_make(device, NULL);
    if (!device->pool)
        device->pool = device->default_pool;
    return device->default_pool;
}

/* Shrink what the pool holds to `keep`, or to what is in use. */
static void pool_shrink(CUmemoryPool pool, uint64_t keep) {
    uint64_t needed = round_up(pool->used, POOL_STEP);
    uint64_t target = keep > needed ? keep : needed;
    if (target >= pool->reserved)
        return;
    if (pool->device)
        device_uncharge(pool->device, pool->reserved - target);
    pool->reserved = target;
}

void pool_release_unused(struct device *device, bool all) {
    for (CUmemoryPool pool = device->pools; pool; pool = pool->next)
        if (pool->reserved)
            pool_shrink(pool, all ? 0 : pool->threshold / POOL_STEP * POOL_STEP);
    struct graph_memory *graphs = &device->graphs;
    uint64_t needed = round_up(graphs->used, STANDIN_GRANULE);
    if (all && needed < graphs->reserved) {
        device_uncharge(device, graphs->reserved - needed);
        graphs->reserved = needed;
    }
}

/* With its last context a process gives up all of a device: blocks of pools and graphs end here. */
void pool_forget(struct device *device) {
    struct driver *driver = driver_get();
    struct region *regions = driver->regions.items;
    for (size_t i = 0; i < driver->regions.count; i++)
        for (size_t j = 0; j < regions[i].length / regions[i].slot; j++) {
            struct block *block = &regions[i].blocks[j];
            bool ours = block->kind == KIND_POOL || block->kind == KIND_GRAPH;
            if (ours && block->device == device)
                memory_free_block(driver, block);
        }
    pool_release_unused(device, true);
}

CUresult pool_allocate(CUmemoryPool pool, uint64_t size, CUcontext context, CUdeviceptr *address) {
    struct driver *driver = driver_get();
    struct device *device = pool->device;
    uint64_t charged = round_up(size, SMALL_STEP);
    if ((device && size > standin_capacity(device->shared)) || size > UINT64_MAX / 2 ||
        (pool->props.maxSize && pool->used + charged > pool->props.maxSize))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t used = pool->used + charged;
    if (used > pool->reserved) {
        uint64_t more = round_up(used - pool->reserved, POOL_STEP);
        uint64_t held = pool->used;
        pool->used = pool->reserved; /* what is there is needed: do not give it up to make room */
        CUresult result = device ? device_charge(device, more) : CUDA_SUCCESS;
        pool->used = held;
        TRY(result);
        pool->reserved += more;
    }
    struct block *block = block_take(driver, size, KIND_POOL);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pool->used = used;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    block->charged = charged;
    block->device = device;
    block->pool = pool;
    (void)context; /* memory of a pool belongs to the device, not to a context */
    *address = block->address;
    return CUDA_SUCCESS;
}

static void pool_unlink(CUmemoryPool pool) {
    for (CUmemoryPool *link = pool->device ? &pool->device->pools : NULL; link && *link;
         link = &(*link)->next)
        if (*link == pool) {
            *link = pool->next;
            break;
        }
    free(pool);
}

void pool_return(struct block *block) {
    CUmemoryPool pool = block->pool;
    pool->used -= block->charged;
    if (pool->dying && !pool->used) {
        pool_shrink(pool, 0);
        pool_unlink(pool);
    }
}

static CUresult allocate_async(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream handle) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(address && size);
    if (stream->capture)
        return capture_allocation(stream, size, pool, address);
    struct driver *driver = driver_get();
    driver_lock(driver);
    if (!pool) {
        default_pool(context->device);
        pool = context->device->pool;
    }
    if (pool && !pool->device && (int)pool->props.allocType == MANAGED)
        pool_link(pool, context->device); /* it counts where it is first used: the stand-in does not page */
    CUresult result = pool ? pool_allocate(pool, size, context, address) : CUDA_ERROR_OUT_OF_MEMORY;
    driver_unlock(driver);
    return result;
}

API cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    return allocate_async(address, size, NULL, stream);
}

API cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
    NEED(pool);
    return allocate_async(address, size, pool, stream);
}

API cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
    struct driver *driver = driver_get();
    struct device *device = NULL;
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(pool && props && ((int)props->allocType == 1 || (int)props->allocType == MANAGED));
    if ((int)props->location.type || (int)props->allocType != MANAGED)
        TRY(location_device(&props->location, &device));
    driver_lock(driver);
    *pool = pool_make(device, props);
    driver_unlock(driver);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuMemPoolDestroy(CUmemoryPool pool) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(pool && !(pool->device && pool == pool->device->default_pool));
    driver_lock(driver);
    if (pool->device && pool->device->pool == pool)
        pool->device->pool = pool->device->default_pool;
    pool_shrink(pool, 0);
    if (pool->used)
        pool->dying = true;
    else
        pool_unlink(pool);
    driver_unlock(driver);
    return CUDA_SUCCESS;
}

API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(pool);
    struct driver *driver = driver_get();
    driver_lock(driver);
    *pool = default_pool(device);
    driver_unlock(driver);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice index) {
    TRY(cuDeviceGetDefaultMemPool(pool, index));
    *pool = driver_get()->device[index].pool;
    return CUDA_SUCCESS;
}

API cuDeviceSetMemPool(CUdevice index, CUmemoryPool pool) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(pool && pool->device == device);
    struct driver *driver = driver_get();
    driver_lock(driver);
    default_pool(device);
    device->pool = pool;
    driver_unlock(driver);
    return CUDA_SUCCESS;
}

API cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    NEED(location && (int)location->type == 1 && (int)type == 1);
    return cuDeviceGetDefaultMemPool(pool, location->id);
}

API cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    NEED(location && (int)location->type == 1 && (int)type == 1);
    return cuDeviceGetMemPool(pool, location->id);
}

API cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    NEED(location && (int)location->type == 1 && (int)type == 1);
    return cuDeviceSetMemPool(location->id, pool);
}

API cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(pool);
    driver_lock(driver);
    if (keep < pool->reserved)
        pool_shrink(pool, round_up(keep, POOL_STEP));
    driver_unlock(driver);
    return CUDA_SUCCESS;
}

/* The reuse policies are ints, the rest is 64 bits wide. */
API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    NEED(pool && value);
    int which = (int)attribute;
    if (which >= POOL_REUSE_FIRST && which <= POOL_REUSE_LAST) {
        *(int *)value = (int)pool->reuse[which - POOL_REUSE_FIRST];
        return CUDA_SUCCESS;
    }
    if (which == POOL_ALLOCATION_TYPE || which == POOL_LOCATION_ID || which == POOL_LOCATION_TYPE) {
        *(int *)value = which == POOL_ALLOCATION_TYPE ? (int)pool->props.allocType
                        : which == POOL_LOCATION_ID   ? pool->props.location.id
                                                      : (int)pool->props.location.type;
        return CUDA_SUCCESS;
    }
    const uint64_t *figure = which == POOL_THRESHOLD       ? &pool->threshold
                             : which == POOL_RESERVED      ? &pool->reserved
                             : which == POOL_RESERVED_HIGH ? &pool->reserved_high
                             : which == POOL_MAX_SIZE      ? (const uint64_t *)&pool->props.maxSize
                             : which == POOL_USED          ? &pool->used
                             : which == POOL_USED_HIGH     ? &pool->used_high
                                                           : NULL;
    NEED(figure);
    *(cuuint64_t *)value = *figure;
    return CUDA_SUCCESS;
}

API cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    NEED(pool && value);
    int which = (int)attribute;
    if (which >= POOL_REUSE_FIRST && which <= POOL_REUSE_LAST) {
        pool->reuse[which - POOL_REUSE_FIRST] = (uint64_t)*(int *)value;
        return CUDA_SUCCESS;
    }
    cuuint64_t given = *(cuuint64_t *)value;
    if (which == POOL_THRESHOLD) {
        pool->threshold = given;
        return CUDA_SUCCESS;
    }
    NEED(given == 0); /* the high marks can only be reset */
    if (which == POOL_RESERVED_HIGH)
        pool->reserved_high = pool->reserved;
    else if (which == POOL_USED_HIGH)
        pool->used_high = pool->used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

API cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    NEED(pool && (access || !count));
    for (size_t i = 0; i < count; i++)
        NEED(!pool->device || (int)access[i].location.type != 1 ||
             access[i].location.id == pool->device->index);
    return CUDA_SUCCESS;
}

API cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
    NEED(flags && pool && location);
    *flags = !pool->device || location->id == pool->device->index ? 3 : 0;
    return CUDA_SUCCESS;
}
