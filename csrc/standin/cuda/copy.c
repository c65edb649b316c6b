/* Implements copies. Device addresses are host addresses, so a copy is one on the host; it checks that the
 * device side is allocated, and records that it now has pages to drop. */
#include "driver.h"

#include <string.h>

/* A range on the device, all of it inside one allocation. A free that comes between is the program's race. */
static CUresult device_range(CUdeviceptr address, size_t size, bool write) {
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, address);
    struct mapping *mapping = block ? NULL : mapping_find(driver, address);
    bool inside = block ? size <= block->address + block->size - address
                        : mapping && mapping->access && size <= mapping->base + mapping->size - address;
    if (block && write)
        block->touched = true;
    driver_unlock(driver);
    return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* cuMemcpy takes any address: what is not on the device is taken for the host's. */
static void note_write(CUdeviceptr address) {
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, address);
    if (block)
        block->touched = true;
    driver_unlock(driver);
}

static CUresult copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t size) {
    CUcontext context;
    TRY(current_context(&context));
    if (!size)
        return CUDA_SUCCESS;
    NEED(to && from);
    if (to_device)
        TRY(device_range(to, size, true));
    if (from_device)
        TRY(device_range(from, size, false));
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    return CUDA_SUCCESS;
}

#define HOST(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

API cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    return copy(to, true, HOST(from), false, size);
}

API cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    CUcontext context;
    TRY(current_context(&context));
    synchronise(context, context->legacy.until);
    return copy(HOST(to), false, from, true, size);
}

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
    return copy(to, true, from, true, size);
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    (void)stream;
    return copy(to, true, HOST(from), false, size);
}

API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    (void)stream;
    return copy(HOST(to), false, from, true, size);
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    (void)stream;
    return copy(to, true, from, true, size);
}

API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    TRY(copy(to, false, from, false, size));
    note_write(to);
    return CUDA_SUCCESS;
}

API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    (void)stream;
    return cuMemcpy(to, from, size);
}

API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                 size_t size) {
    NEED(to_context && from_context);
    return copy(to, true, from, true, size);
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                      size_t size, CUstream stream) {
    (void)stream;
    return cuMemcpyPeer(to, to_context, from, from_context, size);
}

static CUresult array_range(CUarray array, size_t offset, size_t size, CUdeviceptr *address) {
    size_t pitch, height;
    NEED(array);
    unsigned char *data = array_data(array, &pitch, &height);
    *address = HOST(data + offset);
    return device_range(*address, size ? size : 1, true);
}

API cuMemcpyHtoA_v2(CUarray to, size_t offset, const void *from, size_t size) {
    CUdeviceptr address;
    TRY(array_range(to, offset, size, &address));
    return copy(address, true, HOST(from), false, size);
}

API cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t size) {
    CUdeviceptr address;
    TRY(array_range(from, offset, size, &address));
    return copy(HOST(to), false, address, true, size);
}

API cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t size) {
    CUdeviceptr address;
    TRY(array_range(to, offset, size, &address));
    return copy(address, true, from, true, size);
}

API cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t size) {
    CUdeviceptr address;
    TRY(array_range(from, offset, size, &address));
    return copy(to, true, address, true, size);
}

API cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size) {
    CUdeviceptr target, source;
    TRY(array_range(to, to_offset, size, &target));
    TRY(array_range(from, from_offset, size, &source));
    return copy(target, true, source, true, size);
}

API cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t size, CUstream stream) {
    (void)stream;
    return cuMemcpyHtoA_v2(to, offset, from, size);
}

API cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t size, CUstream stream) {
    (void)stream;
    return cuMemcpyAtoH_v2(to, from, offset, size);
}

/* One side of a copy of rows: where its first byte is and how far the next row and the next slice are. */
struct side {
    unsigned char *start;
    size_t pitch, slice;
    bool device;
};

enum { TYPE_HOST = 1, TYPE_DEVICE = 2, TYPE_ARRAY = 3, TYPE_UNIFIED = 4 };

