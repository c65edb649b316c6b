/* Implements virtual memory management: addresses, memory and mappings, each with its own lifetime.
 * Memory counts from cuMemCreate until it is both released and nowhere mapped. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POSIX_HANDLE 1

struct physical {
    uint64_t size;
    unsigned handles, mappings;
    int file;   /* the memory itself, lazily filled */
    int shared; /* its place among exported memory, or -1 */
    struct device *device;
    CUmemAllocationProp prop;
};

struct mapping *mapping_find(struct driver *driver, CUdeviceptr address) {
    struct mapping *items = driver->mappings.items;
    for (size_t i = 0; i < driver->mappings.count; i++)
        if (address - items[i].base < items[i].size)
            return &items[i];
    return NULL;
}

int mapping_device(const struct mapping *mapping) {
    return mapping->physical->device ? mapping->physical->device->index : -1;
}

static void physical_drop(struct physical *physical) {
    if (physical->handles || physical->mappings)
        return;
    struct driver *driver = driver_get();
    if (physical->shared < 0 && physical->device)
        device_uncharge(physical->device, physical->size);
    else if (physical->shared >= 0 && --driver->shared[physical->shared] == 0)
        standin_leave(driver->state, physical->shared, driver->entry);
    close(physical->file);
    free(physical);
}

API cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                  CUmemAllocationGranularity_flags option) {
    (void)option;
    struct device *device;
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(granularity && prop && (int)prop->type == 1);
    TRY(location_device(&prop->location, &device));
    *granularity = STANDIN_GRANULE;
    return CUDA_SUCCESS;
}

API cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish,
                        unsigned long long flags) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(address && size && size % STANDIN_GRANULE == 0 && flags == 0 && (alignment & (alignment - 1)) == 0);
    if (size >> 46 || alignment >> 46)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t step = alignment > STANDIN_GRANULE ? alignment : STANDIN_GRANULE;
    char *map = mmap((void *)(uintptr_t)wish, size + step, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)map, base = round_up(start, step);
    if (base > start)
        munmap(map, base - start);
    if (start + step > base)
        munmap((void *)(uintptr_t)(base + size), start + step - base);
    driver_lock(driver);
    struct reservation *place = list_add(&driver->reservations, sizeof *place);
    if (place)
        *place = (struct reservation){base, size};
    driver_unlock(driver);
    if (!place) {
        munmap((void *)(uintptr_t)base, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = base;
    return CUDA_SUCCESS;
}

static struct reservation *reservation_around(struct driver *driver, CUdeviceptr address, uint64_t size) {
    struct reservation *items = driver->reservations.items;
    for (size_t i = 0; i < driver->reservations.count; i++) {
        uint64_t offset = address - items[i].base;
        if (offset < items[i].size && size <= items[i].size - offset)
            return &items[i];
    }
    return NULL;
}

static bool overlaps_mapping(struct driver *driver, CUdeviceptr address, uint64_t size) {
    struct mapping *items = driver->mappings.items;
    for (size_t i = 0; i < driver->mappings.count; i++)
        if (items[i].base < address + size && address < items[i].base + items[i].size)
            return true;
    return false;
}

API cuMemAddressFree(CUdeviceptr address, size_t size) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    driver_lock(driver);
    struct reservation *found = reservation_around(driver, address, size);
    if (found && found->base == address && found->size == size && !overlaps_mapping(driver, address, size)) {
        munmap((void *)(uintptr_t)address, size);
        list_remove(&driver->reservations, sizeof *found,
                    (size_t)(found - (struct reservation *)driver->reservations.items));
        result = CUDA_SUCCESS;
    }
    driver_unlock(driver);
    return result;
}

static int memory_file(uint64_t size) {
    int file = (int)syscall(SYS_memfd_create, "standin-memory", 1u /* MFD_CLOEXEC */);
    if (file >= 0 && ftruncate(file, (off_t)size)) {
        close(file);
        return -1;
    }
    return file;
}

API cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                unsigned long long flags) {
    NEED(handle && prop && flags == 0 && size && size % STANDIN_GRANULE == 0);
    struct driver *driver = driver_get();
    struct device *device;
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED((int)prop->type == 1);
    TRY(location_device(&prop->location, &device));
    if (device && device->shared->lost)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    struct physical *physical = calloc(1, sizeof *physical);
    if (!physical || (physical->file = memory_file(size)) < 0) {
        free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    driver_lock(driver);
    CUresult result = device ? device_charge(device, size) : CUDA_SUCCESS;
    driver_unlock(driver);
    if (result != CUDA_SUCCESS) {
        close(physical->file);
        free(physical);
        return result;
    }
    physical->size = size;
    physical->handles = 1;
    physical->shared = -1;
    physical->device = device;
    physical->prop = *prop;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

API cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    NEED(physical);
    driver_lock(driver);
    bool held = physical->handles > 0;
    if (held) {
        physical->handles--;
        physical_drop(physical);
    }
    driver_unlock(driver);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long flags) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    NEED(physical && size && flags == 0 && size % STANDIN_GRANULE == 0 && offset % STANDIN_GRANULE == 0);
    NEED(offset <= physical->size && size <= physical->size - offset);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    driver_lock(driver);
    if (reservation_around(driver, address, size) && !overlaps_mapping(driver, address, size)) {
        void *map = mmap((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->file, (off_t)offset);
        struct mapping *place = map == MAP_FAILED ? NULL : list_add(&driver->mappings, sizeof *place);
        result = place ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (place) {
            madvise(map, size, MADV_DONTFORK);
            *place = (struct mapping){address, size, offset, physical, 0};
            physical->mappings++;
        }
    }
    driver_unlock(driver);
    return result;
}

/* A range takes all mappings that lie in it, and no part of one. */
API cuMemUnmap(CUdeviceptr address, size_t size) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(size && size % STANDIN_GRANULE == 0);
    bool found = false, part = false;
    driver_lock(driver);
    struct mapping *items = driver->mappings.items;
    for (size_t i = 0; i < driver->mappings.count; i++) {
        bool overlap = items[i].base < address + size && address < items[i].base + items[i].size;
        bool whole = items[i].base >= address && items[i].base + items[i].size <= address + size;
        found |= whole;
        part |= overlap && !whole;
    }
    for (size_t i = driver->mappings.count; found && !part && i-- > 0;) {
        struct mapping mapping = items[i];
        if (mapping.base < address || mapping.base >= address + size)
            continue;
        mmap((void *)(uintptr_t)mapping.base, mapping.size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        list_remove(&driver->mappings, sizeof mapping, i);
        mapping.physical->mappings--;
        physical_drop(mapping.physical);
    }
    driver_unlock(driver);
    return found && !part ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(access && count);
    bool found = false;
    driver_lock(driver);
    struct mapping *items = driver->mappings.items;
    for (size_t i = 0; i < driver->mappings.count; i++)
        for (size_t j = 0; j < count && items[i].base >= address && items[i].base < address + size; j++)
            if (mapping_device(&items[i]) < 0 || access[j].location.id == mapping_device(&items[i])) {
                items[i].access = (unsigned)access[j].flags;
                found = true;
            }
    driver_unlock(driver);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(flags && location);
    driver_lock(driver);
    struct mapping *mapping = mapping_find(driver, address);
    if (mapping)
        *flags = mapping_device(mapping) == location->id ? mapping->access : 0;
    driver_unlock(driver);
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(handle);
    driver_lock(driver);
    struct mapping *mapping = mapping_find(driver, (CUdeviceptr)(uintptr_t)address);
    if (mapping) {
        mapping->physical->handles++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)mapping->physical;
    }
    driver_unlock(driver);
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    NEED(prop && physical);
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

API cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                 CUmemAllocationHandleType type, unsigned long long flags) {
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    NEED(out && physical && flags == 0 && (int)type == POSIX_HANDLE);
    NEED((int)physical->prop.requestedHandleTypes & POSIX_HANDLE);
    struct driver *driver = driver_get();
    struct stat info;
    driver_lock(driver);
    if (physical->shared < 0 && fstat(physical->file, &info) == 0) {
        physical->shared = standin_share(driver->state, physical->device->card, driver->entry,
                                         (uint64_t)info.st_ino, physical->size);
        if (physical->shared >= 0)
            driver->shared[physical->shared]++;
    }
    bool shared = physical->shared >= 0;
    driver_unlock(driver);
    int copy = shared ? dup(physical->file) : -1;
    if (copy < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)out = copy;
    return CUDA_SUCCESS;
}

/* Memory behind an exported descriptor: which one it is, and on which of this process's devices. */
static CUresult join(struct driver *driver, struct physical *physical) {
    struct stat info;
    NEED(fstat(physical->file, &info) == 0);
    physical->shared = standin_join(driver->state, driver->entry, (uint64_t)info.st_ino);
    NEED(physical->shared >= 0);
    driver->shared[physical->shared]++;
    const struct standin_shared *shared = &driver->state->shared[physical->shared];
    physical->size = shared->bytes;
    for (int i = 0; i < driver->devices && !physical->device; i++)
        if (driver->device[i].card == (int)shared->card)
            physical->device = &driver->device[i];
    return physical->device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* The memory stays the exporter's as long as that has it; then it counts in another process that has it. */
API cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                   CUmemAllocationHandleType type) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(handle && (int)type == POSIX_HANDLE);
    struct physical *physical = calloc(1, sizeof *physical);
    if (!physical || (physical->file = dup((int)(intptr_t)os_handle)) < 0) {
        free(physical);
        return CUDA_ERROR_INVALID_VALUE;
    }
    physical->shared = -1;
    driver_lock(driver);
    CUresult result = join(driver, physical);
    if (result == CUDA_SUCCESS) {
        physical->handles = 1;
        physical->prop.type = 1;
        physical->prop.location.type = 1;
        physical->prop.location.id = physical->device->index;
        physical->prop.requestedHandleTypes = POSIX_HANDLE;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    } else {
        physical_drop(physical);
    }
    driver_unlock(driver);
    return result;
}
