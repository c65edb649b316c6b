/* Calls every function that can take device memory, with sizes of all kinds, from several threads at once.
 *
 *   fuzz SEED CALLS THREADS ROUNDS
 *
 * After each round the threads stand still, and a line is printed; the reader compares what the slot and the cards
 * count, and answers with a line. After the last everything has been freed. Handles are always right: only sizes, and
 * which thread does what when, are left to chance. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef int result;
#define MIB (1ull << 20)
#define HELD 24
#define POOLS 6

static u64 calls;
#define CALL(name, ...) (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED), name(__VA_ARGS__))
#define FUNCTIONS(F)                                                                                         \
    F(cuInit, (unsigned))                                                                                    \
    F(cuDevicePrimaryCtxRetain, (void **, int))                                                              \
    F(cuDevicePrimaryCtxRelease_v2, (int))                                                                   \
    F(cuCtxSetCurrent, (void *))                                                                             \
    F(cuCtxCreate_v2, (void **, unsigned, int))                                                              \
    F(cuCtxCreate_v3, (void **, void *, int, unsigned, int))                                                 \
    F(cuCtxCreate_v4, (void **, void *, unsigned, int))                                                      \
    F(cuCtxDestroy_v2, (void *))                                                                             \
    F(cuCtxAttach, (void **, unsigned))                                                                      \
    F(cuCtxDetach, (void *))                                                                                 \
    F(cuCtxSynchronize, (void))                                                                              \
    F(cuGreenCtxCreate, (void **, void *, int, unsigned))                                                    \
    F(cuGreenCtxDestroy, (void *))                                                                           \
    F(cuCtxFromGreenCtx, (void **, void *))                                                                  \
    F(cuStreamCreate, (void **, unsigned))                                                                   \
    F(cuStreamSynchronize, (void *))                                                                         \
    F(cuMemGetInfo_v2, (size_t *, size_t *))                                                                 \
    F(cuMemAlloc_v2, (u64 *, size_t))                                                                        \
    F(cuMemAllocManaged, (u64 *, size_t, unsigned))                                                          \
    F(cuMemAllocPitch_v2, (u64 *, size_t *, size_t, size_t, unsigned))                                       \
    F(cuMemFree_v2, (u64))                                                                                   \
    F(cuMemAllocAsync, (u64 *, size_t, void *))                                                              \
    F(cuMemAllocAsync_ptsz, (u64 *, size_t, void *))                                                         \
    F(cuMemAllocFromPoolAsync, (u64 *, size_t, void *, void *))                                              \
    F(cuMemAllocFromPoolAsync_ptsz, (u64 *, size_t, void *, void *))                                         \
    F(cuMemFreeAsync, (u64, void *))                                                                         \
    F(cuMemFreeAsync_ptsz, (u64, void *))                                                                    \
    F(cuMemPoolCreate, (void **, const void *))                                                              \
    F(cuMemPoolDestroy, (void *))                                                                            \
    F(cuMemPoolTrimTo, (void *, size_t))                                                                     \
    F(cuMemPoolSetAttribute, (void *, int, void *))                                                          \
    F(cuMemCreate, (u64 *, size_t, const void *, u64))                                                       \
    F(cuMemRelease, (u64))                                                                                   \
    F(cuMemRetainAllocationHandle, (u64 *, void *))                                                          \
    F(cuMemAddressReserve, (u64 *, size_t, size_t, u64, u64))                                                \
    F(cuMemAddressFree, (u64, size_t))                                                                       \
    F(cuMemMap, (u64, size_t, size_t, u64, u64))                                                             \
    F(cuMemUnmap, (u64, size_t))                                                                             \
    F(cuArrayCreate_v2, (void **, const void *))                                                             \
    F(cuArray3DCreate_v2, (void **, const void *))                                                           \
    F(cuArrayDestroy, (void *))                                                                              \
    F(cuMipmappedArrayCreate, (void **, const void *, unsigned))                                             \
    F(cuMipmappedArrayDestroy, (void *))                                                                     \
    F(cuGraphCreate, (void **, unsigned))                                                                    \
    F(cuGraphDestroy, (void *))                                                                              \
    F(cuGraphAddMemAllocNode, (void **, void *, void **, size_t, void *))                                    \
    F(cuGraphAddMemFreeNode, (void **, void *, void **, size_t, u64))                                        \
    F(cuGraphInstantiate_v2, (void **, void *, void *, char *, size_t))                                      \
    F(cuGraphInstantiateWithFlags, (void **, void *, u64))                                                   \
    F(cuGraphInstantiateWithParams, (void **, void *, void *))                                               \
    F(cuGraphLaunch, (void *, void *))                                                                       \
    F(cuGraphUpload, (void *, void *))                                                                       \
    F(cuGraphExecDestroy, (void *))                                                                          \
    F(cuDeviceGraphMemTrim, (int))
#define F(name, parameters) static result(*name) parameters;
FUNCTIONS(F)
#undef F

struct location {
    int type, id;
};
struct pool_props {
    int type, handles;
    struct location location;
    u64 security, most;
    char rest[56];
};
struct memory_prop {
    int type, handles;
    struct location location;
    u64 rest[2];
};
struct node_params {
    struct pool_props pool;
    u64 access, accesses, size, address;
};
struct flat {
    size_t width, height;
    int format;
    unsigned channels;
};
struct deep {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

enum kind { PLAIN, ASYNC, ARRAY, MIPMAP, VIRTUAL, MAPPED };
struct held {
    enum kind kind;
    u64 handle, address, size;
};

struct worker {
    pthread_t thread;
    u64 random;
    int device;
    struct held held[HELD];
    int count;
};

static void *primary[2], *streams[2], *pools[POOLS];
static pthread_barrier_t barrier;
static u64 calls_a_round;
static int rounds;
static int failed;

static u64 draw(struct worker *me, u64 below) {
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return below ? (me->random >> 11) % below : 0;
}

static u64 in_use(void) {
    size_t available = 0, total = 0;
    CALL(cuMemGetInfo_v2, &available, &total);
    return total - available;
}

/* Mostly what fits; else around powers of two, where rounding is, and what wraps when it is added to something. */
static u64 any_size(struct worker *me) {
    switch (draw(me, 16)) {
    case 0:
        return (1ull << draw(me, 64)) + draw(me, 3) - 1;
    case 1:
        return 0 - draw(me, 4 * MIB);
    case 2:
        return 0 - in_use() + draw(me, 3) * MIB;
    case 3:
        return draw(me, 3) ? 0 - (1ull << draw(me, 64)) : draw(me, 1ull << 52);
    case 4:
        return draw(me, 3) * 2 * MIB + draw(me, 3) - 1;
    case 5:
        return draw(me, 20) ? draw(me, 64 * MIB) : draw(me, 2048 * MIB);
    case 6:
    case 7:
    case 8:
        return draw(me, 8 * MIB);
    default:
        return draw(me, MIB);
    }
}

