/* Charges CUDA arrays: their size is computed from their descriptor. */
#include "contexts.h"
#include "hooks.h"
#include "tables.h"

#define LEVEL_STEP 512u /* a level of a mipmap begins at a multiple of this */

/* A texel of a format that has its channels in its name; 0 for the plain ones, whose channels are counted
 * apart. */
static unsigned texel_bits(int format) {
    switch (format) {
    case 0x53: /* 4:2:0 in 8 bits */
    case 0x59:
    case 0xb0: /* NV12 */
        return 12;
    case 0x54: /* 4:2:0 in 10 to 16 bits */
    case 0x5a:
    case 0x9f: /* P010 */
    case 0xa1: /* P016 */
    case 0x57: /* 4:4:4 in 8 bits */
    case 0x5d:
    case 0xb2:
    case 0xb4:
        return 24;
    case 0x51: /* 4:2:2 in 8 bits */
    case 0x55:
    case 0x5b:
    case 0xa2: /* NV16 */
    case 0xa5: /* YUY2 */
    case 0xc1: /* two normalised channels of 8 bits, one of 16 */
    case 0xc3:
    case 0xc7:
    case 0xc9:
        return 16;
    case 0x56: /* 4:2:2 in 10 to 16 bits */
    case 0x5c:
    case 0xa3: /* P210 */
    case 0xa4: /* P216 */
    case 0xa6: /* Y210 */
    case 0xa7: /* Y216 */
    case 0x50: /* 10:10:10:2 */
    case 0x52: /* 4:4:4 in 8 bits, packed with a fourth channel */
    case 0xa8: /* AYUV */
    case 0xa9: /* Y410 */
    case 0xc2: /* four normalised channels of 8 bits, two of 16 */
    case 0xc4:
    case 0xc8:
    case 0xca:
        return 32;
    case 0x58: /* 4:4:4 in 10 to 16 bits */
    case 0x5e:
    case 0xb3:
    case 0xb5:
        return 48;
    case 0xb1: /* Y416 */
    case 0xc5: /* four normalised channels of 16 bits */
    case 0xcb:
        return 64;
    case 0xc0: /* one normalised channel of 8 bits */
    case 0xc6:
        return 8;
    default:
        return 0;
    }
}

static unsigned channel_bits(int format) {
    switch (format) {
    case 0x01: /* unsigned and signed 8, 16, 32 bits; half; float */
    case 0x08:
        return 8;
    case 0x02:
    case 0x09:
    case 0x10:
        return 16;
    case 0x03:
    case 0x0a:
    case 0x20:
        return 32;
    default: /* unknown: never less than it takes */
        return 128;
    }
}

/* Block-compressed formats: bytes of a block of 4 by 4 texels, else 0. */
static unsigned block_bytes(int format) {
    bool half = format == 0x91 || format == 0x92 || format == 0x97 || format == 0x98; /* BC1 and BC4 */
    return format >= 0x91 && format <= 0x9e ? (half ? 8 : 16) : 0;
}

static uint64_t product(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

static uint64_t at_least_one(size_t extent) {
    return extent ? extent : 1;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, uint64_t width, uint64_t height,
                            uint64_t depth) {
    unsigned block = block_bytes(d->Format), texel = texel_bits(d->Format);
    if (block)
        return product(product(round_up(width, 4) / 4, round_up(height, 4) / 4), product(depth, block));
    uint64_t bits = texel ? texel : product(channel_bits(d->Format), at_least_one(d->NumChannels));
    uint64_t texels = product(product(width, height), depth);
    return texels > UINT64_MAX / bits ? UINT64_MAX : round_up(texels * bits, 8) / 8;
}

/* Levels beyond the one of a single texel do not exist, whatever number was asked for. Layers are not halved.
 */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0; /* memory comes later, by cuMemCreate */
    bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    uint64_t width = at_least_one(d->Width), height = at_least_one(d->Height), depth = at_least_one(d->Depth);
    uint64_t total = level_bytes(d, width, height, depth);
    for (unsigned level = 1; level < levels && (width > 1 || height > 1 || (depth > 1 && !layered));
         level++) {
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        depth = layered ? depth : at_least_one(depth / 2);
        total = round_up(total, LEVEL_STEP);
        if (__builtin_add_overflow(total, level_bytes(d, width, height, depth), &total))
            return UINT64_MAX;
    }
    return total;
}

static void remember(const struct record *record) {
    struct record old;
    bool replaced;
    table_put_new(&arrays, record, &old, &replaced);
    slot_kept(record->cost.card);
    if (replaced)
        cost_uncharge(&old.cost);
}

#define CREATE(handle, bytes, call)                                                                          \
    do {                                                                                                     \
        struct here here = here_now();                                                                       \
        if (here.place == PLACE_REFUSED)                                                                     \
            return here.refusal;                                                                             \
        if (here.place == PLACE_THROUGH)                                                                     \
            return call;                                                                                     \
        struct record record = {.context = here.context};                                                    \
        CUresult result = cost_charge(here.card, bytes, &record.cost);                                       \
        if (result != CUDA_SUCCESS)                                                                          \
            return result;                                                                                   \
        result = call;                                                                                       \
        if (result == CUDA_SUCCESS) {                                                                        \
            record.key = (uint64_t)(uintptr_t)*(handle);                                                     \
            remember(&record);                                                                               \
        } else {                                                                                             \
            cost_uncharge(&record.cost);                                                                     \
        }                                                                                                    \
        return result;                                                                                       \
    } while (0)

#define DESTROY(handle, call)                                                                                \
    do {                                                                                                     \
        struct record gone;                                                                                  \
        if (!slot_present() || cot_self->attachment != ATTACHED ||                                           \
            !table_take(&arrays, (uint64_t)(uintptr_t)(handle), &gone))                                      \
            return call;                                                                                     \
        CUresult result = call;                                                                              \
        if (result == CUDA_SUCCESS)                                                                          \
            cost_uncharge(&gone.cost);                                                                       \
        else                                                                                                 \
            table_put(&arrays, &gone);                                                                       \
        return result;                                                                                       \
    } while (0)

EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d) {
    ENTER(cuArrayCreate_v2);
    CUDA_ARRAY3D_DESCRIPTOR flat = {0};
    if (d != NULL)
        flat = (CUDA_ARRAY3D_DESCRIPTOR){
            .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
    CREATE(array, d ? array_bytes(&flat, 1) : 0, REAL(cuArrayCreate_v2)(array, d));
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    ENTER(cuArray3DCreate_v2);
    CREATE(array, d ? array_bytes(d, 1) : 0, REAL(cuArray3DCreate_v2)(array, d));
}

EXPORT CUresult cuArrayDestroy(CUarray array) {
    ENTER(cuArrayDestroy);
    DESTROY(array, REAL(cuArrayDestroy)(array));
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d,
                                       unsigned levels) {
    ENTER(cuMipmappedArrayCreate);
    CREATE(array, d ? array_bytes(d, levels) : 0, REAL(cuMipmappedArrayCreate)(array, d, levels));
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    ENTER(cuMipmappedArrayDestroy);
    DESTROY(array, REAL(cuMipmappedArrayDestroy)(array));
}
