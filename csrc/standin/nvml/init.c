/* Implements init, shutdown, versions and device handles. NVML ignores CUDA_VISIBLE_DEVICES; GPUs that a
 * container does not have do not exist for it. */
#define _GNU_SOURCE
#include "nvml_abi.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct standin_state *state;
static uint64_t shown; /* as of the start */
static int starts;

struct standin_state *nvml_state(void) {
    return __atomic_load_n(&starts, __ATOMIC_ACQUIRE) > 0 ? state : NULL;
}

API nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!starts)
        state = standin_map_again();
    if (!state)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (!starts)
        shown = standin_shown(state);
    __atomic_add_fetch(&starts, 1, __ATOMIC_ACQ_REL);
    return NVML_SUCCESS;
}

API nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

API nvmlInit(void) {
    return nvmlInitWithFlags(0);
}

API nvmlShutdown(void) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    __atomic_sub_fetch(&starts, 1, __ATOMIC_ACQ_REL);
    return NVML_SUCCESS;
}

int nvml_index(nvmlDevice_t device) {
    return (int)(device - state->card);
}

nvmlReturn_t nvml_device(nvmlDevice_t device) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    if (device < state->card || device >= state->card + state->cards)
        return NVML_ERROR_INVALID_ARGUMENT;
    bool parent_lost = device->parent && state->card[device->parent - 1].lost;
    return device->lost || parent_lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

bool nvml_has_instances(nvmlDevice_t device) {
    for (uint32_t i = 0; i < state->cards; i++)
        if (state->card[i].parent == (uint64_t)nvml_index(device) + 1)
            return true;
    return false;
}

bool nvml_shown(nvmlDevice_t device) {
    return shown >> nvml_index(device) & 1;
}

/* Whether it is a card or, if a card's number plus 1 is given, an instance of that, which the process has. */
static bool counts(nvmlDevice_t device, uint64_t parent) {
    return device->parent == parent && nvml_shown(device);
}

static nvmlReturn_t text(char *out, unsigned room, const char *value) {
    NEED(out);
    if (strlen(value) >= room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, value);
    return NVML_SUCCESS;
}

API nvmlSystemGetDriverVersion(char *version, unsigned int room) {
    return nvml_state() ? text(version, room, state->driver_version) : NVML_ERROR_UNINITIALIZED;
}

API nvmlSystemGetNVMLVersion(char *version, unsigned int room) {
    char value[64];
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    snprintf(value, sizeof value, "%u.%s", (unsigned)(state->cuda_version / 1000), state->driver_version);
    return text(version, room, value);
}

API nvmlSystemGetCudaDriverVersion(int *version) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(version);
    *version = (int)state->cuda_version;
    return NVML_SUCCESS;
}

API nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

API nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(count);
    *count = 0;
    for (uint32_t i = 0; i < state->cards; i++)
        *count += counts(&state->card[i], 0);
    return NVML_SUCCESS;
}

API nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

/* A lost card has no handle any more, as on a real machine. */
static nvmlReturn_t found(nvmlDevice_t card, nvmlDevice_t *device) {
    DEVICE(card);
    *device = card;
    return NVML_SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(device);
    for (uint32_t i = 0; i < state->cards; i++)
        if (counts(&state->card[i], 0) && index-- == 0)
            return found(&state->card[i], device);
    return NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

API nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(uuid && device);
    for (uint32_t i = 0; i < state->cards; i++)
        if (nvml_shown(&state->card[i]) && !strcasecmp(state->card[i].uuid, uuid))
            return found(&state->card[i], device);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned domain = 0, bus = 0, slot = 0;
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(bus_id && device);
    NEED(sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3 || sscanf(bus_id, "%x:%x", &bus, &slot) == 2);
    for (uint32_t i = 0; i < state->cards; i++)
        if (counts(&state->card[i], 0) && state->card[i].ordinal + 1 == bus)
            return found(&state->card[i], device);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

API nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int room) {
    DEVICE(device);
    return text(name, room, device->name);
}

API nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int room) {
    DEVICE(device);
    return text(uuid, room, device->uuid);
}

API nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    DEVICE(device);
    NEED(index);
    *index = 0;
    for (nvmlDevice_t before = state->card; before < device; before++)
        *index += counts(before, device->parent);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    DEVICE(device);
    NEED(minor);
    if (device->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    *minor = (unsigned)device->ordinal;
    return NVML_SUCCESS;
}

API nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int room) {
    char value[32];
    DEVICE(device);
    snprintf(value, sizeof value, "00000000%05u", (unsigned)device->ordinal);
    return text(serial, room, value);
}

API nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    char value[32];
    if (!nvml_state())
        return NVML_ERROR_UNINITIALIZED;
    NEED(serial && device);
    for (uint32_t i = 0; i < state->cards; i++)
        if (counts(&state->card[i], 0) &&
            nvmlDeviceGetSerial(&state->card[i], value, sizeof value) == NVML_SUCCESS &&
            !strcmp(value, serial))
            return found(&state->card[i], device);
    return NVML_ERROR_NOT_FOUND;
}

/* The cards know no bridges: all are near each other and every CPU. A count of 0 asks for their number. Like
 * the real library it goes through its own public functions. */
static nvmlReturn_t near(nvmlDevice_t from, unsigned *count, nvmlDevice_t *devices) {
    unsigned all = 0, room = *count;
    nvmlDevice_t each;
    nvmlReturn_t result = nvmlDeviceGetCount_v2(&all);
    *count = 0;
    for (unsigned i = 0; i < all && result == NVML_SUCCESS; i++) {
        result = nvmlDeviceGetHandleByIndex_v2(i, &each);
        if (result != NVML_SUCCESS || each == from)
            continue;
        if (devices && *count < room)
            devices[*count] = each;
        ++*count;
    }
    if (result == NVML_SUCCESS && room && *count > room)
        *count = room;
    return result;
}

API nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned int *count,
                                     nvmlDevice_t *devices) {
    DEVICE(device);
    (void)level;
    NEED(count && (devices || !*count));
    return near(device, count, devices);
}

API nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count, nvmlDevice_t *devices) {
    (void)cpu;
    NEED(count && (devices || !*count));
    return near(NULL, count, devices);
}

API nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int room) {
    DEVICE(device);
    return text(version, room, "00.00.00.00.00");
}

static void pci(nvmlDevice_t device, struct nvml_pci *out) {
    unsigned bus = (unsigned)(device->parent ? state->card[device->parent - 1].ordinal : device->ordinal) + 1;
    *out = (struct nvml_pci){.bus = bus, .pci_device = 0x000010DE, .pci_subsystem = 0x000010DE};
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "0000:%02X:00.0", bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", bus);
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct nvml_pci *out) {
    DEVICE(device);
    NEED(out);
    pci(device, out);
    return NVML_SUCCESS;
}

API nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, struct nvml_pci_v2 *out) {
    struct nvml_pci full;
    DEVICE(device);
    NEED(out);
    pci(device, &full);
    memcpy(out, &full, offsetof(struct nvml_pci, bus_id));
    return NVML_SUCCESS;
}

API nvmlDeviceGetPciInfo(nvmlDevice_t device, struct nvml_pci_v2 *out) {
    return nvmlDeviceGetPciInfo_v2(device, out);
}

__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t error) {
    static const char *const texts[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
    };
    bool known = error >= 0 && (size_t)error < sizeof texts / sizeof *texts;
    return known                                  ? texts[error]
           : error == NVML_ERROR_VERSION_MISMATCH ? "Argument version mismatch"
                                                  : "Unknown Error";
}
