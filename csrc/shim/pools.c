/* Implements pools.h, and hooks the functions of memory pools. */
#include "pools.h"

#include <string.h>

#include "hooks.h"
#include "tables.h"

#define POOLS 256
#define POOL_STEP (32u << 20) /* the driver lets a pool grow in steps of this */

/* A memory pool, or a device's pool for graphs (handle NULL). Its charge is what it was last seen to hold. */
struct pool {
    CUmemoryPool handle;
    CUdevice device;
    int card;
    uint64_t charged;
    bool used;
    bool destroyed; /* lives on until its allocations are freed, and can no longer be asked */
};

static struct pool pools[POOLS]; /* guarded by cot_self->pooling */
static unsigned pool_count;      /* never falls: a cheap test whether there is anything to refresh */

void pools_clear(void) {
    memset(pools, 0, sizeof pools);
    __atomic_store_n(&pool_count, 0, __ATOMIC_RELAXED);
}

static bool attribute(const struct pool *pool, bool reserved, uint64_t *value) {
    if (pool->handle == NULL)
        return cot_driver.cuDeviceGetGraphMemAttribute(pool->device,
                                                       reserved ? CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
                                                                : CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
                                                       value) == CUDA_SUCCESS;
    return cot_driver.cuMemPoolGetAttribute(pool->handle,
                                            reserved ? CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
                                                     : CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                                            value) == CUDA_SUCCESS;
}

static struct pool *find_pool(CUmemoryPool handle, CUdevice device) {
    for (struct pool *pool = pools; pool < pools + POOLS; pool++)
        if (pool->used && !pool->destroyed && pool->handle == handle &&
            (handle != NULL || pool->device == device))
            return pool;
    return NULL;
}

static struct pool *pool_of(CUmemoryPool handle, struct here here) {
    struct pool *pool = find_pool(handle, here.device);
    for (unsigned i = 0; pool == NULL && i < POOLS; i++) {
        if (pools[i].used)
            continue;
        pool = &pools[i];
        *pool = (struct pool){.handle = handle, .device = here.device, .card = here.card, .used = true};
        __atomic_fetch_add(&pool_count, 1, __ATOMIC_RELAXED);
    }
    return pool;
}

/* Brings the charge to what the pool holds; true if that passes the limit. */
static bool settle(struct pool *pool, uint64_t charged_ahead) {
    uint64_t held;
    if (pool->destroyed || !attribute(pool, true, &held))
        held = pool->charged;
    uint64_t charged = pool->charged + charged_ahead;
    pool->charged = held;
    if (held > charged)
        return slot_charge_taken(pool->card, held - charged);
    if (held < charged)
        slot_uncharge(pool->card, charged - held);
    return false;
}

void pools_refresh(void) {
    if (__atomic_load_n(&pool_count, __ATOMIC_RELAXED) == 0 || cot_self->attachment != ATTACHED)
        return;
    if (pthread_mutex_trylock(&cot_self->pooling) != 0)
        return; /* somebody is settling right now, perhaps this very thread */
    for (struct pool *pool = pools; pool < pools + POOLS; pool++)
        if (pool->used)
            settle(pool, 0);
    pthread_mutex_unlock(&cot_self->pooling);
}

/* Charges ahead what the pool may grow by. Nothing if what it holds will do. */
static CUresult charge_ahead(struct pool *pool, uint64_t size, uint64_t *ahead) {
    uint64_t held, busy;
    settle(pool, 0);
    *ahead = round_up(size, POOL_STEP);
    if (attribute(pool, true, &held) && attribute(pool, false, &busy) && held >= busy && held - busy >= size)
        *ahead = 0;
    return slot_charge(pool->card, *ahead);
}

typedef CUresult (*from_pool_fn)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
typedef CUresult (*free_fn)(CUdeviceptr, CUstream);

/* The lock is held over the driver's call, so that the growth seen afterwards is this allocation's own. */
static CUresult allocate(CUdeviceptr *address, size_t size, CUmemoryPool handle, CUstream stream,
                         struct here here, from_pool_fn take, free_fn give_back) {
    struct pool *pool = pool_of(handle, here);
    if (pool == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t ahead;
    CUresult result = charge_ahead(pool, size, &ahead);
    if (result != CUDA_SUCCESS)
        return result;
    result = take(address, size, handle, stream);
    bool over = settle(pool, ahead);
    if (result != CUDA_SUCCESS)
        return result;
    if (over && slot_mode() == COT_ENFORCE) { /* the pool grew by more than could be foreseen */
        give_back(*address, stream);
        REAL(cuStreamSynchronize)(stream);
        REAL(cuMemPoolTrimTo)(handle, 0);
        settle(pool, 0);
        return slot_over(pool->card, size);
    }
    struct record record = {.key = *address, .cost.card = here.card, .link = pool, .size = size};
    table_put(&allocations, &record);
    return CUDA_SUCCESS;
}

static CUresult allocate_locked(CUdeviceptr *address, size_t size, CUmemoryPool handle, CUstream stream,
                                struct here here, from_pool_fn take, free_fn give_back) {
    pthread_mutex_lock(&cot_self->pooling);
    CUresult result = allocate(address, size, handle, stream, here, take, give_back);
    pthread_mutex_unlock(&cot_self->pooling);
    return result;
}

CUresult pool_run_graph(struct here here, uint64_t size, CUgraphExec exec, CUstream stream,
                        CUresult (*start)(CUgraphExec, CUstream)) {
    uint64_t ahead;
    pthread_mutex_lock(&cot_self->pooling);
    struct pool *pool = pool_of(NULL, here);
    CUresult result = pool ? charge_ahead(pool, size, &ahead) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        result = start(exec, stream);
        settle(pool, ahead);
    }
    pthread_mutex_unlock(&cot_self->pooling);
    return result;
}

