/* Reports utilisation, which is measured, and temperature and power, which are derived from it. */
#include "nvml_abi.h"

#include <string.h>

#define IDLE_CELSIUS 35
#define BUSY_CELSIUS 70

static bool workstation(nvmlDevice_t device) {
    return strstr(device->name, "GeForce") != NULL;
}

static double busy(nvmlDevice_t device) {
    return standin_utilisation(nvml_state(), nvml_index(device));
}

/* NVML knows no utilisation where MIG is on. */
API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct nvml_utilization *out) {
    DEVICE(device);
    NEED(out);
    if (device->parent || nvml_has_instances(device))
        return NVML_ERROR_NOT_SUPPORTED;
    out->gpu = (unsigned)(busy(device) * 100 + 0.5);
    out->memory = out->gpu / 2;
    return NVML_SUCCESS;
}

static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned *percent, unsigned *period) {
    DEVICE(device);
    NEED(percent && period);
    *percent = 0;
    *period = 1000000;
    return NVML_SUCCESS;
}

API nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period) {
    return idle_engine(device, percent, period);
}

API nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *percent, unsigned int *period) {
    return idle_engine(device, percent, period);
}

API nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *celsius) {
    DEVICE(device);
    NEED(celsius && sensor == 0);
    *celsius = (unsigned)(IDLE_CELSIUS + busy(device) * (BUSY_CELSIUS - IDLE_CELSIUS));
    return NVML_SUCCESS;
}

API nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int threshold, unsigned int *celsius) {
    DEVICE(device);
    NEED(celsius);
    *celsius = threshold == 0 ? 92 : 89;
    return NVML_SUCCESS;
}

API nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
    DEVICE(device);
    NEED(milliwatts);
    if (device->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    *milliwatts = (unsigned)((double)device->power_limit * (0.15 + 0.75 * busy(device)));
    return NVML_SUCCESS;
}

static nvmlReturn_t limit(nvmlDevice_t device, unsigned *milliwatts) {
    DEVICE(device);
    NEED(milliwatts);
    if (device->parent)
        return NVML_ERROR_NOT_SUPPORTED;
    *milliwatts = (unsigned)device->power_limit;
    return NVML_SUCCESS;
}

API nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *milliwatts) {
    return limit(device, milliwatts);
}

API nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device, unsigned int *milliwatts) {
    return limit(device, milliwatts);
}

API nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *milliwatts) {
    return limit(device, milliwatts);
}

static nvmlReturn_t clock_of(nvmlDevice_t device, int domain, unsigned *mhz) {
    DEVICE(device);
    NEED(mhz && domain >= 0 && domain < 4);
    *mhz = domain == 2 ? 1215 : 1410; /* memory, or one of the core's */
    return NVML_SUCCESS;
}

API nvmlDeviceGetClockInfo(nvmlDevice_t device, int domain, unsigned int *mhz) {
    return clock_of(device, domain, mhz);
}

API nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int domain, unsigned int *mhz) {
    return clock_of(device, domain, mhz);
}

static nvmlReturn_t answer(nvmlDevice_t device, unsigned *out, unsigned value) {
    DEVICE(device);
    NEED(out);
    *out = value;
    return NVML_SUCCESS;
}

API nvmlDeviceGetPerformanceState(nvmlDevice_t device, unsigned int *state) {
    return answer(device, state, 0);
}

API nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) {
    return answer(device, mode, 0);
}

API nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode) {
    return answer(device, mode, 1);
}

API nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode) {
    return answer(device, mode, 0);
}

API nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active) {
    return answer(device, active, 0);
}

API nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation) {
    return answer(device, generation, 4);
}

API nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width) {
    return answer(device, width, 16);
}

API nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter, unsigned int *kib) {
    (void)counter;
    return answer(device, kib, 0);
}

API nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    DEVICE(device);
    NEED(major && minor);
    *major = (int)device->major;
    *minor = (int)device->minor;
    return NVML_SUCCESS;
}

/* Kepler is 2, then one for each generation; Ada comes between Ampere and Hopper. */
API nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
    DEVICE(device);
    NEED(architecture);
    *architecture = device->major >= 9                         ? 9
                    : device->major == 8 && device->minor == 9 ? 8
                    : device->major == 8                       ? 7
                    : device->major == 7 && device->minor == 5 ? 6
                    : device->major == 7                       ? 5
                                                               : 4;
    return NVML_SUCCESS;
}

API nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent) {
    DEVICE(device);
    NEED(percent);
    if (!workstation(device))
        return NVML_ERROR_NOT_SUPPORTED; /* cooled by the machine */
    *percent = (unsigned)(30 + busy(device) * 50);
    return NVML_SUCCESS;
}

API nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    DEVICE(device);
    NEED(current && pending);
    if (workstation(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

/* Errors of an instance are its card's. */
static nvmlReturn_t ecc(nvmlDevice_t device, int type, unsigned long long *count) {
    DEVICE(device);
    NEED(count && (type == 0 || type == 1));
    if (workstation(device))
        return NVML_ERROR_NOT_SUPPORTED;
    if (device->parent)
        device = &nvml_state()->card[device->parent - 1];
    *count = type == 0 ? device->ecc_corrected : device->ecc_uncorrected;
    return NVML_SUCCESS;
}

API nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *count) {
    (void)counter;
    return ecc(device, type, count);
}

API nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, int type, int counter, int location,
                                    unsigned long long *count) {
    (void)counter;
    nvmlReturn_t result = ecc(device, type, count);
    if (result == NVML_SUCCESS && location != 2) /* all of them are in the card's memory */
        *count = 0;
    return result;
}

API nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed) {
    DEVICE(device);
    NEED(corrected && uncorrected && pending && failed);
    if (device->major < 8 || workstation(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *corrected = *uncorrected = *pending = *failed = 0;
    return NVML_SUCCESS;
}
