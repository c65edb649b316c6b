/* Implements XID events: a GPU counts those that were posted, an event set records how far it has read. */
#define _GNU_SOURCE
#include "nvml_abi.h"

#include <stdlib.h>
#include <time.h>

#define XID_CRITICAL 0x8ull
#define POLL_NS 100000000 /* whoever writes the file cannot wake a waiter */

struct event_set {
    struct {
        bool wanted;
        uint64_t seen;
    } card[STANDIN_CARDS];
};

API nvmlEventSetCreate(struct event_set **set) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(set);
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

API nvmlEventSetFree(struct event_set *set) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    free(set);
    return NVML_SUCCESS;
}

API nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    DEVICE(device);
    NEED(types);
    *types = XID_CRITICAL;
    return NVML_SUCCESS;
}

/* With a card come its instances. */
API nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, struct event_set *set) {
    DEVICE(device);
    NEED(set);
    if (device->parent || (types & ~XID_CRITICAL))
        return NVML_ERROR_NOT_SUPPORTED;
    struct standin_state *state = nvml_state();
    for (uint32_t i = 0; i < state->cards; i++)
        if (&state->card[i] == device || state->card[i].parent == (uint64_t)nvml_index(device) + 1) {
            set->card[i].wanted = types != 0;
            set->card[i].seen = state->card[i].xid_count;
        }
    return NVML_SUCCESS;
}

static bool next_event(struct standin_state *state, struct event_set *set, struct nvml_event *event) {
    for (uint32_t i = 0; i < state->cards; i++) {
        struct standin_card *card = &state->card[i];
        uint64_t count = __atomic_load_n(&card->xid_count, __ATOMIC_ACQUIRE);
        if (!set->card[i].wanted || set->card[i].seen >= count)
            continue;
        if (count - set->card[i].seen > STANDIN_XIDS)
            set->card[i].seen = count - STANDIN_XIDS;
        uint64_t code = card->xid[set->card[i].seen++ % STANDIN_XIDS].code;
        *event = (struct nvml_event){card->parent ? &state->card[card->parent - 1] : card, XID_CRITICAL, code,
                                     card->parent ? (unsigned)card->instance : NVML_NO_INSTANCE,
                                     card->parent ? 0 : NVML_NO_INSTANCE};
        return true;
    }
    return false;
}

API nvmlEventSetWait_v2(struct event_set *set, struct nvml_event *event, unsigned int milliseconds) {
    struct standin_state *state = nvml_state();
    if (!state)
        return NVML_ERROR_UNINITIALIZED;
    NEED(set && event);
    uint64_t until = standin_now() + milliseconds * 1000000ull;
    while (!next_event(state, set, event)) {
        if (standin_now() >= until)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
    return NVML_SUCCESS;
}

API nvmlEventSetWait(struct event_set *set, struct nvml_event_v1 *event, unsigned int milliseconds) {
    struct nvml_event full;
    NEED(event);
    nvmlReturn_t result = nvmlEventSetWait_v2(set, &full, milliseconds);
    if (result == NVML_SUCCESS)
        *event = (struct nvml_event_v1){full.device, full.type, full.data};
    return result;
}
