/* Allocates and frees device, managed and host memory, and answers cuMemGetInfo. */
#define _GNU_SOURCE
#include "driver.h"

#include <string.h>

#define PITCH 512

/* Managed and device memory count alike: the stand-in does not page. */
CUresult memory_allocate(CUdeviceptr *address, uint64_t size, enum kind kind, unsigned flags) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(address && size);
    struct driver *driver = driver_get();
    struct device *device = context->device;
    uint64_t charged = 0;
    driver_lock(driver);
    CUresult result = kind == KIND_HOST ? CUDA_SUCCESS : device_charge_allocation(device, size, &charged);
    if (result == CUDA_SUCCESS) {
        struct block *block = block_take(driver, size, kind);
        if (block) {
            block->charged = charged;
            block->flags = flags;
            block->context = context->green_of ? context->green_of : context;
            block->device = device;
            block->touched = kind == KIND_HOST || kind == KIND_MANAGED;
            *address = block->address;
        } else {
            if (kind != KIND_HOST)
                device_uncharge_allocation(device, charged);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    driver_unlock(driver);
    return result;
}

void memory_free_block(struct driver *driver, struct block *block) {
    if (block->kind == KIND_GRAPH) {
        graph_memory_return(block);
        return;
    }
    if (block->kind == KIND_POOL)
        pool_return(block);
    else if (block->kind != KIND_HOST)
        device_uncharge_allocation(block->device, block->charged);
    block_give(driver, block);
}

void memory_free_context(struct driver *driver, CUcontext context) {
    struct region *regions = driver->regions.items;
    for (size_t i = 0; i < driver->regions.count; i++)
        for (size_t j = 0; j < regions[i].length / regions[i].slot; j++) {
            struct block *block = &regions[i].blocks[j];
            if (block->kind != KIND_FREE && block->context == context && block->kind != KIND_GRAPH)
                memory_free_block(driver, block);
        }
}

/* Free what starts at this address, if it is of one of these kinds. */
static CUresult free_at(CUdeviceptr address, unsigned kinds) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!address)
        return CUDA_SUCCESS;
    driver_lock(driver);
    struct block *block = block_find(driver, address);
    bool found = block && block->address == address && (kinds >> block->kind & 1);
    found = found && (block->kind != KIND_GRAPH || block->charged);
    if (found)
        memory_free_block(driver, block);
    driver_unlock(driver);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    return memory_allocate(address, size, KIND_DEVICE, 0);
}

API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                       unsigned int element) {
    NEED(pitch && width && height && (element == 4 || element == 8 || element == 16));
    uint64_t row = round_up(width, PITCH);
    if (row > UINT64_MAX / 2 / height)
        return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(memory_allocate(address, row * height, KIND_DEVICE, 0));
    *pitch = row;
    return CUDA_SUCCESS;
}

API cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags) {
    NEED(flags == 1 || flags == 2);
    return memory_allocate(address, size, KIND_MANAGED, flags);
}

API cuMemFree_v2(CUdeviceptr address) {
    CUcontext context;
    TRY(current_context(&context));
    return free_at(address, 1u << KIND_DEVICE | 1u << KIND_MANAGED | 1u << KIND_POOL | 1u << KIND_GRAPH);
}

API cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    if (stream->capture)
        return capture_free(stream, address);
    return free_at(address, 1u << KIND_DEVICE | 1u << KIND_MANAGED | 1u << KIND_POOL | 1u << KIND_GRAPH);
}

API cuMemAllocHost_v2(void **pointer, size_t size) {
    NEED(pointer);
    CUdeviceptr address;
    TRY(memory_allocate(&address, size, KIND_HOST, 0));
    *pointer = (void *)(uintptr_t)address;
    return CUDA_SUCCESS;
}

API cuMemHostAlloc(void **pointer, size_t size, unsigned int flags) {
    NEED(pointer && flags < 8);
    CUdeviceptr address;
    TRY(memory_allocate(&address, size, KIND_HOST, flags));
    *pointer = (void *)(uintptr_t)address;
    return CUDA_SUCCESS;
}

API cuMemFreeHost(void *pointer) {
    return free_at((CUdeviceptr)(uintptr_t)pointer, 1u << KIND_HOST);
}

API cuMemGetInfo_v2(size_t *free, size_t *total) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(free && total);
    struct driver *driver = driver_get();
    struct standin_card *card = context->device->shared;
    standin_reap(driver->state);
    uint64_t used = __atomic_load_n(&card->used, __ATOMIC_RELAXED);
    *total = standin_capacity(card);
    *free = used < *total ? *total - used : 0;
    return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    driver_lock(driver);
    struct block *block = block_find(driver, address);
    struct mapping *mapping = block ? NULL : mapping_find(driver, address);
    if (base && (block || mapping))
        *base = block ? block->address : mapping->base;
    if (size && (block || mapping))
        *size = block ? block->size : mapping->size;
    driver_unlock(driver);
    return block || mapping ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
