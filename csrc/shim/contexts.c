/* Charges CUDA contexts: hundreds of MiB per process that no allocation call asks for. */
#include "contexts.h"

#include "hooks.h"
#include "pools.h"
#include "tables.h"

#define DEVICES 64

static signed char card_of_device[DEVICES]; /* card + 2; 0 while unknown */

/* Asks the driver which card a device is; what it answers, or an error where it cannot be asked. */
static CUresult ask_uuid(CUdevice device, CUuuid *uuid) {
    /* The second form tells MIG instances apart; old drivers have the first alone. */
    CUresult (*ask)(CUuuid *, CUdevice) =
        cot_driver.cuDeviceGetUuid_v2 ? cot_driver.cuDeviceGetUuid_v2 : cot_driver.cuDeviceGetUuid;
    if (ask != NULL)
        return ask(uuid, device);
    /* Drivers before CUDA 9.2 name no card, but know which devices there are. */
    CUdevice same;
    CUresult answer = cot_driver.cuDeviceGet != NULL ? cot_driver.cuDeviceGet(&same, device) : CUDA_SUCCESS;
    return answer != CUDA_SUCCESS ? answer : CUDA_ERROR_NOT_PERMITTED;
}

/* Whether every call for this device fails: then the driver says best what is wrong. */
static bool is_no_device(CUresult answer) {
    return answer == CUDA_ERROR_NOT_INITIALIZED || answer == CUDA_ERROR_DEINITIALIZED ||
           answer == CUDA_ERROR_NO_DEVICE || answer == CUDA_ERROR_INVALID_DEVICE;
}

struct here here_on(CUdevice device) {
    struct here here = {.place = PLACE_THROUGH, .device = device, .card = CARD_NONE};
    if (!slot_present())
        return here;
    CUuuid uuid;
    bool cached = device >= 0 && device < DEVICES;
    int known = cached ? __atomic_load_n(&card_of_device[device], __ATOMIC_RELAXED) : 0;
    CUresult answer = __builtin_expect(known != 0, 1) ? CUDA_SUCCESS : ask_uuid(device, &uuid);
    if (is_no_device(answer))
        return here;
    here.place = PLACE_REFUSED;
    here.refusal = CUDA_ERROR_NOT_PERMITTED;
    if (!slot_attached())
        return here;
    if (known != 0)
        here.card = known - 2;
    else if (answer == CUDA_SUCCESS)
        here.card = slot_card(uuid.bytes);
    else
        here.refusal = answer;
    if (cached && answer == CUDA_SUCCESS && known == 0)
        __atomic_store_n(&card_of_device[device], (signed char)(here.card + 2), __ATOMIC_RELAXED);
    if (here.card != CARD_NONE)
        here.place = PLACE_CARD;
    else if (slot_mode() != COT_ENFORCE)
        here.place = PLACE_THROUGH;
    return here;
}

enum location location_of(const CUmemLocation *location, CUdevice *device) {
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *device = location->id;
        return LOCATION_DEVICE;
    case CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN:
        *device = location->localized.device;
        return LOCATION_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return LOCATION_HOST;
    default:
        return LOCATION_UNKNOWN;
    }
}

struct here here_at(const CUmemLocation *location) {
    struct here here = {.place = PLACE_THROUGH, .card = CARD_NONE};
    CUdevice device;
    enum location kind = location_of(location, &device);
    if (kind == LOCATION_DEVICE)
        return here_on(device);
    if (kind == LOCATION_HOST || !slot_present() || (slot_map() && slot_mode() != COT_ENFORCE))
        return here;
    here.place = PLACE_REFUSED;
    here.refusal = CUDA_ERROR_NOT_PERMITTED;
    return here;
}

