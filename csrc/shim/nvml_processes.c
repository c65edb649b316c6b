/* Shows through NVML the processes of the grant alone: those that have an entry in `usage`. */
#include <stdlib.h>
#include <string.h>

#include "hooks.h"
#include "slot.h"

#define SPARE 8 /* for processes that come between two questions */
#define ATTEMPTS 8

/* A question to NVML whose answer is a list with a pid in each item. */
struct question {
    nvmlReturn_t (*ask)(const struct question *, unsigned *count, void *items);
    void *real;
    nvmlDevice_t device;
    size_t size, pid_at;
    nvmlReturn_t without_items; /* what is answered where the list is empty */
    bool counts;                /* without a place for the items it succeeds and counts them */
    unsigned version, mode;
    unsigned long long since;
};

static bool is_ours(const char *item, const struct question *question) {
    unsigned pid;
    memcpy(&pid, item + question->pid_at, sizeof pid);
    return slot_has_process(pid);
}

/* NVML is asked for all of them, into memory of our own: what does not fit the caller's may still fit without
 * the others'. */
static nvmlReturn_t fetch(const struct question *question, unsigned *found, char **items) {
    *found = 0;
    *items = NULL;
    nvmlReturn_t result = question->ask(question, found, NULL);
    for (int i = 0; i < ATTEMPTS; i++) {
        bool more = result == NVML_SUCCESS && *found > 0 && *items == NULL;
        if (result != NVML_ERROR_INSUFFICIENT_SIZE && !more)
            break;
        unsigned room = *found + SPARE;
        char *larger = realloc(*items, room * question->size);
        if (larger == NULL)
            return NVML_ERROR_MEMORY;
        *items = larger;
        *found = room;
        result = question->ask(question, found, *items);
    }
    return result;
}

static nvmlReturn_t only_ours(const struct question *question, unsigned *count, void *out) {
    unsigned found, kept = 0, room = *count;
    char *items;
    size_t size = question->size;
    nvmlReturn_t result = fetch(question, &found, &items);
    for (unsigned i = 0; result == NVML_SUCCESS && slot_map() && i < found; i++)
        if (is_ours(items + i * size, question))
            memmove(items + kept++ * size, items + i * size, size);
    if (result == NVML_SUCCESS) {
        *count = kept;
        if (kept == 0)
            result = question->without_items;
        else if (out == NULL)
            result = question->counts ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
        else if (kept > room)
            result = NVML_ERROR_INSUFFICIENT_SIZE;
        else
            memcpy(out, items, kept * size);
    }
    free(items);
    return result;
}

static nvmlReturn_t ask_list(const struct question *question, unsigned *count, void *items) {
    return ((nvmlReturn_t (*)(nvmlDevice_t, unsigned *, void *))question->real)(question->device, count,
                                                                                items);
}

#define LIST(name, type, pid_field, counts_items)                                                            \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, type *out) {                              \
        NVML_ENTER(name, (device, count, out));                                                              \
        struct question question = {.ask = ask_list,                                                         \
                                    .real = cot_real[H_##name],                                              \
                                    .device = device,                                                        \
                                    .size = sizeof(type),                                                    \
                                    .pid_at = pid_field,                                                     \
                                    .counts = counts_items};                                                 \
        return count != NULL ? only_ours(&question, count, out) : NVML_ERROR_INVALID_ARGUMENT;               \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, 0, false)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 0, false)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, 0, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, 0, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, 0, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, 0, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, 0, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 0, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, 0, false)
LIST(nvmlDeviceGetAccountingPids, unsigned, 0, false)
LIST(nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t, offsetof(nvmlEncoderSessionInfo_t, pid), true)
LIST(nvmlDeviceGetFBCSessions, nvmlFBCSessionInfo_t, offsetof(nvmlFBCSessionInfo_t, pid), true)

static nvmlReturn_t ask_details(const struct question *question, unsigned *count, void *items) {
    nvmlProcessDetailList_t list = {question->version, question->mode, *count, items};
    nvmlReturn_t result =
        ((nvmlReturn_t (*)(nvmlDevice_t, nvmlProcessDetailList_t *))question->real)(question->device, &list);
    *count = list.count;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t *list) {
    NVML_ENTER(nvmlDeviceGetRunningProcessDetailList, (device, list));
    if (list == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct question question = {.ask = ask_details,
                                .real = cot_real[H_nvmlDeviceGetRunningProcessDetailList],
                                .device = device,
                                .size = sizeof(nvmlProcessDetail_t),
                                .version = list->version,
                                .mode = list->mode};
    return only_ours(&question, &list->count, list->processes);
}

static nvmlReturn_t ask_samples(const struct question *question, unsigned *count, void *items) {
    return ((nvmlReturn_t (*)(nvmlDevice_t, void *, unsigned *, unsigned long long))question->real)(
        question->device, items, count, question->since);
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                                    unsigned *count, unsigned long long since) {
    NVML_ENTER(nvmlDeviceGetProcessUtilization, (device, out, count, since));
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct question question = {.ask = ask_samples,
                                .real = cot_real[H_nvmlDeviceGetProcessUtilization],
                                .device = device,
                                .size = sizeof *out,
                                .without_items = NVML_ERROR_NOT_FOUND,
                                .since = since};
    return only_ours(&question, count, out);
}

static nvmlReturn_t ask_utilization(const struct question *question, unsigned *count, void *items) {
    nvmlProcessesUtilizationInfo_t list = {question->version, *count, question->since, items};
    nvmlReturn_t result = ((nvmlReturn_t (*)(nvmlDevice_t, nvmlProcessesUtilizationInfo_t *))question->real)(
        question->device, &list);
    *count = list.count;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *list) {
    NVML_ENTER(nvmlDeviceGetProcessesUtilizationInfo, (device, list));
    if (list == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct question question = {.ask = ask_utilization,
                                .real = cot_real[H_nvmlDeviceGetProcessesUtilizationInfo],
                                .device = device,
                                .size = sizeof(nvmlProcessUtilizationInfo_t),
                                .pid_at = offsetof(nvmlProcessUtilizationInfo_t, pid),
                                .without_items = NVML_ERROR_NOT_FOUND,
                                .version = list->version,
                                .since = list->since};
    return only_ours(&question, &list->count, list->processes);
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, void *stats) {
    NVML_ENTER(nvmlDeviceGetAccountingStats, (device, pid, stats));
    if (!slot_map() || !slot_has_process(pid))
        return NVML_ERROR_NOT_FOUND;
    return REAL(nvmlDeviceGetAccountingStats)(device, pid, stats);
}
