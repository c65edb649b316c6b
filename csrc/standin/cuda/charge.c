/* Computes how much memory an allocation takes of its GPU.
 *
 * From 1 MiB on it is rounded up to granules of 2 MiB. Smaller ones are packed: all of a process on a GPU
 * together count as the granules that hold their sum. */
#include "driver.h"

uint64_t charge_size(uint64_t size) {
    return size >= SMALL_ALLOCATION ? round_up(size, STANDIN_GRANULE) : round_up(size, SMALL_STEP);
}

/* Before it says no, memory that pools and graphs hold for nothing is given up, as CUDA does. */
CUresult device_charge(struct device *device, uint64_t bytes) {
    struct driver *driver = driver_get();
    if (bytes > standin_capacity(device->shared))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (standin_charge(driver->state, device->card, driver->entry, bytes, 0))
        return CUDA_SUCCESS;
    pool_release_unused(device, true);
    return standin_charge(driver->state, device->card, driver->entry, bytes, 0) ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_OUT_OF_MEMORY;
}

void device_uncharge(struct device *device, uint64_t bytes) {
    struct driver *driver = driver_get();
    standin_uncharge(driver->state, device->card, driver->entry, bytes, 0);
}

CUresult device_charge_allocation(struct device *device, uint64_t size, uint64_t *charged) {
    if (size > standin_capacity(device->shared))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *charged = charge_size(size);
    if (size >= SMALL_ALLOCATION)
        return device_charge(device, *charged);
    uint64_t granules = round_up(device->small + *charged, STANDIN_GRANULE);
    if (granules > device->small_charged) {
        TRY(device_charge(device, granules - device->small_charged));
        device->small_charged = granules;
    }
    device->small += *charged;
    return CUDA_SUCCESS;
}

void device_uncharge_allocation(struct device *device, uint64_t charged) {
    if (charged >= SMALL_ALLOCATION + SMALL_STEP) {
        device_uncharge(device, charged);
        return;
    }
    device->small -= charged;
    uint64_t granules = round_up(device->small, STANDIN_GRANULE);
    if (granules < device->small_charged) {
        device_uncharge(device, device->small_charged - granules);
        device->small_charged = granules;
    }
}
