/* Shows through NVML the GPUs of the grant alone, in the order in which CUDA numbers them, and in mode
 * `enforce` as large as the grant. Readers (nvidia-smi, gpustat) use no card: they take no entry in `usage`.
 *
 * MIG instances are listed by NVML under their card, so the cards of granted instances are shown too. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "hooks.h"
#include "slot.h"

#define UUID_BYTES 96
#define MOST_DEVICES 64

static int card_of(nvmlDevice_t device) {
    char text[UUID_BYTES] = "";
    unsigned char uuid[16];
    if (!slot_map() || cot_driver.nvmlDeviceGetUUID == NULL ||
        cot_driver.nvmlDeviceGetUUID(device, text, sizeof text) != NVML_SUCCESS)
        return CARD_NONE;
    return slot_parse_uuid(text, uuid) ? slot_card(uuid) : CARD_NONE;
}

static bool is_instance(nvmlDevice_t device) {
    unsigned is = 0;
    return cot_driver.nvmlDeviceIsMigDeviceHandle != NULL &&
           cot_driver.nvmlDeviceIsMigDeviceHandle(device, &is) == NVML_SUCCESS && is;
}

static nvmlReturn_t physical(nvmlDevice_t *device) {
    if (!is_instance(*device))
        return NVML_SUCCESS;
    if (cot_driver.nvmlDeviceGetDeviceHandleFromMigDeviceHandle == NULL)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    return cot_driver.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(*device, device);
}

struct shown {
    unsigned count;
    struct {
        nvmlDevice_t device; /* NULL if it cannot be had, for `problem` */
        nvmlReturn_t problem;
        size_t rank;
    } card[COT_CARDS];
};

static int place_of(const struct shown *shown, nvmlDevice_t device) {
    for (unsigned i = 0; i < shown->count; i++)
        if (shown->card[i].device == device)
            return (int)i;
    return -1;
}

/* CUDA numbers as CUDA_VISIBLE_DEVICES lists, and without that as the bus does, which NVML follows too. */
static size_t rank_of(const char *uuid, nvmlDevice_t device) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *listed = list != NULL ? strstr(list, uuid) : NULL;
    unsigned index = COT_CARDS;
    if (listed != NULL)
        return (size_t)(listed - list);
    if (device != NULL && cot_real[H_nvmlDeviceGetIndex] != NULL)
        ((nvmlReturn_t (*)(nvmlDevice_t, unsigned *))cot_real[H_nvmlDeviceGetIndex])(device, &index);
    return (size_t)INT_MAX + index;
}

typedef nvmlReturn_t (*by_key_fn)(const char *, nvmlDevice_t *);

/* Lists the cards of the grant; an error is NVML's own, as before nvmlInit. A slot that cannot be used has
 * none. */
static nvmlReturn_t list_shown(struct shown *shown) {
    unsigned all;
    by_key_fn by_uuid = (by_key_fn)cot_real[H_nvmlDeviceGetHandleByUUID];
    nvmlReturn_t (*count)(unsigned *) = (nvmlReturn_t (*)(unsigned *))cot_real[H_nvmlDeviceGetCount_v2];
    shown->count = 0;
    if (by_uuid == NULL || count == NULL)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    nvmlReturn_t result = count(&all);
    if (result != NVML_SUCCESS || !slot_map())
        return result;
    for (uint32_t i = 0; i < cot_limits->cards && i < COT_CARDS; i++) {
        nvmlDevice_t device = NULL;
        const char *uuid = cot_limits->card[i].uuid;
        nvmlReturn_t problem = by_uuid(uuid, &device);
        if (problem == NVML_ERROR_NOT_FOUND || problem == NVML_ERROR_INVALID_ARGUMENT)
            continue;
        if (problem == NVML_SUCCESS)
            problem = physical(&device);
        if (problem != NVML_SUCCESS)
            device = NULL;
        else if (place_of(shown, device) >= 0)
            continue;
        size_t rank = rank_of(uuid, device);
        unsigned at = shown->count++;
        for (; at > 0 && shown->card[at - 1].rank > rank; at--)
            shown->card[at] = shown->card[at - 1];
        shown->card[at].device = device;
        shown->card[at].problem = problem;
        shown->card[at].rank = rank;
    }
    return NVML_SUCCESS;
}

static bool is_shown(nvmlDevice_t device) {
    struct shown shown;
    return card_of(device) != CARD_NONE ||
           (list_shown(&shown) == NVML_SUCCESS && place_of(&shown, device) >= 0);
}

