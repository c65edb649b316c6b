/* Implements CUDA arrays: rows of elements in a layout that only the driver knows; here it is linear. */
#include "driver.h"

#include <stdlib.h>

#define LAYERED 1u
#define CUBEMAP 4u
#define LEVELS 16

struct CUarray_st {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUdeviceptr data;
    size_t pitch, height;
    bool owned; /* not a level of a mipmapped one */
};

struct CUmipmappedArray_st {
    CUdeviceptr data;
    unsigned levels;
    struct CUarray_st level[LEVELS];
};

static size_t element_size(const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    size_t channels = shape->NumChannels;
    switch ((int)shape->Format) {
    case 0x01: /* 8 bit */
    case 0x08:
        return channels;
    case 0x02: /* 16 bit */
    case 0x09:
    case 0x10:
        return 2 * channels;
    case 0x03: /* 32 bit */
    case 0x0a:
    case 0x20:
        return 4 * channels;
    default:
        return 0;
    }
}

/* Bytes of an array of this shape; 0 if there is none such. */
static uint64_t array_shape(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    size_t element = element_size(shape);
    bool channels = shape->NumChannels == 1 || shape->NumChannels == 2 || shape->NumChannels == 4;
    if (!element || !channels || !shape->Width || shape->Width > 1u << 27 || shape->Height > 1u << 20 ||
        shape->Depth > 1u << 16)
        return 0;
    array->shape = *shape;
    array->pitch = shape->Width * element;
    array->height = shape->Height ? shape->Height : 1;
    return (uint64_t)array->pitch * array->height * (shape->Depth ? shape->Depth : 1);
}

unsigned char *array_data(CUarray array, size_t *pitch, size_t *height) {
    *pitch = array->pitch;
    *height = array->height;
    return (unsigned char *)(uintptr_t)array->data;
}

static void array_free(CUdeviceptr data) {
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, data);
    if (block && block->kind == KIND_ARRAY)
        memory_free_block(driver, block);
    driver_unlock(driver);
}

API cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(out && shape);
    CUarray array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t size = array_shape(array, shape);
    CUresult result = size ? memory_allocate(&array->data, size, KIND_ARRAY, 0) : CUDA_ERROR_INVALID_VALUE;
    array->owned = true;
    if (result == CUDA_SUCCESS)
        *out = array;
    else
        free(array);
    return result;
}

API cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape) {
    NEED(shape);
    CUDA_ARRAY3D_DESCRIPTOR full = {.Width = shape->Width,
                                    .Height = shape->Height,
                                    .Format = shape->Format,
                                    .NumChannels = shape->NumChannels};
    return cuArray3DCreate_v2(out, &full);
}

API cuArrayDestroy(CUarray array) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!array || !array->owned)
        return CUDA_ERROR_INVALID_HANDLE;
    array_free(array->data);
    free(array);
    return CUDA_SUCCESS;
}

API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array) {
    NEED(shape && array);
    *shape = array->shape;
    return CUDA_SUCCESS;
}

API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *shape, CUarray array) {
    NEED(shape && array);
    *shape = (CUDA_ARRAY_DESCRIPTOR){array->shape.Width, array->shape.Height, array->shape.Format,
                                     array->shape.NumChannels};
    return CUDA_SUCCESS;
}

API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray array, CUdevice device) {
    (void)device;
    NEED(needs && array);
    size_t depth = array->shape.Depth ? array->shape.Depth : 1;
    *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array->pitch * array->height * depth, .alignment = 512};
    return CUDA_SUCCESS;
}

static size_t half(size_t extent) {
    return extent > 1 ? extent / 2 : extent;
}

API cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(out && shape && levels);
    CUmipmappedArray mipmap = calloc(1, sizeof *mipmap);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUDA_ARRAY3D_DESCRIPTOR at = *shape;
    uint64_t offset[LEVELS], size = 0;
    mipmap->levels = levels < LEVELS ? levels : LEVELS;
    bool valid = true;
    for (unsigned i = 0; i < mipmap->levels && valid; i++) {
        uint64_t bytes = array_shape(&mipmap->level[i], &at);
        valid = bytes != 0;
        offset[i] = size;
        size += round_up(bytes, SMALL_STEP);
        at.Width = half(at.Width);
        at.Height = half(at.Height);
        if (!(at.Flags & (LAYERED | CUBEMAP)))
            at.Depth = half(at.Depth);
    }
    CUresult result = valid ? memory_allocate(&mipmap->data, size, KIND_ARRAY, 0) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        free(mipmap);
        return result;
    }
    for (unsigned i = 0; i < mipmap->levels; i++)
        mipmap->level[i].data = mipmap->data + offset[i];
    *out = mipmap;
    return CUDA_SUCCESS;
}

API cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap, unsigned int level) {
    NEED(array && mipmap && level < mipmap->levels);
    *array = &mipmap->level[level];
    return CUDA_SUCCESS;
}

API cuMipmappedArrayDestroy(CUmipmappedArray mipmap) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    array_free(mipmap->data);
    free(mipmap);
    return CUDA_SUCCESS;
}
