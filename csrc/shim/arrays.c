/* Charges CUDA arrays: their size is computed from their descriptor. */
#include "contexts.h"
#include "hooks.h"
#include "tables.h"

static uint64_t element_bytes(int format) {
    switch (format) {
    case 0x01: /* unsigned and signed 8, 16, 32 bits; half; float */
    case 0x08:
        return 1;
    case 0x02:
    case 0x09:
    case 0x10:
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
        return 4;
    default: /* block-compressed, video and packed formats: never less than they take */
        return 16;
    }
}

static uint64_t at_least_one(size_t extent) {
    return extent ? extent : 1;
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
    if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0; /* memory comes later, by cuMemCreate */
    uint64_t width = at_least_one(d->Width), height = at_least_one(d->Height), depth = at_least_one(d->Depth);
    uint64_t total = 0;
    for (unsigned level = 0; level < levels; level++) {
        total += width * height * depth * element_bytes(d->Format) * at_least_one(d->NumChannels);
        width = at_least_one(width / 2);
        height = at_least_one(height / 2);
        depth = at_least_one(depth / 2);
    }
    return total;
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
            table_put(&arrays, &record);                                                                     \
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
    CREATE(array, array_bytes(&flat, d != NULL), REAL(cuArrayCreate_v2)(array, d));
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
