/* Implements cuGetProcAddress: finds a function by its name and the CUDA version of the caller. */
#include "driver.h"
#include "symbols.h"

#include <string.h>

enum { FOUND = 0, SYMBOL_NOT_FOUND = 1, VERSION_NOT_SUFFICIENT = 2 };
enum { FLAG_PER_THREAD = 2 };

API cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status) {
    NEED(name && function && flags <= FLAG_PER_THREAD);
    bool known;
    const struct symbol *found = symbol_find(name, version, &known);
    if (status)
        *status = found ? FOUND : known ? VERSION_NOT_SUFFICIENT : SYMBOL_NOT_FOUND;
    *function = NULL;
    if (!found)
        return CUDA_SUCCESS;
    int (*address)() = flags & FLAG_PER_THREAD ? found->per_thread : found->function;
    memcpy(function, &address, sizeof address);
    return CUDA_SUCCESS;
}

API cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    TRY(cuGetProcAddress_v2(name, function, version, flags, NULL));
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
