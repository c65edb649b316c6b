/* Implements registered host memory and pointer attributes. */
#include "driver.h"

static struct registration *registered(struct driver *driver, uintptr_t address) {
    struct registration *items = driver->registrations.items;
    for (size_t i = 0; i < driver->registrations.count; i++)
        if (address - items[i].base < items[i].size)
            return &items[i];
    return NULL;
}

API cuMemHostRegister_v2(void *pointer, size_t size, unsigned int flags) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(pointer && size);
    struct driver *driver = driver_get();
    CUresult result = CUDA_SUCCESS;
    driver_lock(driver);
    struct registration *place = NULL;
    if (registered(driver, (uintptr_t)pointer))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!(place = list_add(&driver->registrations, sizeof *place)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        *place = (struct registration){(uintptr_t)pointer, size, flags};
    driver_unlock(driver);
    return result;
}

API cuMemHostUnregister(void *pointer) {
    CUcontext context;
    TRY(current_context(&context));
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct registration *found = registered(driver, (uintptr_t)pointer);
    bool exact = found && found->base == (uintptr_t)pointer;
    if (exact)
        list_remove(&driver->registrations, sizeof *found,
                    (size_t)(found - (struct registration *)driver->registrations.items));
    driver_unlock(driver);
    return exact ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* Flags of host memory that CUDA knows, and whether it knows it. */
static bool host_flags(void *pointer, unsigned *flags) {
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, (CUdeviceptr)(uintptr_t)pointer);
    struct registration *found = block ? NULL : registered(driver, (uintptr_t)pointer);
    bool known = found || (block && (block->kind == KIND_HOST || block->kind == KIND_MANAGED));
    if (known)
        *flags = found ? found->flags : block->flags;
    driver_unlock(driver);
    return known;
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned int flags) {
    CUcontext context;
    TRY(current_context(&context));
    unsigned ignored;
    NEED(address && flags == 0 && host_flags(pointer, &ignored));
    *address = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

API cuMemHostGetFlags(unsigned int *flags, void *pointer) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(flags && host_flags(pointer, flags));
    return CUDA_SUCCESS;
}

enum {
    POINTER_CONTEXT = 1,
    POINTER_MEMORY_TYPE = 2,
    POINTER_DEVICE_POINTER = 3,
    POINTER_HOST_POINTER = 4,
    POINTER_SYNC_MEMOPS = 6,
    POINTER_BUFFER_ID = 7,
    POINTER_IS_MANAGED = 8,
    POINTER_DEVICE_ORDINAL = 9,
    POINTER_IPC_CAPABLE = 10,
    POINTER_RANGE_START = 11,
    POINTER_RANGE_SIZE = 12,
    POINTER_MAPPED = 13,
    POINTER_HANDLE_TYPES = 14,
    POINTER_RDMA_CAPABLE = 15,
    POINTER_ACCESS_FLAGS = 16,
    POINTER_MEMPOOL = 17,
    POINTER_MAPPING_SIZE = 18,
    POINTER_MAPPING_BASE = 19,
    POINTER_BLOCK_ID = 20
};
enum { TYPE_HOST = 1, TYPE_DEVICE = 2 };

/* Everything that can be asked about a pointer, found once. */
struct pointer {
    uint64_t base, size, id;
    bool host, managed;
    CUcontext context;
    int device;
    CUmemoryPool pool;
};

static bool pointer_find(struct driver *driver, CUdeviceptr address, struct pointer *found) {
    struct block *block = block_find(driver, address);
    struct mapping *mapping = block ? NULL : mapping_find(driver, address);
    struct registration *host = block || mapping ? NULL : registered(driver, (uintptr_t)address);
    *found = (struct pointer){0};
    if (block) {
        found->base = block->address;
        found->size = block->size;
        found->id = block->id;
        found->host = block->kind == KIND_HOST;
        found->managed = block->kind == KIND_MANAGED;
        found->context = block->context;
        found->device = block->device ? block->device->index : 0;
        found->pool = block->pool;
    } else if (mapping) {
        found->base = mapping->base;
        found->size = mapping->size;
        found->device = mapping_device(mapping);
    } else if (host) {
        found->base = host->base;
        found->size = host->size;
        found->host = true;
    }
    return block || mapping || host;
}

static CUresult pointer_attribute(void *data, int attribute, CUdeviceptr address, const struct pointer *p) {
    switch (attribute) {
    case POINTER_CONTEXT:
        *(CUcontext *)data = p->context;
        break;
    case POINTER_MEMORY_TYPE:
        *(unsigned *)data = p->host ? TYPE_HOST : TYPE_DEVICE;
        break;
    case POINTER_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        break;
    case POINTER_HOST_POINTER:
        if (!p->host && !p->managed)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        break;
    case POINTER_SYNC_MEMOPS:
    case POINTER_IPC_CAPABLE:
    case POINTER_RDMA_CAPABLE:
        *(unsigned *)data = 0;
        break;
    case POINTER_IS_MANAGED:
        *(unsigned *)data = p->managed;
        break;
    case POINTER_MAPPED:
        *(unsigned *)data = 1;
        break;
    case POINTER_BUFFER_ID:
    case POINTER_BLOCK_ID:
        *(unsigned long long *)data = p->id;
        break;
    case POINTER_DEVICE_ORDINAL:
        *(int *)data = p->device;
        break;
    case POINTER_RANGE_START:
    case POINTER_MAPPING_BASE:
        *(CUdeviceptr *)data = p->base;
        break;
    case POINTER_RANGE_SIZE:
    case POINTER_MAPPING_SIZE:
        *(size_t *)data = p->size;
        break;
    case POINTER_HANDLE_TYPES:
        *(uint64_t *)data = 0;
        break;
    case POINTER_ACCESS_FLAGS:
        *(int *)data = 3;
        break;
    case POINTER_MEMPOOL:
        *(CUmemoryPool *)data = p->pool;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(data);
    struct pointer found;
    driver_lock(driver);
    bool known = pointer_find(driver, address, &found);
    driver_unlock(driver);
    NEED(known);
    return pointer_attribute(data, (int)attribute, address, &found);
}

/* Unlike the single question, a pointer that CUDA does not know is no error: every answer is 0. */
API cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                           CUdeviceptr address) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(attributes && data);
    struct pointer found;
    driver_lock(driver);
    bool known = pointer_find(driver, address, &found);
    driver_unlock(driver);
    for (unsigned i = 0; i < count; i++) {
        if (known && pointer_attribute(data[i], (int)attributes[i], address, &found) == CUDA_SUCCESS)
            continue;
        int attribute = (int)attributes[i];
        bool word = attribute == POINTER_MEMORY_TYPE || attribute == POINTER_SYNC_MEMOPS ||
                    attribute == POINTER_IS_MANAGED || attribute == POINTER_MAPPED ||
                    attribute == POINTER_IPC_CAPABLE || attribute == POINTER_RDMA_CAPABLE ||
                    attribute == POINTER_ACCESS_FLAGS;
        if (attribute == POINTER_DEVICE_ORDINAL)
            *(int *)data[i] = -2;
        else if (word)
            *(unsigned *)data[i] = 0;
        else
            *(uint64_t *)data[i] = 0;
    }
    return CUDA_SUCCESS;
}

API cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    NEED(value && address && (int)attribute == POINTER_SYNC_MEMOPS);
    return CUDA_SUCCESS;
}
