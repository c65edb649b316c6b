/* Implements pools.h, and hooks the functions of memory pools. */
#include "pools.h"

#include <stdlib.h>

#include "hooks.h"
#include "memory.h"
#include "tables.h"

#define POOL_STEP (32u << 20) /* the driver lets a pool grow in steps of this */

/* A memory pool, or a device's pool for graphs (handle NULL). Its charge is what it was last seen to hold. */
struct pool {
    struct pool *next;
    CUmemoryPool handle;
    CUdevice device;
    int card;       /* CARD_NONE: nothing is charged, it is in the host's memory */
    bool destroyed; /* lives on until its allocations are freed, and can no longer be asked */
    uint64_t charged;
    uint64_t allocations; /* not freed yet */
};

/* A pool of managed memory without a device: it counts where it is first allocated from, as
 * cuMemAllocManaged. */
enum { CARD_LATER = CARD_NONE - 1 };

static struct pool *first; /* guarded by the lock, like the table `pools` */

/* The lock is held over driver calls that let a pool grow, and such a call may have to trim pools before it
 * is refused. So a thread may come here twice. */
static bool lock_pools(void) {
    pthread_t me = pthread_self();
    if (__atomic_load_n(&cot_self->pooler, __ATOMIC_RELAXED) == me)
        return false;
    pthread_mutex_lock(&cot_self->pooling);
    __atomic_store_n(&cot_self->pooler, me, __ATOMIC_RELAXED);
    return true;
}

static void unlock_pools(bool locked) {
    if (!locked)
        return;
    __atomic_store_n(&cot_self->pooler, (pthread_t)0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&cot_self->pooling);
}

void pools_clear(void) {
    first = NULL;
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

/* Graph pools have no handle: their keys are numbers that no handle can be. */
static uint64_t key_of(CUmemoryPool handle, CUdevice device) {
    return handle != NULL ? (uint64_t)(uintptr_t)handle : UINT64_MAX - (uint64_t)(unsigned)device;
}

static struct pool *find_pool(CUmemoryPool handle, CUdevice device) {
    struct record found;
    return table_get(&pools, key_of(handle, device), &found) ? found.link : NULL;
}

static struct pool *add_pool(CUmemoryPool handle, CUdevice device, int card) {
    struct pool *pool = calloc(1, sizeof *pool);
    struct record record = {.key = key_of(handle, device), .link = pool};
    if (pool == NULL || !table_put(&pools, &record)) {
        free(pool);
        return NULL;
    }
    *pool = (struct pool){.next = first, .handle = handle, .device = device, .card = card};
    __atomic_store_n(&first, pool, __ATOMIC_RELAXED);
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

/* Only an allocation makes a pool grow, and that settles itself: a pool without a charge need not be asked.
 */
static void settle_all(void) {
    for (struct pool *pool = first; pool != NULL; pool = pool->next)
        if (pool->charged)
            settle(pool, 0);
}

void pools_refresh(void) {
    if (__atomic_load_n(&first, __ATOMIC_RELAXED) == NULL || cot_self->attachment != ATTACHED ||
        __atomic_load_n(&cot_self->pooler, __ATOMIC_RELAXED) != (pthread_t)0)
        return; /* no pools; or somebody is settling right now, perhaps this very thread */
    bool locked = lock_pools();
    settle_all();
    unlock_pools(locked);
}

bool pools_trim(int card) {
    uint64_t before = 0, after = 0;
    if (__atomic_load_n(&first, __ATOMIC_RELAXED) == NULL)
        return false;
    bool locked = lock_pools();
    for (struct pool *pool = first; pool != NULL; pool = pool->next) {
        if (pool->card != card || pool->destroyed || !pool->charged)
            continue;
        before += pool->charged;
        if (pool->handle != NULL && REAL(cuMemPoolTrimTo) != NULL)
            REAL(cuMemPoolTrimTo)(pool->handle, 0);
        else if (pool->handle == NULL && REAL(cuDeviceGraphMemTrim) != NULL)
            REAL(cuDeviceGraphMemTrim)(pool->device);
        settle(pool, 0);
        after += pool->charged;
    }
    unlock_pools(locked);
    return after < before;
}

static void remove_pool(struct pool *pool) {
    for (struct pool **link = &first; *link != NULL; link = &(*link)->next)
        if (*link == pool) {
            __atomic_store_n(link, pool->next, __ATOMIC_RELAXED);
            break;
        }
    if (pool->charged)
        slot_uncharge(pool->card, pool->charged);
    free(pool);
}

/* A destroyed pool ends with the last of its allocations, and until then keeps what it held. */
static void count_freed(struct pool *pool) {
    pool->allocations--;
    if (!pool->destroyed)
        settle(pool, 0);
    else if (pool->allocations == 0)
        remove_pool(pool);
}

static void count_gone(const struct record *gone) {
    count_freed(gone->link);
}

void pool_freed(const struct record *gone) {
    bool locked = lock_pools();
    count_gone(gone);
    unlock_pools(locked);
}

static bool unknown_to_driver(const struct record *record, const void *nothing) {
    unsigned type;
    (void)nothing;
    return record->link != NULL && cot_driver.cuPointerGetAttribute != NULL &&
           cot_driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, record->key) !=
               CUDA_SUCCESS;
}

void pools_after_context(void) {
    if (__atomic_load_n(&first, __ATOMIC_RELAXED) == NULL)
        return;
    bool locked = lock_pools();
    table_sweep(&allocations, unknown_to_driver, NULL, count_gone);
    settle_all();
    unlock_pools(locked);
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
static CUresult allocate(CUdeviceptr *address, size_t size, struct pool *pool, CUstream stream,
                         from_pool_fn take, free_fn give_back) {
    uint64_t ahead;
    CUresult result = charge_ahead(pool, size, &ahead);
    if (result != CUDA_SUCCESS)
        return result;
    result = take(address, size, pool->handle, stream);
    bool over = settle(pool, ahead);
    if (result != CUDA_SUCCESS)
        return result;
    if (over && slot_mode() == COT_ENFORCE) { /* the pool grew by more than could be foreseen */
        give_back(*address, stream);
        REAL(cuStreamSynchronize)(stream);
        REAL(cuMemPoolTrimTo)(pool->handle, 0);
        settle(pool, 0);
        return slot_over(pool->card, size);
    }
    struct record record = {.key = *address, .cost.card = pool->card, .link = pool, .size = size};
    pool->allocations += remember_allocation(&record);
    return CUDA_SUCCESS;
}

/* Where a pool was made. The driver tells it from CUDA 13 on; for older ones a pool that was not made through
 * the hook is a device's own. */
static void locate(CUmemoryPool handle, CUmemLocation *location, int *type) {
    CUmemoryPool own;
    int count = 0;
    *type = 0;
    *location = (CUmemLocation){0};
    if (cot_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    for (CUdevice device = 0; device < count; device++)
        if (cot_driver.cuDeviceGetDefaultMemPool(&own, device) == CUDA_SUCCESS && own == handle) {
            *location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
            return;
        }
    cot_driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, type);
    cot_driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &location->type);
    cot_driver.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &location->id);
}

