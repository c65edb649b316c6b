/* Charges CUDA contexts: hundreds of MiB per process that no allocation call asks for. */
#include "contexts.h"

#include "hooks.h"
#include "pools.h"
#include "tables.h"

#define DEVICES 64

static signed char card_of_device[DEVICES]; /* card + 2; 0 while unknown */

static int device_card(CUdevice device) {
    if (device < 0 || device >= DEVICES)
        return CARD_NONE;
    int known = __atomic_load_n(&card_of_device[device], __ATOMIC_RELAXED);
    if (__builtin_expect(known != 0, 1))
        return known - 2;
    CUuuid uuid;
    /* The second form tells MIG instances apart; old drivers have the first alone. */
    CUresult (*ask)(CUuuid *, CUdevice) =
        cot_driver.cuDeviceGetUuid_v2 ? cot_driver.cuDeviceGetUuid_v2 : cot_driver.cuDeviceGetUuid;
    if (ask == NULL || ask(&uuid, device) != CUDA_SUCCESS)
        return CARD_NONE;
    int card = slot_card(uuid.bytes);
    __atomic_store_n(&card_of_device[device], (signed char)(card + 2), __ATOMIC_RELAXED);
    return card;
}

struct here here_on(CUdevice device) {
    struct here here = {.place = PLACE_THROUGH, .device = device, .card = CARD_NONE};
    if (!slot_present())
        return here;
    here.place = PLACE_REFUSED;
    here.refusal = CUDA_ERROR_NOT_PERMITTED;
    if (!slot_attached())
        return here;
    here.card = device_card(device);
    if (here.card != CARD_NONE)
        here.place = PLACE_CARD;
    else if (slot_mode() != COT_ENFORCE)
        here.place = PLACE_THROUGH;
    return here;
}

static void remember(CUcontext context, const struct cost *cost) {
    struct record record = {.key = (uint64_t)(uintptr_t)context, .cost = *cost, .context = context};
    table_put(&contexts, &record);
    __atomic_fetch_add(&cot_self->entry->context[cost->card], cost->bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&cot_self->last_context, context, __ATOMIC_RELEASE);
}

static struct cost context_cost(int card) {
    return (struct cost){.card = card, .bytes = cot_limits->card[card].context_bytes};
}

