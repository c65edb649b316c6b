/* Manages address space for allocations.
 *
 * A device pointer is a host address with no memory behind it until it is written to. Addresses are
 * handed out by size class and come back to their class, so that in the long run neither allocation nor
 * free enters the kernel. Regions stay mapped for good and are found by binary search. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK STANDIN_GRANULE
#define ADDRESS_BITS 46

/* Four classes to a doubling: at most a quarter of the addresses is waste. */
static unsigned class_of(uint64_t units, uint64_t *rounded) {
    if (units < 4) {
        *rounded = units;
        return (unsigned)units;
    }
    unsigned power = 63 - (unsigned)__builtin_clzll(units);
    uint64_t step = 1ull << (power - 2);
    *rounded = round_up(units, step);
    power = 63 - (unsigned)__builtin_clzll(*rounded);
    return 4 * power + (unsigned)(*rounded >> (power - 2) & 3);
}

static struct region *region_at(struct driver *driver, CUdeviceptr address, size_t *place) {
    struct region *regions = driver->regions.items;
    size_t low = 0, high = driver->regions.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    *place = low;
    return low && address - regions[low - 1].base < regions[low - 1].length ? &regions[low - 1] : NULL;
}

static CUdeviceptr map_aligned(uint64_t length) {
    uint64_t room = length + STANDIN_GRANULE;
    char *map = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return 0;
    CUdeviceptr start = (CUdeviceptr)(uintptr_t)map, base = round_up(start, STANDIN_GRANULE);
    if (base > start)
        munmap(map, base - start);
    if (start + room > base + length)
        munmap((void *)(uintptr_t)(base + length), start + room - base - length);
    madvise((void *)(uintptr_t)base, length, MADV_DONTFORK);
    return base;
}

/* More addresses of a class: one large block, or a chunk cut into small ones. */
static bool grow(struct driver *driver, struct block **list, unsigned class, uint64_t slot, uint64_t length) {
    size_t count = length / slot, place;
    struct block *blocks = calloc(count, sizeof *blocks);
    CUdeviceptr base = blocks ? map_aligned(length) : 0;
    if (!base || !list_add(&driver->regions, sizeof(struct region))) {
        free(blocks);
        return false;
    }
    driver->regions.count--;
    region_at(driver, base, &place);
    struct region *regions = driver->regions.items;
    memmove(&regions[place + 1], &regions[place], (driver->regions.count - place) * sizeof *regions);
    regions[place] = (struct region){base, length, slot, blocks};
    driver->regions.count++;
    for (size_t i = count; i-- > 0;) {
        blocks[i].address = base + i * slot;
        blocks[i].class = class;
        blocks[i].next = *list;
        *list = &blocks[i];
    }
    return true;
}

struct block *block_take(struct driver *driver, uint64_t size, enum kind kind) {
    if (size >> ADDRESS_BITS)
        return NULL;
    bool large = size >= SMALL_ALLOCATION;
    uint64_t unit = large ? STANDIN_GRANULE : SMALL_STEP, units;
    unsigned class = class_of(round_up(size, unit) / unit, &units);
    uint64_t slot = units * unit;
    if (class >= CLASSES)
        return NULL;
    struct block **list = &driver->free[large][class];
    if (!*list && !grow(driver, list, class, slot, large ? slot : CHUNK / slot * slot))
        return NULL;
    struct block *block = *list;
    *list = block->next;
    block->size = size;
    block->kind = kind;
    block->flags = 0;
    block->touched = false;
    block->id = ++driver->next_id;
    block->context = NULL;
    block->device = NULL;
    block->pool = NULL;
    return block;
}

void block_give(struct driver *driver, struct block *block) {
    bool large = block->size >= SMALL_ALLOCATION;
    if (block->touched && large)
        madvise((void *)(uintptr_t)block->address, round_up(block->size, 4096), MADV_DONTNEED);
    block->kind = KIND_FREE;
    block->next = driver->free[large][block->class];
    driver->free[large][block->class] = block;
}

struct block *block_find(struct driver *driver, CUdeviceptr address) {
    size_t place;
    struct region *region = region_at(driver, address, &place);
    if (!region)
        return NULL;
    size_t index = region->slot == region->length ? 0 : (address - region->base) / region->slot;
    struct block *block = &region->blocks[index];
    bool inside = block->kind != KIND_FREE && address - block->address < (block->size ? block->size : 1);
    return inside ? block : NULL;
}