/* Adds a pool by its location; CUDA_SUCCESS, or why it must not be used. */
static CUresult place_pool(CUmemoryPool handle, const CUmemLocation *location, int type, struct pool **pool) {
    CUdevice device;
    bool floats = type == CU_MEM_ALLOCATION_TYPE_MANAGED && location_of(location, &device) != LOCATION_DEVICE;
    struct here here = {.place = PLACE_CARD, .card = CARD_LATER};
    if (!floats)
        here = here_at(location);
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    *pool = add_pool(handle, here.device, here.card);
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Decides the card of a pool that has none yet. */
static CUresult decide_card(struct pool *pool, CUstream stream) {
    struct here here = here_of(stream);
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_CARD)
        pool->device = here.device, pool->card = here.card;
    return CUDA_SUCCESS;
}

static CUresult alloc_from_pool(CUdeviceptr *address, size_t size, CUmemoryPool handle, CUstream stream,
                                from_pool_fn take, free_fn give_back) {
    CUmemLocation location;
    int type;
    if (handle == NULL)
        return take(address, size, handle, stream);
    if (!slot_attached())
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = CUDA_SUCCESS;
    bool locked = lock_pools();
    struct pool *pool = find_pool(handle, 0);
    if (pool == NULL) {
        locate(handle, &location, &type);
        result = place_pool(handle, &location, type, &pool);
    }
    if (result == CUDA_SUCCESS && pool->card == CARD_LATER)
        result = decide_card(pool, stream);
    if (result == CUDA_SUCCESS)
        result = pool->card < 0 ? take(address, size, handle, stream)
                                : allocate(address, size, pool, stream, take, give_back);
    unlock_pools(locked);
    return result;
}

/* An allocation in a captured stream is a node of a graph, and takes memory only when that runs. */
static bool captured(CUstream stream, CUresult (*ask)(CUstream, int *)) {
    int status = 0;
    return ask != NULL && ask(stream, &status) == CUDA_SUCCESS && status != 0;
}

