/* Reports the GPU's memory through CUDA: in mode `enforce` the GPU is as large as the grant. */
#include "contexts.h"
#include "hooks.h"

static bool shrinks(int card) {
    return card != CARD_NONE && slot_mode() == COT_ENFORCE;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER(cuMemGetInfo_v2);
    CUresult result = REAL(cuMemGetInfo_v2)(available, total);
    if (result != CUDA_SUCCESS)
        return result;
    struct here here = here_now();
    if (here.place != PLACE_CARD || !shrinks(here.card))
        return here.place == PLACE_REFUSED ? here.refusal : result;
    slot_reap(false);
    uint64_t limit = slot_limit(here.card), used = slot_used(here.card);
    *total = smaller(*total, limit);
    *available = smaller(*available, used < limit ? limit - used : 0);
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem_v2);
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct here here = here_on(device);
    if (here.place == PLACE_CARD && shrinks(here.card))
        *bytes = smaller(*bytes, slot_limit(here.card));
    return result;
}