struct here here_now(void) {
    CUcontext context = NULL;
    CUdevice device;
    struct here through = {.place = PLACE_THROUGH, .card = CARD_NONE};
    if (!slot_present())
        return through;
    if (cot_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL ||
        cot_driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return through; /* the driver says best what is wrong */
    struct here here = here_on(device);
    here.context = context;
    if (here.place != PLACE_CARD || context == __atomic_load_n(&cot_self->last_context, __ATOMIC_ACQUIRE))
        return here;
    struct record known;
    if (!table_get(&contexts, (uint64_t)(uintptr_t)context, &known)) {
        /* Made on a way that is not hooked: it is charged at its first use. */
        struct cost cost = context_cost(here.card);
        here.refusal = slot_charge(here.card, cost.bytes);
        if (here.refusal != CUDA_SUCCESS) {
            here.place = PLACE_REFUSED;
            return here;
        }
        remember(context, &cost);
    }
    __atomic_store_n(&cot_self->last_context, context, __ATOMIC_RELEASE);
    return here;
}

/* The driver has freed a context and all that was allocated in it. */
static void forget(CUcontext context) {
    struct record gone;
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return;
    __atomic_store_n(&cot_self->last_context, NULL, __ATOMIC_RELEASE);
    for (uint64_t at = 0; table_take_of(&allocations, context, &at, &gone);)
        cost_uncharge(&gone.cost);
    for (uint64_t at = 0; table_take_of(&arrays, context, &at, &gone);)
        cost_uncharge(&gone.cost);
    if (table_take(&contexts, (uint64_t)(uintptr_t)context, &gone)) {
        __atomic_fetch_sub(&cot_self->entry->context[gone.cost.card], gone.cost.bytes, __ATOMIC_RELAXED);
        cost_uncharge(&gone.cost);
    }
    pools_refresh();
}

/* Every form of cuCtxCreate differs only in what it passes on. */
#define CREATE(device, context, call)                                                                        \
    do {                                                                                                     \
        struct here here = here_on(device);                                                                  \
        if (here.place == PLACE_REFUSED)                                                                     \
            return here.refusal;                                                                             \
        if (here.place == PLACE_THROUGH)                                                                     \
            return call;                                                                                     \
        struct cost cost = context_cost(here.card);                                                          \
        CUresult result = slot_charge(here.card, cost.bytes);                                                \
        if (result != CUDA_SUCCESS)                                                                          \
            return result;                                                                                   \
        result = call;                                                                                       \
        if (result == CUDA_SUCCESS)                                                                          \
            remember(*(context), &cost);                                                                     \
        else                                                                                                 \
            cost_uncharge(&cost);                                                                            \
        return result;                                                                                       \
    } while (0)

EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER(cuCtxCreate);
    CREATE(device, context, REAL(cuCtxCreate)(context, flags, device));
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    ENTER(cuCtxCreate_v2);
    CREATE(device, context, REAL(cuCtxCreate_v2)(context, flags, device));
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags,
                               CUdevice device) {
    ENTER(cuCtxCreate_v3);
    CREATE(device, context, REAL(cuCtxCreate_v3)(context, affinity, count, flags, device));
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    ENTER(cuCtxCreate_v4);
    CREATE(device, context, REAL(cuCtxCreate_v4)(context, parameters, flags, device));
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
    ENTER(cuCtxDestroy);
    CUresult result = REAL(cuCtxDestroy)(context);
    if (result == CUDA_SUCCESS)
        forget(context);
    return result;
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER(cuCtxDestroy_v2);
    CUresult result = REAL(cuCtxDestroy_v2)(context);
    if (result == CUDA_SUCCESS)
        forget(context);
    return result;
}

static bool primary_active(CUdevice device) {
    unsigned flags;
    int active = 0;
    return cot_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* The primary context is counted by the driver; it costs once, from the first retain to the last release. */
static CUresult retain(CUcontext *context, CUdevice device, struct here here) {
    struct record known;
    struct cost cost = context_cost(here.card);
    bool charged = !primary_active(device);
    CUresult result = charged ? slot_charge(here.card, cost.bytes) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result == CUDA_SUCCESS && charged && !table_get(&contexts, (uint64_t)(uintptr_t)*context, &known))
        remember(*context, &cost);
    else if (charged)
        cost_uncharge(&cost);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    struct here here = here_on(device);
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH)
        return REAL(cuDevicePrimaryCtxRetain)(context, device);
    pthread_mutex_lock(&cot_self->primary);
    CUresult result = retain(context, device, here);
    pthread_mutex_unlock(&cot_self->primary);
    return result;
}

/* Which context was this device's primary one is known only to the driver while it is active, so it is asked
 * by one more retain before it may end. */
static CUresult end_primary(CUdevice device, CUresult (*end)(CUdevice)) {
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return end(device);
    CUcontext context = NULL;
    pthread_mutex_lock(&cot_self->primary);
    if (primary_active(device) && REAL(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS)
        REAL(cuDevicePrimaryCtxRelease_v2)(device);
    CUresult result = end(device);
    if (result == CUDA_SUCCESS && context != NULL && !primary_active(device))
        forget(context);
    pthread_mutex_unlock(&cot_self->primary);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease);
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease));
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease_v2);
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease_v2));
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    ENTER(cuDevicePrimaryCtxReset);
    return end_primary(device, REAL(cuDevicePrimaryCtxReset));
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER(cuDevicePrimaryCtxReset_v2);
    return end_primary(device, REAL(cuDevicePrimaryCtxReset_v2));
}
