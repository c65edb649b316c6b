/* Charges virtual memory management: memory of cuMemCreate counts until its handle is released and it is
 * mapped nowhere. */
#include "vmm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contexts.h"
#include "hooks.h"
#include "imports.h"
#include "tables.h"

/* Handles and mappings point to this; a released handle's number may be given to other memory while this one
 * is still mapped, so the number alone does not name it. */
struct memory {
    struct cost cost;
    unsigned references;     /* handles and mappings */
    int import;              /* place among this process's imports; NOT_IMPORTED: it is charged here */
    struct export_name name; /* number 0: not exported */
};
enum { NOT_IMPORTED = -1 };

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
    if (--memory->references != 0)
        return;
    if (memory->import != NOT_IMPORTED) {
        import_drop(memory->import, memory->cost.card, memory->cost.bytes);
    } else {
        if (memory->name.number != 0)
            export_drop(memory->name, memory->cost.card);
        cost_uncharge(&memory->cost);
    }
    free(memory);
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

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle);

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                            const CUmemAllocationProp *prop, unsigned long long flags) {
    ENTER(cuMemCreate);
    if (prop == NULL || flags != 0 || !slot_present() || driver_asleep()) {
        /* What no driver takes, or not yet. If this one does, it is given back, and charged as usual. */
        CUresult result = REAL(cuMemCreate)(handle, size, prop, flags);
        if (result != CUDA_SUCCESS || !slot_present())
            return result;
        REAL(cuMemRelease)(*handle);
    }
    struct here here = here_at(&prop->location);
    if (here.place == PLACE_REFUSED)
        return refuse(here, prop);
    if (here.place == PLACE_THROUGH)
        return REAL(cuMemCreate)(handle, size, prop, flags);
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory->references = 1;
    memory->import = NOT_IMPORTED;
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

#define NUMBERS 64u

EXPORT CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, int type,
                                             unsigned long long flags) {
    ENTER(cuMemExportToShareableHandle);
    static unsigned exported;
    struct record record;
    if (!limited())
        return REAL(cuMemExportToShareableHandle)(shared, handle, type, flags);
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = REAL(cuMemExportToShareableHandle)(shared, handle, type, flags);
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
        table_get(&handles, handle, &record)) {
        struct memory *memory = record.link;
        if (memory->name.number == 0 && memory->import == NOT_IMPORTED)
            memory->name = (struct export_name){(uint32_t)getpid(), exported++ % NUMBERS + 1};
        export_mark(*(int *)shared,
                    memory->import != NOT_IMPORTED ? import_name(memory->import) : memory->name);
    }
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}

/* The driver does not say how large imported memory is, but maps no more than there is. 0: it cannot be
 * found. */
static uint64_t imported_bytes(CUmemGenericAllocationHandle handle, const CUmemAllocationProp *prop,
                               CUdevice device) {
    size_t step = 0, most = 0;
    CUdeviceptr address;
    if (cot_driver.cuMemGetAllocationGranularity(&step, prop, 0) != CUDA_SUCCESS || step == 0 ||
        REAL(cuDeviceTotalMem_v2)(&most, device) != CUDA_SUCCESS)
        return 0;
    most = round_up(most, step);
    if (cot_driver.cuMemAddressReserve(&address, most, 0, 0, 0) != CUDA_SUCCESS)
        return 0;
    size_t low = 0, high = most / step;
    while (low < high) {
        size_t middle = low + (high - low + 1) / 2;
        if (REAL(cuMemMap)(address, middle * step, 0, handle, 0) == CUDA_SUCCESS) {
            REAL(cuMemUnmap)(address, middle * step);
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    cot_driver.cuMemAddressFree(address, most);
    return low * step;
}

/* Charged is the process that made it, while that has it; else this one. */
static CUresult charge_imported(CUmemGenericAllocationHandle handle, struct export_name name) {
    CUmemAllocationProp prop;
    struct record record;
    if (table_count(&handles, handle, 1, &record))
        return CUDA_SUCCESS; /* the driver gave a handle that this process has */
    if (cot_driver.cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    struct here here = here_at(&prop.location);
    if (here.place != PLACE_CARD)
        return here.place == PLACE_REFUSED ? here.refusal : CUDA_SUCCESS;
    struct memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t bytes = imported_bytes(handle, &prop, here.device);
    memory->references = 1;
    memory->import = bytes ? import_note(name, here.card, bytes) : NOT_IMPORTED;
    memory->cost = (struct cost){.card = here.card, .bytes = bytes};
    CUresult result = memory->import == NOT_IMPORTED ? slot_charge(here.card, bytes) : CUDA_SUCCESS;
    record = (struct record){.key = handle, .link = memory, .size = 1};
    if (result == CUDA_SUCCESS && table_put(&handles, &record))
        return CUDA_SUCCESS;
    free(memory);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type) {
    ENTER(cuMemImportFromShareableHandle);
    if (!slot_present())
        return REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    if (!slot_attached())
        return CUDA_ERROR_NOT_PERMITTED;
    struct export_name name = {0, 0};
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        name = export_name((int)(intptr_t)shared);
    pthread_mutex_lock(&cot_self->mapping);
    CUresult result = REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    if (result == CUDA_SUCCESS) {
        result = charge_imported(*handle, name);
        if (result != CUDA_SUCCESS)
            REAL(cuMemRelease)(*handle);
    }
    pthread_mutex_unlock(&cot_self->mapping);
    return result;
}