static nvmlReturn_t count_shown(unsigned *count) {
    struct shown shown;
    nvmlReturn_t result = list_shown(&shown);
    if (result == NVML_SUCCESS && count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *count = shown.count;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) {
    NVML_ENTER(nvmlDeviceGetCount, (count));
    return count_shown(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    NVML_ENTER(nvmlDeviceGetCount_v2, (count));
    return count_shown(count);
}

static nvmlReturn_t by_index(unsigned index, nvmlDevice_t *device) {
    struct shown shown;
    nvmlReturn_t result = list_shown(&shown);
    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || index >= shown.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (shown.card[index].problem == NVML_SUCCESS)
        *device = shown.card[index].device;
    return shown.card[index].problem;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    NVML_ENTER(nvmlDeviceGetHandleByIndex, (index, device));
    return by_index(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    NVML_ENTER(nvmlDeviceGetHandleByIndex_v2, (index, device));
    return by_index(index, device);
}

/* Every other way to a handle: what is found must be shown. */
#define BY_KEY(name)                                                                                         \
    EXPORT nvmlReturn_t name(const void *key, nvmlDevice_t *device) {                                        \
        NVML_ENTER(name, (key, device));                                                                     \
        nvmlDevice_t found = NULL;                                                                           \
        nvmlReturn_t result = REAL(name)(key, device != NULL ? &found : NULL);                               \
        if (result == NVML_SUCCESS && !is_shown(found))                                                      \
            return NVML_ERROR_NOT_FOUND;                                                                     \
        if (result == NVML_SUCCESS)                                                                          \
            *device = found;                                                                                 \
        return result;                                                                                       \
    }

BY_KEY(nvmlDeviceGetHandleByUUID)
BY_KEY(nvmlDeviceGetHandleByUUIDV)
BY_KEY(nvmlDeviceGetHandleBySerial)
BY_KEY(nvmlDeviceGetHandleByPciBusId)
BY_KEY(nvmlDeviceGetHandleByPciBusId_v2)

/* Of a card that is granted as a whole every instance is shown. */
static nvmlReturn_t instance_by_index(nvmlDevice_t card, unsigned index, nvmlDevice_t *instance) {
    nvmlReturn_t (*real)(nvmlDevice_t, unsigned, nvmlDevice_t *) = (nvmlReturn_t (*)(
        nvmlDevice_t, unsigned, nvmlDevice_t *))cot_real[H_nvmlDeviceGetMigDeviceHandleByIndex];
    unsigned most = 0;
    if (instance == NULL || card_of(card) != CARD_NONE || cot_driver.nvmlDeviceGetMaxMigDeviceCount == NULL ||
        cot_driver.nvmlDeviceGetMaxMigDeviceCount(card, &most) != NVML_SUCCESS || most == 0)
        return real(card, index, instance);
    for (unsigned i = 0; i < most; i++) {
        nvmlDevice_t found;
        nvmlReturn_t result = real(card, i, &found);
        if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_FOUND)
            return result;
        if (result == NVML_SUCCESS && card_of(found) != CARD_NONE && index-- == 0) {
            *instance = found;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t card, unsigned index,
                                                        nvmlDevice_t *instance) {
    NVML_ENTER(nvmlDeviceGetMigDeviceHandleByIndex, (card, index, instance));
    return instance_by_index(card, index, instance);
}

/* The number by which its handle can be had: among the shown cards, or among its card's shown instances. */
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    NVML_ENTER(nvmlDeviceGetIndex, (device, index));
    struct shown shown;
    nvmlDevice_t card = device, other;
    nvmlReturn_t result = REAL(nvmlDeviceGetIndex)(device, index);
    if (result != NVML_SUCCESS)
        return result;
    if (is_instance(device) && cot_real[H_nvmlDeviceGetMigDeviceHandleByIndex] != NULL &&
        physical(&card) == NVML_SUCCESS) {
        for (unsigned i = 0; i < MOST_DEVICES; i++)
            if (instance_by_index(card, i, &other) == NVML_SUCCESS && other == device)
                *index = i;
        return NVML_SUCCESS;
    }
    int place = list_shown(&shown) == NVML_SUCCESS ? place_of(&shown, device) : -1;
    if (place >= 0)
        *index = (unsigned)place;
    return NVML_SUCCESS;
}

/* Keeps the shown ones of a list of handles. A count of 0 asks for their number. */
static nvmlReturn_t keep_shown(nvmlReturn_t result, unsigned found, nvmlDevice_t *all, unsigned *count,
                               nvmlDevice_t *devices) {
    unsigned room = *count, kept = 0;
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < found && i < MOST_DEVICES; i++)
        if (is_shown(all[i])) {
            if (devices != NULL && kept < room)
                devices[kept] = all[i];
            kept++;
        }
    *count = devices != NULL && room > 0 && kept > room ? room : kept;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned *count,
                                                     nvmlDevice_t *devices) {
    NVML_ENTER(nvmlDeviceGetTopologyNearestGpus, (device, level, count, devices));
    unsigned found = MOST_DEVICES;
    nvmlDevice_t all[MOST_DEVICES];
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = REAL(nvmlDeviceGetTopologyNearestGpus)(device, level, &found, all);
    return keep_shown(result, found, all, count, devices);
}

EXPORT nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, nvmlDevice_t *devices) {
    NVML_ENTER(nvmlSystemGetTopologyGpuSet, (cpu, count, devices));
    unsigned found = MOST_DEVICES;
    nvmlDevice_t all[MOST_DEVICES];
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = REAL(nvmlSystemGetTopologyGpuSet)(cpu, &found, all);
    return keep_shown(result, found, all, count, devices);
}

static unsigned long long smaller(unsigned long long a, unsigned long long b) {
    return a < b ? a : b;
}

static void shrink(int card, unsigned long long *total, unsigned long long *available,
                   unsigned long long *used) {
    slot_reap(false);
    *total = smaller(*total, slot_limit(card));
    *used = smaller(*total, slot_used(card));
    *available = smaller(*available, *total - *used);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NVML_ENTER(nvmlDeviceGetMemoryInfo, (device, memory));
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    int card = result == NVML_SUCCESS ? card_of(device) : CARD_NONE;
    if (card != CARD_NONE && slot_mode() == COT_ENFORCE)
        shrink(card, &memory->total, &memory->free, &memory->used);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NVML_ENTER(nvmlDeviceGetMemoryInfo_v2, (device, memory));
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    int card = result == NVML_SUCCESS ? card_of(device) : CARD_NONE;
    if (card != CARD_NONE && slot_mode() == COT_ENFORCE) {
        memory->reserved = 0; /* the grant has none of its own */
        shrink(card, &memory->total, &memory->free, &memory->used);
    }
    return result;
}