static void must(result got, const char *what) {
    if (got != 0 && !__atomic_exchange_n(&failed, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "%s: CUDA error %d\n", what, got);
}

static void drop(struct worker *me, int index) {
    struct held gone = me->held[index];
    me->held[index] = me->held[--me->count];
    switch (gone.kind) {
    case PLAIN:
        must(CALL(cuMemFree_v2, gone.address), "cuMemFree");
        break;
    case ASYNC:
        switch (draw(me, 3)) {
        case 0:
            must(CALL(cuMemFree_v2, gone.address), "cuMemFree of a pool's");
            break;
        case 1:
            must(CALL(cuMemFreeAsync, gone.address, NULL), "cuMemFreeAsync");
            break;
        default:
            must(CALL(cuMemFreeAsync_ptsz, gone.address, NULL), "cuMemFreeAsync_ptsz");
        }
        break;
    case ARRAY:
        must(CALL(cuArrayDestroy, (void *)gone.handle), "cuArrayDestroy");
        break;
    case MIPMAP:
        must(CALL(cuMipmappedArrayDestroy, (void *)gone.handle), "cuMipmappedArrayDestroy");
        break;
    case MAPPED:
        must(CALL(cuMemUnmap, gone.address, gone.size), "cuMemUnmap");
        must(cuMemAddressFree(gone.address, gone.size), "cuMemAddressFree");
        break;
    case VIRTUAL:
        must(CALL(cuMemRelease, gone.handle), "cuMemRelease");
    }
}

static void keep(struct worker *me, struct held held) {
    if (me->count == HELD)
        drop(me, (int)draw(me, HELD));
    me->held[me->count++] = held;
}

static void take_plain(struct worker *me) {
    u64 address = 0;
    size_t pitch, width = any_size(me);
    result got;
    switch (draw(me, 4)) {
    case 0:
        got = CALL(cuMemAllocManaged, &address, width, 1);
        break;
    case 1:
        got = CALL(cuMemAllocPitch_v2, &address, &pitch, draw(me, 2) ? draw(me, 10000) : width,
                   draw(me, 2) ? draw(me, 1000) : any_size(me), 4);
        break;
    default:
        got = CALL(cuMemAlloc_v2, &address, width);
    }
    if (got == 0)
        keep(me, (struct held){PLAIN, 0, address, 0});
}

static void take_async(struct worker *me) {
    u64 address = 0, size = any_size(me);
    void *stream = draw(me, 3) ? NULL : streams[draw(me, 2)], *pool = pools[draw(me, POOLS)];
    result got;
    switch (draw(me, 4)) {
    case 0:
        got = CALL(cuMemAllocAsync, &address, size, stream);
        break;
    case 1:
        got = CALL(cuMemAllocAsync_ptsz, &address, size, stream);
        break;
    case 2:
        got = CALL(cuMemAllocFromPoolAsync, &address, size, pool, stream);
        break;
    default:
        got = CALL(cuMemAllocFromPoolAsync_ptsz, &address, size, pool, stream);
    }
    if (got == 0)
        keep(me, (struct held){ASYNC, 0, address, 0});
    if (draw(me, 50) == 0)
        CALL(cuMemPoolTrimTo, pool, any_size(me));
    if (draw(me, 10) == 0)
        CALL(cuStreamSynchronize, stream);
}

static void take_array(struct worker *me) {
    static const int formats[] = {1, 2, 3, 0x10, 0x20, 0x91, 0x9d, 0xb0, 0x9f, 0xc5, 0x5e, 0x33};
    int format = formats[draw(me, sizeof formats / sizeof *formats)];
    size_t width = draw(me, 4) ? draw(me, 1024) : any_size(me), height = draw(me, 4) ? draw(me, 256) : any_size(me);
    size_t depth = draw(me, 4) ? draw(me, 8) : any_size(me);
    void *array = NULL;
    struct flat flat = {width, height, format, 1u << draw(me, 3)};
    struct deep deep = {width, height, depth, format, 1u << draw(me, 3), draw(me, 2) ? 0 : 1};
    switch (draw(me, 3)) {
    case 0:
        if (CALL(cuArrayCreate_v2, &array, &flat) == 0)
            keep(me, (struct held){ARRAY, (u64)array, 0, 0});
        break;
    case 1:
        if (CALL(cuArray3DCreate_v2, &array, &deep) == 0)
            keep(me, (struct held){ARRAY, (u64)array, 0, 0});
        break;
    default:
        if (CALL(cuMipmappedArrayCreate, &array, &deep, (unsigned)any_size(me)) == 0)
            keep(me, (struct held){MIPMAP, (u64)array, 0, 0});
    }
}

static void take_virtual(struct worker *me) {
    u64 handle, again, address, size = any_size(me);
    int kind = draw(me, 8) ? 1 : (int)draw(me, 9);
    struct memory_prop prop = {1, 0, {kind, (int)draw(me, 2)}, {0, 0}};
    if (draw(me, 2))
        size = size / (2 * MIB) * (2 * MIB);
    if (CALL(cuMemCreate, &handle, size, &prop, 0) != 0)
        return;
    int mapped = draw(me, 2) && cuMemAddressReserve(&address, size, 0, 0, 0) == 0;
    if (!mapped) {
        keep(me, (struct held){VIRTUAL, handle, 0, 0});
        return;
    }
    CALL(cuMemMap, address, any_size(me), any_size(me) | 1, handle, 0);
    must(CALL(cuMemMap, address, size, 0, handle, 0), "cuMemMap");
    must(CALL(cuMemRelease, handle), "cuMemRelease of what is mapped");
    CALL(cuMemUnmap, address, any_size(me) | 1);
    if (draw(me, 2)) {
        must(CALL(cuMemRetainAllocationHandle, &again, (void *)(address + draw(me, size))),
             "cuMemRetainAllocationHandle");
        keep(me, (struct held){VIRTUAL, again, 0, 0});
    }
    keep(me, (struct held){MAPPED, 0, address, size});
}

static void run_graph(struct worker *me) {
    void *graph = NULL, *executable = NULL, *last = NULL, *node;
    u64 addresses[6], upload[4] = {2, 0, 0, 0};
    int live = 0;
    must(cuGraphCreate(&graph, 0), "cuGraphCreate");
    for (int i = 0; i < 6; i++) {
        struct node_params params = {
            {1, 0, {1, (int)draw(me, 2)}, 0, 0, {0}}, 0, 0, draw(me, 6) ? draw(me, 8 * MIB) : any_size(me), 0};
        if (CALL(cuGraphAddMemAllocNode, &node, graph, &last, last != NULL, &params) != 0)
            continue;
        last = node;
        addresses[live++] = params.address;
        if (draw(me, 2)) {
            must(CALL(cuGraphAddMemFreeNode, &node, graph, &last, 1, addresses[--live]), "cuGraphAddMemFreeNode");
            last = node;
        }
    }
    while (live > 0) { /* so that it may run again */
        must(CALL(cuGraphAddMemFreeNode, &node, graph, &last, 1, addresses[--live]), "cuGraphAddMemFreeNode");
        last = node;
    }
    result made;
    switch (draw(me, 3)) {
    case 0:
        made = CALL(cuGraphInstantiate_v2, &executable, graph, NULL, NULL, 0);
        break;
    case 1:
        made = CALL(cuGraphInstantiateWithFlags, &executable, graph, 0);
        break;
    default:
        made = CALL(cuGraphInstantiateWithParams, &executable, graph, upload);
    }
    if (made == 0) {
        CALL(cuGraphUpload, executable, NULL);
        CALL(cuGraphLaunch, executable, NULL);
        CALL(cuGraphLaunch, executable, streams[draw(me, 2)]);
        must(CALL(cuGraphExecDestroy, executable), "cuGraphExecDestroy");
    }
    must(cuGraphDestroy(graph), "cuGraphDestroy");
}

static void run_pool(struct worker *me) {
    void *pool;
    u64 addresses[4], most = draw(me, 4) ? 0 : any_size(me);
    int kind = draw(me, 4) ? 1 : (int)draw(me, 9), taken = 0;
    struct pool_props props = {draw(me, 4) ? 1 : 2, 0, {kind, (int)draw(me, 2)}, 0, most, {0}};
    if (CALL(cuMemPoolCreate, &pool, &props) != 0)
        return;
    for (int i = 0; i < 4; i++)
        taken += CALL(cuMemAllocFromPoolAsync, &addresses[taken], any_size(me), pool, NULL) == 0;
    if (draw(me, 2))
        must(CALL(cuMemPoolDestroy, pool), "cuMemPoolDestroy"), pool = NULL;
    while (taken > 0)
        must(CALL(cuMemFreeAsync, addresses[--taken], NULL), "cuMemFreeAsync after its pool");
    if (pool)
        must(CALL(cuMemPoolDestroy, pool), "cuMemPoolDestroy");
}

static void run_context(struct worker *me) {
    void *context = NULL, *again, *own;
    u64 address;
    int device = (int)draw(me, 2);
    unsigned way = (unsigned)draw(me, 4);
    result got = way == 0   ? CALL(cuCtxCreate_v2, &context, 0, device)
                 : way == 1 ? CALL(cuCtxCreate_v3, &context, NULL, 0, 0, device)
                 : way == 2 ? CALL(cuCtxCreate_v4, &context, NULL, 0, device)
                            : CALL(cuGreenCtxCreate, &context, NULL, device, 1);
    if (got != 0)
        return;
    if (way == 3) {
        must(CALL(cuCtxFromGreenCtx, &own, context), "cuCtxFromGreenCtx");
        must(cuCtxSetCurrent(own), "cuCtxSetCurrent");
        if (CALL(cuMemAlloc_v2, &address, any_size(me)) == 0)
            must(CALL(cuMemFree_v2, address), "cuMemFree in a green context");
        must(CALL(cuGreenCtxDestroy, context), "cuGreenCtxDestroy");
    } else {
        for (int i = 0; i < 4; i++)
            CALL(cuMemAlloc_v2, &address, any_size(me)); /* ends with the context */
        if (draw(me, 2)) {
            must(CALL(cuCtxAttach, &again, 0), "cuCtxAttach");
            must(CALL(cuCtxDetach, context), "cuCtxDetach");
            must(CALL(cuCtxDetach, context), "cuCtxDetach");
        } else {
            must(CALL(cuCtxDestroy_v2, context), "cuCtxDestroy");
        }
    }
    must(cuCtxSetCurrent(primary[me->device]), "cuCtxSetCurrent");
}

static void *work(void *argument) {
    struct worker *me = argument;
    must(cuCtxSetCurrent(primary[me->device]), "cuCtxSetCurrent");
    for (int round = 1; round <= rounds; round++) {
        u64 end = calls_a_round * (u64)round;
        while (__atomic_load_n(&calls, __ATOMIC_RELAXED) < end && !failed) {
            u64 what = draw(me, 2000);
            if (me->count && draw(me, 100) < 55)
                drop(me, (int)draw(me, (u64)me->count));
            else if (what == 0)
                run_context(me);
            else if (what < 40)
                run_pool(me);
            else if (what < 80)
                run_graph(me);
            else if (what < 150)
                take_virtual(me);
            else if (what < 400)
                take_array(me);
            else if (what < 1000)
                take_async(me);
            else
                take_plain(me);
        }
        while (round == rounds && me->count)
            drop(me, me->count - 1);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (argc != 5 || driver == NULL)
        return 2;
#define F(name, parameters)                                                                                  \
    if ((*(void **)&name = dlsym(driver, #name)) == NULL)                                                    \
        return fprintf(stderr, "no %s\n", #name), 2;
    FUNCTIONS(F)
#undef F
    int threads = atoi(argv[3]);
    rounds = atoi(argv[4]);
    calls_a_round = strtoull(argv[2], NULL, 10) / (u64)rounds;
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    must(cuInit(0), "cuInit");
    for (int device = 0; device < 2; device++) {
        must(cuDevicePrimaryCtxRetain(&primary[device], device), "cuDevicePrimaryCtxRetain");
        must(cuCtxSetCurrent(primary[device]), "cuCtxSetCurrent");
        must(cuStreamCreate(&streams[device], 1), "cuStreamCreate");
    }
    for (int i = 0; i < POOLS; i++) {
        struct pool_props props = {1, 0, {1, i % 2}, 0, 0, {0}};
        u64 kept = i < 2 ? ~0ull : (u64)i << 25;
        must(cuMemPoolCreate(&pools[i], &props), "cuMemPoolCreate");
        must(cuMemPoolSetAttribute(pools[i], 4, &kept), "cuMemPoolSetAttribute");
    }
    for (int i = 0; i < threads; i++) {
        workers[i].random = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ull + (u64)(i + 1) * 0xbf58476d1ce4e5b9ull;
        workers[i].device = i % 2;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int round = 0; round < rounds && !failed; round++) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < POOLS && round == rounds - 1; i++)
            must(cuMemPoolDestroy(pools[i]), "cuMemPoolDestroy");
        for (int device = 0; device < 2; device++) {
            must(cuCtxSetCurrent(primary[device]), "cuCtxSetCurrent");
            must(cuCtxSynchronize(), "cuCtxSynchronize");
            if (round == rounds - 1)
                must(cuDeviceGraphMemTrim(device), "cuDeviceGraphMemTrim");
        }
        printf("%llu calls\n", calls);
        fflush(stdout);
        if (getchar() == EOF)
            return 3;
        pthread_barrier_wait(&barrier);
    }
    if (failed)
        return 1;
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (int device = 0; device < 2; device++)
        must(cuDevicePrimaryCtxRelease_v2(device), "cuDevicePrimaryCtxRelease");
    puts("released");
    fflush(stdout);
    return getchar() == EOF || failed;
}
