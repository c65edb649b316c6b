/* Charges virtual memory management: memory of cuMemCreate counts until its handle is released and it is
 * mapped nowhere. */
#include <stdlib.h>

#include "contexts.h"
#include "hooks.h"
#include "tables.h"

/* Handles and mappings point to this; a released handle's number may be given to other memory while this one
 * is still mapped, so the number alone does not name it. */
struct memory {
    struct cost cost;
    uint64_t size;
    int references; /* handles and mappings */
};

static void drop(struct memory *memory) {
    if (__atomic_sub_fetch(&memory->references, 1, __ATOMIC_SEQ_CST) == 0) {
        cost_uncharge(&memory->cost);
        free(memory);
    }
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags) {
    ENTER(cuMemCreate);
    if (prop == NULL || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) /* host memory */
        return REAL(cuMemCreate)(handle, size, prop, flags);
    struct here here = here_on(prop->location.id);
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH)
        return REAL(cuMemCreate)(handle, size, prop, flags);
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct memory){.size = size, .references = 1};
    CUresult result = cost_charge(here.card, size, &memory->cost);
    if (result != CUDA_SUCCESS) {
        free(memory);
        return result;
    }
    result = REAL(cuMemCreate)(handle, size, prop, flags);
    if (result != CUDA_SUCCESS) {
        drop(memory);
        return result;
    }
    struct record record = {.key = *handle, .link = memory, .size = 1};
    table_put(&handles, &record);
    return CUDA_SUCCESS;
}

/* Records of `handles`: size counts how often the handle was retained; it holds one reference in all. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER(cuMemRelease);
    struct record record;
    if (!slot_present() || cot_self->attachment != ATTACHED || !table_take(&handles, handle, &record))
        return REAL(cuMemRelease)(handle);
    CUresult result = REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS && --record.size == 0)
        drop(record.link);
    else
        table_put(&handles, &record);
    return result;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    ENTER(cuMemRetainAllocationHandle);
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    struct record mapping, record;
    if (result != CUDA_SUCCESS || !slot_present() || cot_self->attachment != ATTACHED)
        return result;
    if (table_take(&handles, *handle, &record)) {
        record.size++;
        table_put(&handles, &record);
    } else if (table_get(&mappings, (uint64_t)(uintptr_t)address, &mapping)) {
        struct memory *memory = mapping.link;
        __atomic_add_fetch(&memory->references, 1, __ATOMIC_SEQ_CST);
        record = (struct record){.key = *handle, .link = memory, .size = 1};
        table_put(&handles, &record);
    }
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
    ENTER(cuMemMap);
    CUresult result = REAL(cuMemMap)(address, size, offset, handle, flags);
    struct record record;
    if (result == CUDA_SUCCESS && slot_present() && cot_self->attachment == ATTACHED &&
        table_get(&handles, handle, &record)) {
        struct memory *memory = record.link;
        __atomic_add_fetch(&memory->references, 1, __ATOMIC_SEQ_CST);
        struct record mapping = {.key = address, .link = memory, .size = size};
        table_put(&mappings, &mapping);
    }
    return result;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    ENTER(cuMemUnmap);
    CUresult result = REAL(cuMemUnmap)(address, size);
    if (result != CUDA_SUCCESS || !slot_present() || cot_self->attachment != ATTACHED)
        return result;
    uint64_t step = cot_limits->granule ? cot_limits->granule : 2u << 20;
    for (CUdeviceptr at = address; at < address + size;) {
        struct record mapping;
        bool found = table_take(&mappings, at, &mapping);
        at += found ? mapping.size : step; /* one call may take down several mappings */
        if (found)
            drop(mapping.link);
    }
    return result;
}