/* Without cuStreamGetDevice (before CUDA 12.8) the stream's context is made current for a moment. */
static bool device_of(CUstream stream, CUdevice *device) {
    CUcontext context;
    if (cot_driver.cuStreamGetDevice != NULL)
        return cot_driver.cuStreamGetDevice(stream, device) == CUDA_SUCCESS;
    if (cot_driver.cuStreamGetCtx == NULL || cot_driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
        cot_driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return false;
    bool found = cot_driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
    cot_driver.cuCtxPopCurrent_v2(&context);
    return found;
}

/* Handles up to this one name a default stream: that of the current context. */
#define LAST_DEFAULT_STREAM 2u

struct here here_of(CUstream stream) {
    CUdevice device;
    if ((uintptr_t)stream <= LAST_DEFAULT_STREAM || !slot_present() || !device_of(stream, &device))
        return here_now();
    return here_on(device);
}

static void remember(CUcontext context, const struct cost *cost) {
    struct record record = {
        .key = (uint64_t)(uintptr_t)context, .cost = *cost, .context = context, .size = 1};
    table_put(&contexts, &record);
    slot_kept(cost->card);
    __atomic_fetch_add(&cot_self->entry->context[cost->card], cost->bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&cot_self->last_context, context, __ATOMIC_RELEASE);
}

static struct cost context_cost(int card) {
    return (struct cost){.card = card, .bytes = cot_limits->card[card].context_bytes};
}

bool driver_asleep(void) {
    CUcontext context;
    CUresult answer =
        cot_driver.cuCtxGetCurrent != NULL ? cot_driver.cuCtxGetCurrent(&context) : CUDA_SUCCESS;
    return answer == CUDA_ERROR_NOT_INITIALIZED || answer == CUDA_ERROR_DEINITIALIZED;
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
    } else if (known.link != NULL) {
        here.context = known.link; /* a green context: what is allocated in it belongs to the primary one */
        return here;
    }
    __atomic_store_n(&cot_self->last_context, context, __ATOMIC_RELEASE);
    return here;
}

static bool made_in(const struct record *record, const void *context) {
    return record->context == context;
}

static void uncharge(const struct record *record) {
    cost_uncharge(&record->cost);
}

/* The driver has freed a context and all that was allocated in it. */
static void forget(CUcontext context) {
    struct record gone;
    __atomic_store_n(&cot_self->last_context, NULL, __ATOMIC_RELEASE);
    table_sweep(&allocations, made_in, context, uncharge);
    table_sweep(&arrays, made_in, context, uncharge);
    if (table_take(&contexts, (uint64_t)(uintptr_t)context, &gone)) {
        __atomic_fetch_sub(&cot_self->entry->context[gone.cost.card], gone.cost.bytes, __ATOMIC_RELAXED);
        cost_uncharge(&gone.cost);
    }
    pools_after_context();
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
        pthread_mutex_lock(&cot_self->contexts);                                                             \
        result = call;                                                                                       \
        if (result == CUDA_SUCCESS)                                                                          \
            remember(*(context), &cost);                                                                     \
        else                                                                                                 \
            cost_uncharge(&cost);                                                                            \
        pthread_mutex_unlock(&cot_self->contexts);                                                           \
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

static CUresult destroy(CUcontext context, CUresult (*real)(CUcontext)) {
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return real(context);
    pthread_mutex_lock(&cot_self->contexts);
    CUresult result = real(context);
    if (result == CUDA_SUCCESS)
        forget(context);
    pthread_mutex_unlock(&cot_self->contexts);
    return result;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
    ENTER(cuCtxDestroy);
    return destroy(context, REAL(cuCtxDestroy));
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER(cuCtxDestroy_v2);
    return destroy(context, REAL(cuCtxDestroy_v2));
}

/* Contexts that are shared within a process by counting, which CUDA no longer documents, end with the last
 * detach. The count is that of the record; cuCtxDestroy ignores it. */
EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    ENTER(cuCtxAttach);
    struct record counted;
    CUresult result = REAL(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS && slot_present() && cot_self->attachment == ATTACHED)
        table_count(&contexts, (uint64_t)(uintptr_t)*context, 1, &counted);
    return result;
}

EXPORT CUresult cuCtxDetach(CUcontext context) {
    ENTER(cuCtxDetach);
    struct record known;
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return REAL(cuCtxDetach)(context);
    pthread_mutex_lock(&cot_self->contexts);
    CUresult result = REAL(cuCtxDetach)(context);
    bool shared = table_get(&contexts, (uint64_t)(uintptr_t)context, &known) && known.size > 1;
    if (result == CUDA_SUCCESS && shared)
        table_count(&contexts, (uint64_t)(uintptr_t)context, -1, &known);
    else if (result == CUDA_SUCCESS)
        forget(context);
    pthread_mutex_unlock(&cot_self->contexts);
    return result;
}

