/* Declares what the stand-in libcuda keeps in a process: devices, contexts, memory.
 *
 * All of it belongs to one `struct driver`, which a forked child does not see (the pointer is on a page that
 * is wiped on fork): the child starts with nothing and has to call cuInit, as its own process.
 * `driver->lock` guards everything but what is read on the launch path. */
#ifndef STANDIN_DRIVER_H
#define STANDIN_DRIVER_H

#include "cuda_abi.h"
#include "state.h"

#include <pthread.h>
#include <stdbool.h>

#define SMALL_ALLOCATION STANDIN_MIB /* from here on memory comes in granules */
#define SMALL_STEP 512ull            /* below, in steps of this, packed into granules */
#define POOL_STEP (32 * STANDIN_MIB) /* pools reserve in steps of this */
#define CLASSES 256
#define STACK_DEPTH 64

enum kind { KIND_FREE, KIND_DEVICE, KIND_MANAGED, KIND_POOL, KIND_GRAPH, KIND_HOST, KIND_ARRAY, KIND_GLOBAL };

/* A piece of address space with memory behind it as soon as somebody writes to it. */
struct block {
    CUdeviceptr address;
    uint64_t size;    /* as asked for */
    uint64_t charged; /* as counted on the card or in the pool, rounded */
    enum kind kind;
    unsigned flags; /* as given to cuMemHostAlloc or cuMemAllocManaged */
    bool touched;   /* has pages that must be dropped when it is freed */
    uint64_t id;
    CUcontext context;
    struct device *device;
    CUmemoryPool pool;
    struct block *next; /* in its class's free list */
    unsigned class;
};

/* Blocks of one size class that were mapped together. Never unmapped: it is looked up by address. */
struct region {
    CUdeviceptr base;
    uint64_t length;
    uint64_t slot;
    struct block *blocks;
};

struct physical; /* memory of cuMemCreate */
struct mapping {
    CUdeviceptr base;
    uint64_t size;
    uint64_t offset;
    struct physical *physical;
    unsigned access;
};
struct reservation {
    CUdeviceptr base;
    uint64_t size;
};
struct registration {
    uintptr_t base;
    uint64_t size;
    unsigned flags;
};

/* Growable arrays of small structs. */
struct list {
    void *items;
    size_t count, room;
};
void *list_add(struct list *list, size_t item);
void list_remove(struct list *list, size_t item, size_t index);

struct CUmemPoolHandle_st {
    struct device *device;
    CUmemoryPool next;
    CUmemPoolProps props;
    uint64_t used, used_high, reserved, reserved_high, threshold;
    uint64_t reuse[3];
    bool dying; /* destroyed while some of its memory is in use */
};

struct graph_memory {
    uint64_t used, used_high, reserved, reserved_high;
};

struct device {
    int index; /* CUdevice */
    int card;  /* in the state */
    struct standin_card *shared;
    struct standin_use *use;
    uint64_t small; /* bytes of small allocations */
    uint64_t small_charged;
    CUcontext primary;
    unsigned primary_uses, primary_flags;
    unsigned contexts;
    CUmemoryPool default_pool, pool, pools;
    struct graph_memory graphs;
};

struct CUstream_st {
    CUcontext context;
    unsigned flags;
    int priority;
    uint64_t id;
    uint64_t until; /* when its last launch ends */
    CUgraph capture;
    CUgraphNode capture_last;
};

struct CUctx_st {
    struct device *device;
    unsigned flags;
    unsigned api;
    uint64_t id;
    bool dead, primary;
    CUcontext green_of;        /* a green context: the primary one, whose its memory is */
    unsigned attached;         /* users beside the first */
    struct CUstream_st legacy; /* stream 0 and the per-thread default stream */
    uint64_t limits[16];
    int cache_config;
    CUcontext older; /* made before this one; contexts are never freed */
};

struct driver {
    pthread_mutex_t lock;
    struct standin_state *state;
    int entry;
    int devices;
    struct device device[STANDIN_CARDS];
    struct list regions;            /* struct region, by address */
    struct block *free[2][CLASSES]; /* small, large */
    struct list reservations, mappings, registrations;
    unsigned shared[STANDIN_SHARED]; /* how often this process has exported memory */
    uint64_t next_id;
    CUcontext newest;
};

/* process.c */
struct driver *driver_get(void);
CUresult driver_start(void);
CUresult current_context(CUcontext *context);
CUcontext context_if_known(CUcontext context);
CUresult device_get(CUdevice index, struct device **device);
CUresult location_device(const CUmemLocation *location, struct device **device); /* NULL: the host */
static inline void driver_lock(struct driver *driver) {
    pthread_mutex_lock(&driver->lock);
}
static inline void driver_unlock(struct driver *driver) {
    pthread_mutex_unlock(&driver->lock);
}
static inline uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

/* Give up with the first error. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        CUresult result_ = (call);                                                                           \
        if (result_ != CUDA_SUCCESS)                                                                         \
            return result_;                                                                                  \
    } while (0)
#define NEED(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return CUDA_ERROR_INVALID_VALUE;                                                                 \
    } while (0)

/* visible.c: CUDA_VISIBLE_DEVICES */
int visible_cards(const struct standin_state *state, int *cards);

/* stream.c */
CUresult stream_of(CUstream handle, CUcontext *context, CUstream *stream);
void synchronise(CUcontext context, uint64_t until);

/* blocks.c, with the lock held */
struct block *block_take(struct driver *driver, uint64_t size, enum kind kind);
void block_give(struct driver *driver, struct block *block);
struct block *block_find(struct driver *driver, CUdeviceptr address); /* also inside of it */

/* charge.c, with the lock held */
uint64_t charge_size(uint64_t size);
CUresult device_charge(struct device *device, uint64_t bytes);
void device_uncharge(struct device *device, uint64_t bytes);
CUresult device_charge_allocation(struct device *device, uint64_t size, uint64_t *charged);
void device_uncharge_allocation(struct device *device, uint64_t charged);

/* memory.c */
CUresult memory_allocate(CUdeviceptr *address, uint64_t size, enum kind kind, unsigned flags);
void memory_free_block(struct driver *driver, struct block *block);
void memory_free_context(struct driver *driver, CUcontext context);

/* pool.c, with the lock held */
CUresult pool_allocate(CUmemoryPool pool, uint64_t size, CUcontext context, CUdeviceptr *address);
void pool_return(struct block *block);
void pool_release_unused(struct device *device, bool all);
void pool_forget(struct device *device);

/* exec.c and capture.c */
void graph_memory_return(struct block *block);
CUresult capture_allocation(CUstream stream, uint64_t size, CUmemoryPool pool, CUdeviceptr *address);
CUresult capture_free(CUstream stream, CUdeviceptr address);
CUresult capture_kernel(CUstream stream, CUfunction function);

/* virtual.c, with the lock held */
struct mapping *mapping_find(struct driver *driver, CUdeviceptr address);
int mapping_device(const struct mapping *mapping);

/* launch.c */
CUresult launch(CUcontext context, CUstream stream);

/* array.c */
unsigned char *array_data(CUarray array, size_t *pitch, size_t *height);

#endif
