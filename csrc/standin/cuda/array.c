/* Implements CUDA arrays: rows of elements in a layout that only the driver knows; here it is linear. */
#include "driver.h"

#include <stdlib.h>

#define LAYERED 1u
#define CUBEMAP 4u
#define LEVELS 32

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

/* How texels lie in memory: a block of `side` by `side` of them takes `bits`. */
struct format {
    unsigned side, bits;
    bool plain; /* bits are those of one channel */
};

static struct format format_of(int format) {
    static const struct {
        unsigned char first, last, side, bits;
        bool plain;
    } formats[] = {
        {0x01, 0x01, 1, 8, true},    {0x08, 0x08, 1, 8, true},   {0x02, 0x02, 1, 16, true},
        {0x09, 0x09, 1, 16, true},   {0x10, 0x10, 1, 16, true},  {0x03, 0x03, 1, 32, true},
        {0x0a, 0x0a, 1, 32, true},   {0x20, 0x20, 1, 32, true},  {0x50, 0x50, 1, 32, false},
        {0x51, 0x51, 1, 16, false},  {0x52, 0x52, 1, 32, false}, {0x53, 0x53, 1, 12, false},
        {0x54, 0x54, 1, 24, false},  {0x55, 0x55, 1, 16, false}, {0x56, 0x56, 1, 32, false},
        {0x57, 0x57, 1, 24, false},  {0x58, 0x58, 1, 48, false}, {0x59, 0x59, 1, 12, false},
        {0x5a, 0x5a, 1, 24, false},  {0x5b, 0x5b, 1, 16, false}, {0x5c, 0x5c, 1, 32, false},
        {0x5d, 0x5d, 1, 24, false},  {0x5e, 0x5e, 1, 48, false}, {0x91, 0x92, 4, 64, false},
        {0x93, 0x96, 4, 128, false}, {0x97, 0x98, 4, 64, false}, {0x99, 0x9e, 4, 128, false},
        {0x9f, 0x9f, 1, 24, false},  {0xa1, 0xa1, 1, 24, false}, {0xa2, 0xa2, 1, 16, false},
        {0xa3, 0xa4, 1, 32, false},  {0xa5, 0xa5, 1, 16, false}, {0xa6, 0xa9, 1, 32, false},
        {0xb0, 0xb0, 1, 12, false},  {0xb1, 0xb1, 1, 64, false}, {0xb2, 0xb2, 1, 24, false},
        {0xb3, 0xb3, 1, 48, false},  {0xb4, 0xb4, 1, 24, false}, {0xb5, 0xb5, 1, 48, false},
        {0xc0, 0xc0, 1, 8, false},   {0xc1, 0xc1, 1, 16, false}, {0xc2, 0xc2, 1, 32, false},
        {0xc3, 0xc3, 1, 16, false},  {0xc4, 0xc4, 1, 32, false}, {0xc5, 0xc5, 1, 64, false},
        {0xc6, 0xc6, 1, 8, false},   {0xc7, 0xc7, 1, 16, false}, {0xc8, 0xc8, 1, 32, false},
        {0xc9, 0xc9, 1, 16, false},  {0xca, 0xca, 1, 32, false}, {0xcb, 0xcb, 1, 64, false},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (format >= formats[i].first && format <= formats[i].last)
            return (struct format){formats[i].side, formats[i].bits, formats[i].plain};
    return (struct format){0, 0, false};
}

/* Bytes of an array of this shape; 0 if there is none such. */
static uint64_t array_shape(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    struct format format = format_of((int)shape->Format);
    unsigned channels = shape->NumChannels;
    bool valid = channels == 1 || channels == 2 || channels == 4 || (channels == 3 && !format.plain);
    if (!format.side || !valid || !shape->Width || shape->Width > 1u << 27 || shape->Height > 1u << 20 ||
        shape->Depth > 1u << 16)
        return 0;
    size_t side = format.side, columns = (shape->Width + side - 1) / side;
    size_t rows = shape->Height ? (shape->Height + side - 1) / side : 1;
    size_t bits = format.plain ? format.bits * channels : format.bits;
    array->shape = *shape;
    array->pitch = columns * bits / 8;
    array->height = rows;
    uint64_t flat = (columns * rows * bits + 7) / 8, depth = shape->Depth ? shape->Depth : 1;
    return flat > UINT64_MAX / 2 / depth ? UINT64_MAX / 2 : flat * depth;
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

/* At least one, and not more than halving the largest extent gives. */
static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned wanted) {
    size_t largest = shape->Width > shape->Height ? shape->Width : shape->Height;
    if (!(shape->Flags & (LAYERED | CUBEMAP)) && shape->Depth > largest)
        largest = shape->Depth;
    unsigned most = 1;
    while (most < LEVELS && largest >> most)
        most++;
    return !wanted ? 1 : wanted < most ? wanted : most;
}

API cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(out && shape);
    CUmipmappedArray mipmap = calloc(1, sizeof *mipmap);
    if (!mipmap)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUDA_ARRAY3D_DESCRIPTOR at = *shape;
    uint64_t offset[LEVELS], size = 0;
    mipmap->levels = levels_of(shape, levels);
    bool valid = true;
    for (unsigned i = 0; i < mipmap->levels && valid; i++) {
        uint64_t bytes = array_shape(&mipmap->level[i], &at);
        valid = bytes != 0;
        offset[i] = size;
        size = bytes > UINT64_MAX / 2 - size ? UINT64_MAX / 2 : size + round_up(bytes, SMALL_STEP);
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