static CUresult alloc_async(CUdeviceptr *address, size_t size, CUstream stream,
                            CUresult (*plain)(CUdeviceptr *, size_t, CUstream), from_pool_fn take,
                            free_fn give_back) {
    struct here here = here_of(stream);
    CUmemoryPool pool;
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH || cot_driver.cuDeviceGetMemPool(&pool, here.device) != CUDA_SUCCESS)
        return plain(address, size, stream);
    return alloc_from_pool(address, size, pool, stream, take, give_back);
}

static CUresult free_async(CUdeviceptr address, CUstream stream, free_fn give_back) {
    struct record gone;
    if (!slot_present() || cot_self->attachment != ATTACHED || !table_take(&allocations, address, &gone))
        return give_back(address, stream);
    CUresult result = give_back(address, stream);
    if (result != CUDA_SUCCESS)
        table_put(&allocations, &gone);
    else
        allocation_freed(&gone);
    return result;
}

CUresult pools_run(const struct graph_need *need, CUresult (*call)(void *), void *argument) {
    struct {
        struct pool *pool;
        uint64_t ahead;
    } grown[COT_CARDS];
    unsigned count = 0;
    CUresult result = CUDA_SUCCESS;
    bool locked = lock_pools();
    for (unsigned i = 0; i < need->devices && result == CUDA_SUCCESS; i++) {
        struct here here = here_on(need->on[i].device);
        if (here.place == PLACE_REFUSED)
            result = here.refusal;
        if (here.place != PLACE_CARD || count == COT_CARDS)
            continue;
        struct pool *pool = find_pool(NULL, here.device);
        if (pool == NULL)
            pool = add_pool(NULL, here.device, here.card);
        result = pool == NULL ? CUDA_ERROR_OUT_OF_MEMORY
                              : charge_ahead(pool, need->on[i].peak, &grown[count].ahead);
        if (result == CUDA_SUCCESS)
            grown[count++].pool = pool;
    }
    if (result == CUDA_SUCCESS)
        result = call(argument);
    while (count-- > 0)
        settle(grown[count].pool, grown[count].ahead);
    unlock_pools(locked);
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
        if (!slot_present() || driver_asleep() || captured(stream, cot_driver.cuStreamIsCapturing##suffix))  \
            return REAL(cuMemAllocFromPoolAsync##suffix)(address, size, pool, stream);                       \
        return alloc_from_pool(address, size, pool, stream, REAL(cuMemAllocFromPoolAsync##suffix),           \
                               REAL(cuMemFreeAsync##suffix));                                                \
    }                                                                                                        \
    EXPORT CUresult cuMemAllocAsync##suffix(CUdeviceptr *address, size_t size, CUstream stream) {            \
        ENTER(cuMemAllocAsync##suffix);                                                                      \
        if (!slot_present() || driver_asleep() || captured(stream, cot_driver.cuStreamIsCapturing##suffix))  \
            return REAL(cuMemAllocAsync##suffix)(address, size, stream);                                     \
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

/* A new pool holds nothing: the driver may judge its properties first. */
EXPORT CUresult cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *props) {
    ENTER(cuMemPoolCreate);
    CUresult result = REAL(cuMemPoolCreate)(handle, props);
    if (result != CUDA_SUCCESS || !slot_present())
        return result;
    struct pool *pool;
    if (!slot_attached()) {
        result = CUDA_ERROR_NOT_PERMITTED;
    } else {
        bool locked = lock_pools();
        result = place_pool(*handle, &props->location, props->allocType, &pool);
        unlock_pools(locked);
    }
    if (result != CUDA_SUCCESS)
        REAL(cuMemPoolDestroy)(*handle);
    return result;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
    ENTER(cuMemPoolDestroy);
    struct record gone;
    if (!slot_present() || cot_self->attachment != ATTACHED || handle == NULL)
        return REAL(cuMemPoolDestroy)(handle);
    bool locked = lock_pools();
    struct pool *pool = find_pool(handle, 0);
    if (pool != NULL && pool->charged) { /* what it holds after its end is what it uses */
        REAL(cuMemPoolTrimTo)(handle, 0);
        settle(pool, 0);
    }
    CUresult result = REAL(cuMemPoolDestroy)(handle);
    if (result == CUDA_SUCCESS && pool != NULL) {
        table_take(&pools, key_of(handle, 0), &gone);
        pool->destroyed = true;
        if (pool->allocations == 0)
            remove_pool(pool);
    }
    unlock_pools(locked);
    return result;
}