static CUresult side_of(struct side *side, int type, const void *host, CUdeviceptr device, CUarray array,
                        size_t pitch, size_t height, size_t x, size_t y, size_t z, size_t width) {
    if (type == TYPE_ARRAY) {
        NEED(array);
        side->start = array_data(array, &pitch, &height);
        side->device = true;
    } else if (type == TYPE_HOST || type == TYPE_DEVICE || type == TYPE_UNIFIED) {
        side->start =
            type == TYPE_HOST ? (unsigned char *)(uintptr_t)host : (unsigned char *)(uintptr_t)device;
        side->device = type == TYPE_DEVICE;
        if (!pitch)
            pitch = width;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    NEED(side->start);
    side->pitch = pitch;
    side->slice = pitch * height;
    side->start += x + y * pitch + z * side->slice;
    return CUDA_SUCCESS;
}

static CUresult copy_rows(const CUDA_MEMCPY3D *c) {
    CUcontext context;
    TRY(current_context(&context));
    struct side to, from;
    if (!c->WidthInBytes || !c->Height || !c->Depth)
        return CUDA_SUCCESS;
    TRY(side_of(&from, (int)c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcPitch,
                c->srcHeight ? c->srcHeight : c->Height, c->srcXInBytes, c->srcY, c->srcZ, c->WidthInBytes));
    TRY(side_of(&to, (int)c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstPitch,
                c->dstHeight ? c->dstHeight : c->Height, c->dstXInBytes, c->dstY, c->dstZ, c->WidthInBytes));
    NEED(c->WidthInBytes <= from.pitch && c->WidthInBytes <= to.pitch);
    size_t last = c->Height - 1;
    if (from.device)
        TRY(device_range(HOST(from.start), (c->Depth - 1) * from.slice + last * from.pitch + c->WidthInBytes,
                         false));
    if (to.device)
        TRY(device_range(HOST(to.start), (c->Depth - 1) * to.slice + last * to.pitch + c->WidthInBytes,
                         true));
    else
        note_write(HOST(to.start));
    for (size_t z = 0; z < c->Depth; z++)
        for (size_t y = 0; y < c->Height; y++)
            memmove(to.start + z * to.slice + y * to.pitch, from.start + z * from.slice + y * from.pitch,
                    c->WidthInBytes);
    return CUDA_SUCCESS;
}

API cuMemcpy3D_v2(const CUDA_MEMCPY3D *c) {
    NEED(c);
    return copy_rows(c);
}

API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *c, CUstream stream) {
    (void)stream;
    return cuMemcpy3D_v2(c);
}

/* The same struct, but for contexts in the place of reserved words. */
API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *c) {
    _Static_assert(sizeof(CUDA_MEMCPY3D_PEER) == sizeof(CUDA_MEMCPY3D), "one layout");
    NEED(c);
    CUDA_MEMCPY3D plain;
    memcpy(&plain, c, sizeof plain);
    return copy_rows(&plain);
}

API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream stream) {
    (void)stream;
    return cuMemcpy3DPeer(c);
}

API cuMemcpy2D_v2(const CUDA_MEMCPY2D *c) {
    NEED(c);
    CUDA_MEMCPY3D wide = {
        .srcXInBytes = c->srcXInBytes,
        .srcY = c->srcY,
        .srcMemoryType = c->srcMemoryType,
        .srcHost = c->srcHost,
        .srcDevice = c->srcDevice,
        .srcArray = c->srcArray,
        .srcPitch = c->srcPitch,
        .dstXInBytes = c->dstXInBytes,
        .dstY = c->dstY,
        .dstMemoryType = c->dstMemoryType,
        .dstHost = c->dstHost,
        .dstDevice = c->dstDevice,
        .dstArray = c->dstArray,
        .dstPitch = c->dstPitch,
        .WidthInBytes = c->WidthInBytes,
        .Height = c->Height,
        .Depth = 1,
    };
    return copy_rows(&wide);
}

API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c) {
    return cuMemcpy2D_v2(c);
}

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
    (void)stream;
    return cuMemcpy2D_v2(c);
}
