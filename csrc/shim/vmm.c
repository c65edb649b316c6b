/* Charges virtual memory management: memory of cuMemCreate counts until its handle is released and it is
 * mapped nowhere. */
#include "vmm.h"

#include <stdlib.h>
#include <string.h>

#include "contexts.h"
#include "hooks.h"
#include "tables.h"

/* Handles and mappings point to this; a released handle's number may be given to other memory while this one
 * is still mapped, so the number alone does not name it. */
struct memory {
    struct cost cost;
    unsigned references; /* handles and mappings */
};

struct mapping {
    CUdeviceptr base;
    uint64_t size;
    struct memory *memory;
};

/* By address. All of this file is guarded by one lock, which is held over the driver's call too: otherwise
 * one thread could map memory by a handle that another one has just released, and it would be charged to
 * nobody. */
static struct mapping *mappings;
static size_t mapping_count, mapping_room;

void vmm_clear(void) {
    mappings = NULL;
    mapping_count = mapping_room = 0;
}

static void drop(struct memory *memory) {
    if (--memory->references == 0) {
        cost_uncharge(&memory->cost);
        free(memory);
    }
}

static bool limited(void) {
    return slot_present() && cot_self->attachment == ATTACHED;
}

/* The first mapping that ends behind an address. */
static size_t mapping_from(CUdeviceptr address) {
    size_t low = 0, high = mapping_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (mappings[middle].base + (mappings[middle].size - 1) < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool room_for_mapping(void) {
    if (mapping_count < mapping_room)
        return true;
    size_t room = mapping_room ? 2 * mapping_room : 64;
    struct mapping *more = realloc(mappings, room * sizeof *more);
    if (more == NULL)
        return false;
    mappings = more;
    mapping_room = room;
    return true;
}

static void add_mapping(CUdeviceptr base, uint64_t size, struct memory *memory) {
    size_t at = mapping_from(base);
    memmove(&mappings[at + 1], &mappings[at], (mapping_count - at) * sizeof *mappings);
    mappings[at] = (struct mapping){base, size, memory};
    mapping_count++;
    memory->references++;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                       unsigned long long flags, struct memory *memory) {
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = REAL(cuMemCreate)(handle, size, prop, flags);
    if (result == CUDA_SUCCESS) {
        struct record record = {.key = *handle, .link = memory, .size = 1};
        table_put(&handles, &record);
        slot_kept(memory->cost.card);
    } else {
        drop(memory);
    }
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}

/* What the driver does not know either is better refused by the driver: this asks without allocating. */
static CUresult refuse(struct here here, const CUmemAllocationProp *prop) {
    CUdevice device;
    size_t granularity;
    if (location_of(&prop->location, &device) != LOCATION_UNKNOWN ||
        cot_driver.cuMemGetAllocationGranularity == NULL)
        return here.refusal;
    CUresult result = cot_driver.cuMemGetAllocationGranularity(&granularity, prop, 0);
    return result != CUDA_SUCCESS ? result : here.refusal;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags) {
    ENTER(cuMemCreate);
    if (prop == NULL)
        return REAL(cuMemCreate)(handle, size, prop, flags);
    struct here here = here_at(&prop->location);
    if (here.place == PLACE_REFUSED)
        return refuse(here, prop);
    if (here.place == PLACE_THROUGH)
        return REAL(cuMemCreate)(handle, size, prop, flags);
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->references = 1;
    CUresult result = cost_charge(here.card, size, &memory->cost);
    if (result == CUDA_SUCCESS)
        return create(handle, size, prop, flags, memory);
    free(memory);
    return result;
}

/* Records of `handles`: size counts how often the handle was retained; it holds one reference in all. */
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER(cuMemRelease);
    if (!limited())
        return REAL(cuMemRelease)(handle);
    struct record record;
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = REAL(cuMemRelease)(handle);
    if (result == CUDA_SUCCESS && table_count(&handles, handle, -1, &record) && record.size == 0)
        drop(record.link);
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}

static void note_retained(CUmemGenericAllocationHandle handle, CUdeviceptr address) {
    struct record record;
    size_t at = mapping_from(address);
    if (table_count(&handles, handle, 1, &record) || at == mapping_count || mappings[at].base > address)
        return;
    struct memory *memory = mappings[at].memory;
    record = (struct record){.key = handle, .link = memory, .size = 1};
    if (table_put(&handles, &record))
        memory->references++;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    ENTER(cuMemRetainAllocationHandle);
    if (!limited())
        return REAL(cuMemRetainAllocationHandle)(handle, address);
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (result == CUDA_SUCCESS)
        note_retained(*handle, (CUdeviceptr)(uintptr_t)address);
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags) {
    ENTER(cuMemMap);
    if (!limited())
        return REAL(cuMemMap)(address, size, offset, handle, flags);
    struct record record;
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (room_for_mapping())
        result = REAL(cuMemMap)(address, size, offset, handle, flags);
    if (result == CUDA_SUCCESS && table_get(&handles, handle, &record))
        add_mapping(address, size, record.link);
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}

/* One call may take down several mappings. */
static void remove_mappings(CUdeviceptr address, size_t size) {
    size_t at = mapping_from(address), end = at;
    while (end < mapping_count && mappings[end].base - address < size)
        drop(mappings[end++].memory);
    memmove(&mappings[at], &mappings[end], (mapping_count - end) * sizeof *mappings);
    mapping_count -= end - at;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    ENTER(cuMemUnmap);
    if (!limited())
        return REAL(cuMemUnmap)(address, size);
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = REAL(cuMemUnmap)(address, size);
    if (result == CUDA_SUCCESS)
        remove_mappings(address, size);
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}
