/* Declares the part of the NVML ABI that the stand-in implements, written from the public documentation. */
#ifndef STANDIN_NVML_ABI_H
#define STANDIN_NVML_ABI_H

#include "state.h"

#include <stdbool.h>
#include <stddef.h>

typedef int nvmlReturn_t;
typedef struct standin_card *nvmlDevice_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
};

#define NVML_NO_INSTANCE 0xFFFFFFFFu

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct nvml_utilization {
    unsigned gpu, memory;
};
struct nvml_pci_v2 {
    char bus_id[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    unsigned reserved[4];
};
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};
struct nvml_process_v1 {
    unsigned pid;
    unsigned long long used;
};
struct nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
};
struct nvml_process_detail {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
    unsigned long long protected_used;
};
struct nvml_process_details {
    unsigned version, mode, count;
    struct nvml_process_detail *processes;
};
struct nvml_process_utilization {
    unsigned pid;
    unsigned long long time;
    unsigned sm, memory, encoder, decoder;
};
struct nvml_event_v1 {
    nvmlDevice_t device;
    unsigned long long type, data;
};
struct nvml_event {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned instance, compute_instance;
};
struct nvml_attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, instance_slices, compute_slices;
    unsigned long long memory_mib;
};

struct nvml_set_memory_limits {
    const char *name_space; /* path of a cgroup's folder */
    unsigned long long soft, hard;
};
struct nvml_get_memory_limits {
    const char *name_space;
    unsigned long long soft, hard, used;
};

#define LONGEST_PATH 4096

#define API __attribute__((visibility("default"))) nvmlReturn_t

/* init.c: the state, or NULL before nvmlInit; and the check that begins every question about a device. */
struct standin_state *nvml_state(void);
nvmlReturn_t nvml_device(nvmlDevice_t device);
int nvml_index(nvmlDevice_t device);
bool nvml_has_instances(nvmlDevice_t device);
bool nvml_shown(nvmlDevice_t device);
/* memory.c: a process as the reader's namespace calls it; 0 if it is not to be seen from there. */
unsigned nvml_pid(const struct standin_process *process);

#define DEVICE(device)                                                                                       \
    do {                                                                                                     \
        nvmlReturn_t result_ = nvml_device(device);                                                          \
        if (result_)                                                                                         \
            return result_;                                                                                  \
    } while (0)
#define NEED(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return NVML_ERROR_INVALID_ARGUMENT;                                                              \
    } while (0)

#endif
