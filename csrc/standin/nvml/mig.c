/* Implements MIG: a GPU that is split into instances, each a device of its own. */
#include "nvml_abi.h"

API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    DEVICE(device);
    NEED(current && pending);
    if (!device->mig_capable || device->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = nvml_has_instances(device);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    DEVICE(device);
    NEED(count);
    *count = device->mig_capable && !device->parent ? 7 : 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    DEVICE(device);
    NEED(instance);
    if (!device->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    struct standin_state *state = nvml_state();
    for (uint32_t i = 0; i < state->cards; i++) {
        nvmlDevice_t each = &state->card[i];
        if (each->parent == (uint64_t)nvml_index(device) + 1 && nvml_shown(each) && index-- == 0) {
            *instance = each;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t instance, nvmlDevice_t *device) {
    DEVICE(instance);
    NEED(device && instance->parent);
    *device = &nvml_state()->card[instance->parent - 1];
    return NVML_SUCCESS;
}

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    DEVICE(device);
    NEED(is);
    *is = device->parent != 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuInstanceId(nvmlDevice_t instance, unsigned int *id) {
    DEVICE(instance);
    NEED(id);
    if (!instance->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    *id = (unsigned)instance->instance;
    return NVML_SUCCESS;
}

API nvmlDeviceGetComputeInstanceId(nvmlDevice_t instance, unsigned int *id) {
    DEVICE(instance);
    NEED(id);
    if (!instance->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    *id = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetAttributes_v2(nvmlDevice_t device, struct nvml_attributes *out) {
    DEVICE(device);
    NEED(out);
    if (!device->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned slices = (unsigned)device->slices;
    *out = (struct nvml_attributes){.multiprocessors = (unsigned)device->multiprocessors,
                                    .copy_engines = slices,
                                    .instance_slices = slices,
                                    .compute_slices = slices,
                                    .memory_mib = device->total / STANDIN_MIB};
    return NVML_SUCCESS;
}

API nvmlDeviceGetAttributes(nvmlDevice_t device, struct nvml_attributes *out) {
    return nvmlDeviceGetAttributes_v2(device, out);
}