static bool primary_active(CUdevice device) {
    unsigned flags;
    int active = 0;
    return cot_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* Which context is a device's primary one is known only to the driver while it is active, so it is asked by
 * one more retain. */
static CUcontext primary_of(CUdevice device) {
    CUcontext context = NULL;
    if (primary_active(device) && REAL(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS)
        REAL(cuDevicePrimaryCtxRelease_v2)(device);
    return context;
}

/* The primary context is counted by the driver; it costs once, from the first that holds it to the last: what
 * programs retain, and green contexts. `call` may begin it. */
#define BEGIN_PRIMARY(device, here, result, call)                                                            \
    do {                                                                                                     \
        struct record known_;                                                                                \
        struct cost cost_ = context_cost((here).card);                                                       \
        bool charged_ = !primary_active(device);                                                             \
        result = charged_ ? slot_charge((here).card, cost_.bytes) : CUDA_SUCCESS;                            \
        if (result != CUDA_SUCCESS)                                                                          \
            break;                                                                                           \
        result = call;                                                                                       \
        CUcontext primary_ = charged_ && result == CUDA_SUCCESS ? primary_of(device) : NULL;                 \
        if (primary_ != NULL && !table_get(&contexts, (uint64_t)(uintptr_t)primary_, &known_))               \
            remember(primary_, &cost_);                                                                      \
        else if (charged_)                                                                                   \
            cost_uncharge(&cost_);                                                                           \
    } while (0)

/* `call` may end the primary context. */
#define END_PRIMARY(device, result, call)                                                                    \
    do {                                                                                                     \
        CUcontext primary_ = primary_of(device);                                                             \
        result = call;                                                                                       \
        if (result == CUDA_SUCCESS && primary_ != NULL && !primary_active(device))                           \
            forget(primary_);                                                                                \
    } while (0)

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    struct here here = here_on(device);
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH)
        return REAL(cuDevicePrimaryCtxRetain)(context, device);
    CUresult result;
    pthread_mutex_lock(&cot_self->contexts);
    BEGIN_PRIMARY(device, here, result, REAL(cuDevicePrimaryCtxRetain)(context, device));
    pthread_mutex_unlock(&cot_self->contexts);
    return result;
}

static CUresult end_primary(CUdevice device, CUresult (*end)(CUdevice)) {
    CUresult result;
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return end(device);
    pthread_mutex_lock(&cot_self->contexts);
    END_PRIMARY(device, result, end(device));
    pthread_mutex_unlock(&cot_self->contexts);
    return result;
}

/* A green context is a share of a device's multiprocessors. It retains the primary context, and its memory is
 * the primary context's. Records of `greens`: link is that context, `context` the green one's own CUcontext
 * once it was asked for, size the device. */
EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, void *resources, CUdevice device, unsigned flags) {
    ENTER(cuGreenCtxCreate);
    struct here here = here_on(device);
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    if (here.place == PLACE_THROUGH)
        return REAL(cuGreenCtxCreate)(green, resources, device, flags);
    CUresult result;
    pthread_mutex_lock(&cot_self->contexts);
    BEGIN_PRIMARY(device, here, result, REAL(cuGreenCtxCreate)(green, resources, device, flags));
    if (result == CUDA_SUCCESS) {
        struct record record = {.key = (uint64_t)(uintptr_t)*green, .cost.card = here.card};
        record.link = primary_of(device);
        record.size = (uint64_t)device;
        table_put(&greens, &record);
    }
    pthread_mutex_unlock(&cot_self->contexts);
    return result;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle) {
    ENTER(cuCtxFromGreenCtx);
    struct record green;
    CUresult result = REAL(cuCtxFromGreenCtx)(context, handle);
    if (result != CUDA_SUCCESS || !slot_present() || cot_self->attachment != ATTACHED ||
        !table_get(&greens, (uint64_t)(uintptr_t)handle, &green) || *context == green.link)
        return result;
    struct record own = {.key = (uint64_t)(uintptr_t)*context,
                         .cost.card = green.cost.card,
                         .context = *context,
                         .link = green.link,
                         .size = 1};
    table_put(&contexts, &own);
    green.context = *context;
    table_put(&greens, &green);
    return result;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
    ENTER(cuGreenCtxDestroy);
    struct record green, own;
    if (!slot_present() || cot_self->attachment != ATTACHED ||
        !table_take(&greens, (uint64_t)(uintptr_t)handle, &green))
        return REAL(cuGreenCtxDestroy)(handle);
    CUresult result;
    CUdevice device = (CUdevice)green.size;
    pthread_mutex_lock(&cot_self->contexts);
    END_PRIMARY(device, result, REAL(cuGreenCtxDestroy)(handle));
    if (result != CUDA_SUCCESS)
        table_put(&greens, &green);
    else if (green.context != NULL)
        table_take(&contexts, (uint64_t)(uintptr_t)green.context, &own);
    pthread_mutex_unlock(&cot_self->contexts);
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
