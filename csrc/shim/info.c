/* Reports the GPU's memory to the program: in mode `enforce` the GPU is as large as the grant. */
#include <string.h>

#include "contexts.h"
#include "hooks.h"

#define NVML_DEVICES 64
#define NVML_UUID_BYTES 96

static bool shrinks(int card) {
    return card != CARD_NONE && slot_mode() == COT_ENFORCE;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER(cuMemGetInfo_v2);
    CUresult result = REAL(cuMemGetInfo_v2)(available, total);
    if (result != CUDA_SUCCESS)
        return result;
    struct here here = here_now();
    if (here.place != PLACE_CARD || !shrinks(here.card))
        return here.place == PLACE_REFUSED ? here.refusal : result;
    slot_reap(false);
    uint64_t limit = slot_limit(here.card), used = slot_used(here.card);
    *total = smaller(*total, limit);
    *available = smaller(*available, used < limit ? limit - used : 0);
    return result;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem_v2);
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (result != CUDA_SUCCESS)
        return result;
    struct here here = here_on(device);
    if (here.place == PLACE_CARD && shrinks(here.card))
        *bytes = smaller(*bytes, slot_limit(here.card));
    return result;
}

/* NVML readers (nvidia-smi, gpustat) use no card: they take no entry, and handles never change while they
 * run. */
static int nvml_card(nvmlDevice_t device) {
    static struct {
        nvmlDevice_t device;
        int card;
    } known[NVML_DEVICES];
    static unsigned count;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!slot_present() || !slot_map())
        return CARD_NONE;
    unsigned filled = __atomic_load_n(&count, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < filled; i++)
        if (known[i].device == device)
            return known[i].card;
    char text[NVML_UUID_BYTES] = "";
    unsigned char uuid[16];
    if (cot_driver.nvmlDeviceGetUUID == NULL || cot_driver.nvmlDeviceGetUUID(device, text, sizeof text) != 0)
        return CARD_NONE;
    int card = slot_parse_uuid(text, uuid) ? slot_card(uuid) : CARD_NONE;
    pthread_mutex_lock(&lock);
    if (count < NVML_DEVICES) {
        known[count].device = device;
        known[count].card = card;
        __atomic_store_n(&count, count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return card;
}

#define NVML_ENTER(name)                                                                                     \
    do {                                                                                                     \
        if (!__atomic_load_n(&cot_nvml_bound, __ATOMIC_ACQUIRE))                                             \
            cot_bind_nvml();                                                                                 \
        if (cot_real[H_##name] == NULL)                                                                      \
            return 13; /* NVML_ERROR_FUNCTION_NOT_FOUND */                                                   \
    } while (0)

static void shrink(int card, unsigned long long *total, unsigned long long *available,
                   unsigned long long *used) {
    slot_reap(false);
    *total = smaller(*total, slot_limit(card));
    *used = smaller(*total, slot_used(card));
    *available = smaller(*available, *total - *used);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    NVML_ENTER(nvmlDeviceGetMemoryInfo);
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    int card = result == 0 ? nvml_card(device) : CARD_NONE;
    if (shrinks(card))
        shrink(card, &memory->total, &memory->free, &memory->used);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    NVML_ENTER(nvmlDeviceGetMemoryInfo_v2);
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    int card = result == 0 ? nvml_card(device) : CARD_NONE;
    if (shrinks(card)) {
        memory->reserved = 0; /* the grant has none of its own */
        shrink(card, &memory->total, &memory->free, &memory->used);
    }
    return result;
}
