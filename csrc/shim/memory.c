/* Charges plain allocations: cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged, cuMemFree. */
#include "memory.h"

#include "contexts.h"
#include "hooks.h"
#include "pools.h"
#include "tables.h"

#define PITCH_STEP                                                                                           \
    512u /* rows are aligned to this on every card so far; the real pitch is charged afterwards */

void allocation_freed(const struct record *gone) {
    if (gone->link != NULL)
        pool_freed(gone);
    else
        cost_uncharge(&gone->cost);
}

bool remember_allocation(const struct record *record) {
    struct record old;
    bool replaced, kept = table_put_new(&allocations, record, &old, &replaced);
    slot_kept(record->cost.card);
    if (replaced)
        allocation_freed(&old);
    return kept;
}

static void remember(uint64_t address, const struct cost *cost, CUcontext context) {
    struct record record = {.key = address, .cost = *cost, .context = context};
    remember_allocation(&record);
}

#define ALLOCATE(address, size, call)                                                                        \
    do {                                                                                                     \
        struct here here = here_now();                                                                       \
        if (here.place == PLACE_REFUSED)                                                                     \
            return here.refusal;                                                                             \
        if (here.place == PLACE_THROUGH)                                                                     \
            return call;                                                                                     \
        struct cost cost;                                                                                    \
        CUresult result = cost_charge(here.card, size, &cost);                                               \
        if (result != CUDA_SUCCESS)                                                                          \
            return result;                                                                                   \
        result = call;                                                                                       \
        if (result == CUDA_SUCCESS)                                                                          \
            remember(*(address), &cost, here.context);                                                       \
        else                                                                                                 \
            cost_uncharge(&cost);                                                                            \
        return result;                                                                                       \
    } while (0)

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size) {
    ENTER(cuMemAlloc_v2);
    ALLOCATE(address, size, REAL(cuMemAlloc_v2)(address, size));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned flags) {
    ENTER(cuMemAllocManaged);
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && slot_present()) {
        /* What no driver takes. If this one does, it is given back, and charged as usual. */
        CUresult result = REAL(cuMemAllocManaged)(address, size, flags);
        if (result != CUDA_SUCCESS)
            return result;
        REAL(cuMemFree_v2)(*address);
    }
    ALLOCATE(address, size, REAL(cuMemAllocManaged)(address, size, flags));
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    ENTER(cuMemAllocPitch_v2);
    struct here here = here_now();
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    size_t guess;
    if (here.place == PLACE_THROUGH || __builtin_mul_overflow(round_up(width, PITCH_STEP), height, &guess))
        return REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    struct cost cost, true_cost;
    CUresult result = cost_charge(here.card, guess, &cost);
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    if (result != CUDA_SUCCESS) {
        cost_uncharge(&cost);
        return result;
    }
    if (*pitch * height != guess) {
        result = cost_charge(here.card, *pitch * height, &true_cost);
        if (result != CUDA_SUCCESS)
            REAL(cuMemFree_v2)(*address);
        cost_uncharge(&cost);
        if (result != CUDA_SUCCESS)
            return result;
        cost = true_cost;
    }
    remember(*address, &cost, here.context);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    ENTER(cuMemFree_v2);
    struct record gone;
    /* Taken out first: once the driver has freed the address, another thread may get it. */
    if (!slot_present() || cot_self->attachment != ATTACHED || !table_take(&allocations, address, &gone))
        return REAL(cuMemFree_v2)(address);
    CUresult result = REAL(cuMemFree_v2)(address);
    if (result != CUDA_SUCCESS) {
        table_put(&allocations, &gone);
        return result;
    }
    allocation_freed(&gone);
    return CUDA_SUCCESS;
}

/* The forms from before CUDA 3.2 have 32-bit addresses and sizes. Nothing of today calls them; under a limit
 * they are refused rather than let past it. */
#define OLD_FORM(name, parameters, arguments)                                                                \
    EXPORT CUresult name parameters {                                                                        \
        ENTER(name);                                                                                         \
        return slot_present() && !driver_asleep() ? CUDA_ERROR_NOT_SUPPORTED : REAL(name) arguments;         \
    }

OLD_FORM(cuMemAlloc, (unsigned *address, unsigned size), (address, size))
OLD_FORM(cuMemAllocPitch,
         (unsigned *address, unsigned *pitch, unsigned width, unsigned height, unsigned element),
         (address, pitch, width, height, element))
OLD_FORM(cuMemFree, (unsigned address), (address))
OLD_FORM(cuMemGetInfo, (unsigned *available, unsigned *total), (available, total))
OLD_FORM(cuDeviceTotalMem, (unsigned *bytes, CUdevice device), (bytes, device))
OLD_FORM(cuArrayCreate, (CUarray * array, const void *descriptor), (array, descriptor))
OLD_FORM(cuArray3DCreate, (CUarray * array, const void *descriptor), (array, descriptor))