static CUresult alloc_async(CUdeviceptr *address, size_t size, CUstream stream,
                            CUresult (*plain)(CUdeviceptr *, size_t, CUstream), from_pool_fn take,
                            free_fn give_back) {
    struct here here = here_now();
    CUmemoryPool pool;
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH || cot_driver.cuDeviceGetMemPool(&pool, here.device) != CUDA_SUCCESS)
        return plain(address, size, stream);
    return allocate_locked(address, size, pool, stream, here, take, give_back);
}

static CUresult alloc_from_pool(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream,
                                from_pool_fn take, free_fn give_back) {
    struct here here = here_now();
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH)
        return take(address, size, pool, stream);
    return allocate_locked(address, size, pool, stream, here, take, give_back);
}

void pool_freed(const struct record *gone) {
    struct pool *pool = gone->link;
    pthread_mutex_lock(&cot_self->pooling);
    if (pool->destroyed) {
        uint64_t part = gone->size < pool->charged ? gone->size : pool->charged;
        pool->charged -= part;
        slot_uncharge(pool->card, part);
        pool->used = pool->charged > 0;
    } else {
        settle(pool, 0);
    }
    pthread_mutex_unlock(&cot_self->pooling);
}

static CUresult free_async(CUdeviceptr address, CUstream stream, free_fn give_back) {
    struct record gone;
    if (!slot_present() || cot_self->attachment != ATTACHED || !table_take(&allocations, address, &gone))
        return give_back(address, stream);
    CUresult result = give_back(address, stream);
    if (result != CUDA_SUCCESS)
        table_put(&allocations, &gone);
    else if (gone.link != NULL)
        pool_freed(&gone);
    else
        cost_uncharge(&gone.cost);
    return result;
}

static CUresult then_refresh(CUresult result) {
    slot_note_done();
    pools_refresh();
    return result;
}

/* Each of these exists twice: for the legacy default stream, and for the one of each thread (_ptsz). */
#define BOTH_STREAMS(suffix)                                                                                 \
    EXPORT CUresult cuMemFreeAsync##suffix(CUdeviceptr address, CUstream stream) {                           \
        ENTER(cuMemFreeAsync##suffix);                                                                       \
        return free_async(address, stream, REAL(cuMemFreeAsync##suffix));                                    \
    }                                                                                                        \
    EXPORT CUresult cuMemAllocFromPoolAsync##suffix(CUdeviceptr *address, size_t size, CUmemoryPool pool,    \
                                                    CUstream stream) {                                       \
        ENTER(cuMemAllocFromPoolAsync##suffix);                                                              \
        return alloc_from_pool(address, size, pool, stream, REAL(cuMemAllocFromPoolAsync##suffix),           \
                               REAL(cuMemFreeAsync##suffix));                                                \
    }                                                                                                        \
    EXPORT CUresult cuMemAllocAsync##suffix(CUdeviceptr *address, size_t size, CUstream stream) {            \
        ENTER(cuMemAllocAsync##suffix);                                                                      \
        return alloc_async(address, size, stream, REAL(cuMemAllocAsync##suffix),                             \
                           REAL(cuMemAllocFromPoolAsync##suffix), REAL(cuMemFreeAsync##suffix));             \
    }                                                                                                        \
    EXPORT CUresult cuStreamSynchronize##suffix(CUstream stream) {                                           \
        ENTER(cuStreamSynchronize##suffix);                                                                  \
        return then_refresh(REAL(cuStreamSynchronize##suffix)(stream));                                      \
    }

BOTH_STREAMS()
BOTH_STREAMS(_ptsz)

EXPORT CUresult cuEventSynchronize(CUevent event) {
    ENTER(cuEventSynchronize);
    return then_refresh(REAL(cuEventSynchronize)(event));
}

EXPORT CUresult cuCtxSynchronize(void) {
    ENTER(cuCtxSynchronize);
    return then_refresh(REAL(cuCtxSynchronize)());
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
    ENTER(cuCtxSynchronize_v2);
    return then_refresh(REAL(cuCtxSynchronize_v2)(context));
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    ENTER(cuMemPoolTrimTo);
    return then_refresh(REAL(cuMemPoolTrimTo)(pool, keep));
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
    ENTER(cuDeviceGraphMemTrim);
    return then_refresh(REAL(cuDeviceGraphMemTrim)(device));
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props) {
    ENTER(cuMemPoolCreate);
    CUresult result = REAL(cuMemPoolCreate)(handle, props);
    if (result != CUDA_SUCCESS || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return result;
    struct here here = here_on(props->location.id); /* its card may not be the one that is current later */
    if (here.place == PLACE_CARD) {
        pthread_mutex_lock(&cot_self->pooling);
        pool_of(*handle, here);
        pthread_mutex_unlock(&cot_self->pooling);
    }
    return result;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ENTER(cuMemPoolDestroy);
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return REAL(cuMemPoolDestroy)(handle);
    pthread_mutex_lock(&cot_self->pooling);
    struct pool *pool = find_pool(handle, 0);
    uint64_t busy = 0;
    if (pool != NULL && !attribute(pool, false, &busy))
        busy = 0;
    CUresult result = REAL(cuMemPoolDestroy)(handle);
    if (result == CUDA_SUCCESS && pool != NULL) {
        pool->destroyed = true;
        if (pool->charged > busy) {
            slot_uncharge(pool->card, pool->charged - busy);
            pool->charged = busy;
        }
        pool->used = pool->charged > 0;
    }
    pthread_mutex_unlock(&cot_self->pooling);
    return result;
}
