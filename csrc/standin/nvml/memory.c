/* Reports memory of GPUs and of the processes on them, from the shared file. */
#define _GNU_SOURCE
#include "nvml_abi.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MEMORY_V2 (2u << 24 | sizeof(struct nvml_memory_v2))
#define DETAILS_V1 (1u << 24 | sizeof(struct nvml_process_details))

struct seat {
    struct standin_holder holder;
    int card;
};

/* Who holds memory on a card; for one that is cut into instances, who holds it on them. */
static int seats(nvmlDevice_t device, struct seat *out, uint64_t *used) {
    struct standin_state *state = nvml_state();
    static __thread struct standin_holder holders[STANDIN_PROCESSES];
    int count = 0, index = nvml_index(device);
    *used = 0;
    for (int i = 0; i < (int)state->cards; i++) {
        uint64_t sum;
        if (i != index && state->card[i].parent != (uint64_t)index + 1)
            continue;
        int found = standin_holders(state, i, holders, STANDIN_PROCESSES, &sum);
        *used += sum;
        for (int j = 0; j < found && out && count < STANDIN_PROCESSES; j++)
            out[count++] = (struct seat){holders[j], i};
    }
    return count;
}

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *out) {
    uint64_t used;
    DEVICE(device);
    NEED(out);
    if (out->version != MEMORY_V2)
        return NVML_ERROR_VERSION_MISMATCH;
    if (device->unified)
        return NVML_ERROR_NOT_SUPPORTED;
    seats(device, NULL, &used);
    out->total = device->total;
    out->reserved = device->reserved;
    out->used = used;
    out->free = device->total - device->reserved - used;
    return NVML_SUCCESS;
}

/* Without a place for it the driver's reserve counts as used. */
API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *out) {
    struct nvml_memory_v2 full = {.version = MEMORY_V2};
    NEED(out);
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo_v2(device, &full);
    if (result == NVML_SUCCESS)
        *out = (struct nvml_memory){full.total, full.free, full.used + full.reserved};
    return result;
}

API nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct nvml_memory *out) {
    DEVICE(device);
    NEED(out);
    *out = (struct nvml_memory){256 * STANDIN_MIB, 255 * STANDIN_MIB, STANDIN_MIB};
    return NVML_SUCCESS;
}

static uint64_t started(const char *pid) {
    char path[300], line[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    char *field = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

/* The pid that a process has in its innermost namespace. */
static uint64_t inner_pid(const char *pid) {
    char path[300], line[256];
    uint64_t inner = 0;
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "NSpid:", 6)) {
            line[strcspn(line, "\n")] = 0;
            const char *last = strrchr(line, '\t');
            inner = last ? strtoull(last + 1, NULL, 10) : 0;
            break;
        }
    if (file)
        fclose(file);
    return inner;
}

/* Whether it may be in this pid namespace: one that the reader may not look at may. Every container has a
 * process 1, and several begin in the same clock tick. */
static int may_be_in(const char *pid, uint64_t namespace) {
    char path[300];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", pid);
    return stat(path, &found) || (uint64_t)found.st_ino == namespace;
}

unsigned nvml_pid(const struct standin_process *process) {
    struct stat here;
    unsigned found = 0;
    if (stat("/proc/self/ns/pid", &here) || here.st_ino == process->namespace)
        return (unsigned)process->pid;
    DIR *folder = opendir("/proc");
    struct dirent *item;
    while (folder && !found && (item = readdir(folder)))
        if (item->d_name[0] >= '1' && item->d_name[0] <= '9' && inner_pid(item->d_name) == process->pid &&
            started(item->d_name) == process->started && may_be_in(item->d_name, process->namespace))
            found = (unsigned)strtoul(item->d_name, NULL, 10);
    if (folder)
        closedir(folder);
    return found;
}

