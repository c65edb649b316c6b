/* Implements cuMemset in its widths; advice about managed memory is accepted and has no effect. */
#include "driver.h"

#include <string.h>

/* Rows of elements of 1, 2 or 4 bytes. */
static CUresult fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                     size_t height) {
    CUcontext context;
    TRY(current_context(&context));
    if (!width || !height)
        return CUDA_SUCCESS;
    NEED(to % element == 0 && (height == 1 || pitch >= width * element));
    size_t span = (height - 1) * pitch + width * element;
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, to);
    struct mapping *mapping = block ? NULL : mapping_find(driver, to);
    bool inside = block ? span <= block->address + block->size - to
                        : mapping && mapping->access && span <= mapping->base + mapping->size - to;
    if (block)
        block->touched = true;
    driver_unlock(driver);
    NEED(inside);
    for (size_t y = 0; y < height; y++) {
        unsigned char *row = (unsigned char *)(uintptr_t)(to + y * pitch);
        if (element == 1)
            memset(row, (int)value, width);
        else if (element == 2)
            for (size_t i = 0; i < width; i++)
                ((uint16_t *)row)[i] = (uint16_t)value;
        else
            for (size_t i = 0; i < width; i++)
                ((uint32_t *)row)[i] = value;
    }
    return CUDA_SUCCESS;
}

#define FILL(bits, type)                                                                                     \
    API cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count) {                                     \
        return fill(to, 0, value, bits / 8, count, 1);                                                       \
    }                                                                                                        \
    API cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count, CUstream stream) {                  \
        (void)stream;                                                                                        \
        return fill(to, 0, value, bits / 8, count, 1);                                                       \
    }                                                                                                        \
    API cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {      \
        return fill(to, pitch, value, bits / 8, width, height);                                              \
    }                                                                                                        \
    API cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,      \
                                 CUstream stream) {                                                          \
        (void)stream;                                                                                        \
        return fill(to, pitch, value, bits / 8, width, height);                                              \
    }

FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned int)

static CUresult managed(CUdeviceptr address) {
    CUcontext context;
    TRY(current_context(&context));
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, address);
    bool found = block && block->kind == KIND_MANAGED;
    driver_unlock(driver);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemPrefetchAsync(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
    (void)size, (void)device, (void)stream;
    return managed(address);
}

API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location, unsigned int flags,
                          CUstream stream) {
    (void)size, (void)location, (void)flags, (void)stream;
    return managed(address);
}

API cuMemAdvise(CUdeviceptr address, size_t size, CUmem_advise advice, CUdevice device) {
    (void)size, (void)advice, (void)device;
    return managed(address);
}

API cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice, CUmemLocation location) {
    (void)size, (void)advice, (void)location;
    return managed(address);
}
