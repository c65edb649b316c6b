/* Implements cuInit, and the driver's state of a process. */
#define _GNU_SOURCE
#include "driver.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* On a page of its own, zero in a fork's child, even of a raw clone. */
struct anchor {
    struct driver *driver;
};
static struct anchor *anchor;
static int starter; /* pid of the process that is in start(): one left by a fork's parent is nobody's */

/* Contexts that are current in this thread; worth nothing if they were made before a fork. */
struct thread {
    struct driver *driver;
    int depth;
    CUcontext stack[STACK_DEPTH];
};
static __thread struct thread thread;

struct driver *driver_get(void) {
    struct anchor *page = __atomic_load_n(&anchor, __ATOMIC_ACQUIRE);
    return page ? __atomic_load_n(&page->driver, __ATOMIC_ACQUIRE) : NULL;
}

static struct thread *this_thread(struct driver *driver) {
    if (thread.driver != driver) {
        thread.driver = driver;
        thread.depth = 0;
    }
    return &thread;
}

static CUresult start(void) {
    if (driver_get())
        return CUDA_SUCCESS;
    if (!anchor) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK))
            return CUDA_ERROR_OUT_OF_MEMORY;
        __atomic_store_n(&anchor, page, __ATOMIC_RELEASE);
    }
    struct standin_state *state = standin_map();
    int cards[STANDIN_CARDS];
    int count = state ? visible_cards(state, cards) : 0;
    if (!count)
        return CUDA_ERROR_NO_DEVICE;
    struct driver *driver = calloc(1, sizeof *driver);
    if (!driver)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver->state = state;
    driver->entry = standin_attach(state);
    if (driver->entry < 0) {
        free(driver);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&driver->lock, NULL);
    driver->devices = count;
    for (int i = 0; i < count; i++) {
        struct device *device = &driver->device[i];
        device->index = i;
        device->card = cards[i];
        device->shared = &state->card[cards[i]];
        device->use = &state->process[driver->entry].use[cards[i]];
    }
    __atomic_store_n(&anchor->driver, driver, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

CUresult driver_start(void) {
    if (driver_get())
        return CUDA_SUCCESS;
    int me = getpid();
    for (int holder = 0;
         !__atomic_compare_exchange_n(&starter, &holder, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);)
        if (holder == me) {
            sched_yield();
            holder = 0;
        }
    CUresult result = start();
    __atomic_store_n(&starter, 0, __ATOMIC_RELEASE);
    return result;
}

API cuInit(unsigned int flags) {
    NEED(flags == 0);
    return driver_start();
}

API cuDriverGetVersion(int *version) {
    NEED(version);
    struct standin_state *state = standin_map();
    *version = state ? (int)state->cuda_version : 0;
    return CUDA_SUCCESS;
}

CUresult device_get(CUdevice index, struct device **device) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (index < 0 || index >= driver->devices)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = &driver->device[index];
    return CUDA_SUCCESS;
}

CUresult location_device(const CUmemLocation *location, struct device **device) {
    enum { DEVICE = 1, HOST = 2, HOST_NUMA = 3, LOCALITY_DOMAIN = 6 };
    int type = (int)location->type;
    const char *later = getenv("COTENANT_STANDIN_LOCATION"); /* plays a kind that a later CUDA adds */
    *device = NULL;
    if (type == DEVICE || (later && type == atoi(later)))
        return device_get(location->id, device);
    if (type == LOCALITY_DOMAIN) /* every card has one domain */
        return location->localized.localityDomainId ? CUDA_ERROR_INVALID_VALUE
                                                    : device_get(location->localized.deviceId, device);
    NEED(type == HOST || (type == HOST_NUMA && location->id == 0));
    return CUDA_SUCCESS;
}

CUresult current_context(CUcontext *context) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *me = this_thread(driver);
    if (!me->depth || !me->stack[me->depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = me->stack[me->depth - 1];
    if ((*context)->dead || ((*context)->green_of && (*context)->green_of->dead))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (__atomic_load_n(&(*context)->device->shared->lost, __ATOMIC_RELAXED))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    return CUDA_SUCCESS;
}

API cuCtxPushCurrent_v2(CUcontext context) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *me = this_thread(driver);
    if (!context || context->dead)
        return CUDA_ERROR_INVALID_CONTEXT;
    NEED(me->depth < STACK_DEPTH);
    me->stack[me->depth++] = context;
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext *context) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *me = this_thread(driver);
    if (!me->depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    me->depth--;
    if (context)
        *context = me->stack[me->depth];
    return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext context) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    struct thread *me = this_thread(driver);
    if (context && context->dead)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (!context) {
        me->depth -= me->depth > 0;
        return CUDA_SUCCESS;
    }
    if (!me->depth)
        me->depth = 1;
    me->stack[me->depth - 1] = context;
    return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext *context) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(context);
    struct thread *me = this_thread(driver);
    *context = me->depth ? me->stack[me->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

void *list_add(struct list *list, size_t item) {
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 16;
        void *items = realloc(list->items, room * item);
        if (!items)
            return NULL;
        list->items = items;
        list->room = room;
    }
    void *place = (char *)list->items + list->count++ * item;
    memset(place, 0, item);
    return place;
}

void list_remove(struct list *list, size_t item, size_t index) {
    char *place = (char *)list->items + index * item;
    memmove(place, place + item, (list->count - index - 1) * item);
    list->count--;
}