/* All processes of a card that can be named here. The caller frees them. */
static int processes(nvmlDevice_t device, struct nvml_process **out, int **entries) {
    struct standin_state *state = nvml_state();
    uint64_t used;
    struct seat *all = malloc(STANDIN_PROCESSES * sizeof *all);
    *out = malloc(STANDIN_PROCESSES * sizeof **out);
    *entries = malloc(STANDIN_PROCESSES * sizeof **entries);
    int count = 0, found = all && *out && *entries ? seats(device, all, &used) : 0;
    struct stat here;
    uint64_t own = stat("/proc/self/ns/pid", &here) ? 0 : (uint64_t)here.st_ino;
    for (int i = 0; i < found; i++) {
        const struct standin_process *process = &state->process[all[i].holder.entry];
        unsigned pid = own == process->namespace ? (unsigned)process->pid : nvml_pid(process);
        const struct standin_card *card = &state->card[all[i].card];
        if (!pid)
            continue;
        (*out)[count] = (struct nvml_process){pid, all[i].holder.used,
                                              card->parent ? (unsigned)card->instance : NVML_NO_INSTANCE,
                                              card->parent ? 0 : NVML_NO_INSTANCE};
        (*entries)[count++] = all[i].holder.entry;
    }
    free(all);
    return count;
}

/* `size` bytes of each process's struct go out: the first version has only the first two fields. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, char *out, size_t size) {
    struct nvml_process *found;
    int *entries;
    DEVICE(device);
    NEED(count);
    unsigned room = *count;
    *count = (unsigned)processes(device, &found, &entries);
    nvmlReturn_t result = *count > room || (*count && !out) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    for (unsigned i = 0; i < *count && result == NVML_SUCCESS; i++)
        memcpy(out + i * size, &found[i], size);
    free(found);
    free(entries);
    return result;
}

/* Everything on the stand-in computes; there is no graphics and no MPS. */
static nvmlReturn_t none(nvmlDevice_t device, unsigned *count) {
    DEVICE(device);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

#define LISTS(suffix, type)                                                                                  \
    API nvmlDeviceGetComputeRunningProcesses##suffix(nvmlDevice_t device, unsigned int *count, type *out) {  \
        return list(device, count, (char *)out, sizeof *out);                                                \
    }                                                                                                        \
    API nvmlDeviceGetGraphicsRunningProcesses##suffix(nvmlDevice_t device, unsigned int *count, type *out) { \
        (void)out;                                                                                           \
        return none(device, count);                                                                          \
    }                                                                                                        \
    API nvmlDeviceGetMPSComputeRunningProcesses##suffix(nvmlDevice_t device, unsigned int *count,            \
                                                        type *out) {                                         \
        (void)out;                                                                                           \
        return none(device, count);                                                                          \
    }

LISTS(, struct nvml_process_v1)
LISTS(_v2, struct nvml_process)
LISTS(_v3, struct nvml_process)

API nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct nvml_process_details *out) {
    struct nvml_process *found;
    int *entries;
    DEVICE(device);
    NEED(out);
    if (out->version != DETAILS_V1)
        return NVML_ERROR_VERSION_MISMATCH;
    unsigned room = out->count;
    out->count = out->mode == 0 || out->mode == 3 ? (unsigned)processes(device, &found, &entries) : 0;
    if (out->mode != 0 && out->mode != 3)
        return NVML_SUCCESS;
    bool fits = out->count <= room && (out->processes || !out->count);
    for (unsigned i = 0; i < out->count && fits; i++)
        out->processes[i] = (struct nvml_process_detail){found[i].pid, found[i].used, found[i].instance,
                                                         found[i].compute_instance, 0};
    free(found);
    free(entries);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct nvml_process_utilization *out,
                                    unsigned int *count, unsigned long long last_seen) {
    struct nvml_process *found;
    int *entries;
    DEVICE(device);
    NEED(count);
    (void)last_seen;
    if (device->parent || nvml_has_instances(device))
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned room = *count, filled = 0;
    unsigned total = (unsigned)processes(device, &found, &entries);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned i = 0; i < total; i++) {
        double share = standin_process_utilisation(nvml_state(), nvml_index(device), entries[i]);
        unsigned percent = (unsigned)(share * 100 + 0.5);
        if (!percent)
            continue;
        if (out && filled < room)
            out[filled] = (struct nvml_process_utilization){found[i].pid,
                                                            (unsigned long long)now.tv_sec * 1000000 +
                                                                (unsigned long long)now.tv_nsec / 1000,
                                                            percent,
                                                            percent / 2,
                                                            0,
                                                            0};
        filled++;
    }
    free(found);
    free(entries);
    *count = filled;
    if (filled && (!out || filled > room))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return filled ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int room) {
    char path[64];
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(name && room);
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    size_t length = fread(name, 1, room - 1, file);
    fclose(file);
    name[length] = 0; /* up to the first 0: the program */
    return NVML_SUCCESS;
}
