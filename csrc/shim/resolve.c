/* Intercepts every way in which a program can find a driver function.
 *
 *   linked      the dynamic linker binds to the exported hooks, since this library is loaded first
 *   dlsym       the hook below, entered through assembly so that the real dlsym sees the true caller
 *   by driver   cuGetProcAddress; what the real one answers decides which form of a hook replaces it
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "hooks.h"
#include "slot.h"

#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#else
#error "the shim knows x86-64 and arm64"
#endif

#define BUCKETS 256
#define PER_THREAD_DEFAULT_STREAM 2ull

struct needs cot_driver;
void *cot_real[HOOK_COUNT];
int cot_cuda_bound, cot_nvml_bound;

struct hook {
    const char *name, *base;
    int since;
    bool ptsz;
    void *replacement;
};

/* The replacements are declared where they are defined; here only their addresses matter. */
#define HOOK(name, base, since, ptsz) extern char hook_##name[] __asm__(#name);
CUDA_HOOKS(HOOK)
NVML_HOOKS(HOOK)
#undef HOOK

static const struct hook hooks[HOOK_COUNT] = {
#define HOOK(name, base, since, ptsz) [H_##name] = {#name, #base, since, ptsz, hook_##name},
    CUDA_HOOKS(HOOK) NVML_HOOKS(HOOK)
#undef HOOK
};

typedef void *(*dlsym_fn)(void *, const char *);
typedef void *(*dlopen_fn)(const char *, int);

static dlsym_fn real_dlsym;
static dlopen_fn real_dlopen;

static void find_loader(void) {
    if (__atomic_load_n(&real_dlopen, __ATOMIC_ACQUIRE) != NULL)
        return;
    __atomic_store_n(&real_dlsym, (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC), __ATOMIC_RELEASE);
    __atomic_store_n(&real_dlopen, (dlopen_fn)dlvsym(RTLD_NEXT, "dlopen", FIRST_GLIBC), __ATOMIC_RELEASE);
}

/* Names are looked up once for each of a program's several hundred, so the table is hashed. */
static unsigned char bucket[BUCKETS]; /* hook + 1 */
static bool bucketed;
static pthread_mutex_t binding = PTHREAD_MUTEX_INITIALIZER;

static unsigned hash(const char *text) {
    unsigned value = 2166136261u;
    while (*text)
        value = (value ^ (unsigned char)*text++) * 16777619u;
    return value;
}

_Static_assert(HOOK_COUNT < BUCKETS / 2, "the table of names stays sparse");

static void fill_buckets(void) {
    if (__atomic_load_n(&bucketed, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&binding);
    if (!bucketed) {
        for (unsigned i = 0; i < HOOK_COUNT; i++) {
            unsigned at = hash(hooks[i].name) % BUCKETS;
            while (bucket[at])
                at = (at + 1) % BUCKETS;
            bucket[at] = (unsigned char)(i + 1);
        }
        __atomic_store_n(&bucketed, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&binding);
}

static const struct hook *hook_named(const char *name) {
    fill_buckets();
    for (unsigned at = hash(name) % BUCKETS; bucket[at]; at = (at + 1) % BUCKETS)
        if (strcmp(hooks[bucket[at] - 1].name, name) == 0)
            return &hooks[bucket[at] - 1];
    return NULL;
}

static void *loaded(const char *library) {
    find_loader();
    return real_dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
}

void cot_bind_cuda(void *handle_hint) {
    void *handle = loaded("libcuda.so.1");
    if (handle == NULL)
        handle = handle_hint; /* a driver under another name */
    if (handle == NULL)
        return;
    pthread_mutex_lock(&binding);
    if (!cot_cuda_bound) {
        for (unsigned i = 0; i < HOOK_NVML_FIRST; i++) {
            void *found = real_dlsym(handle, hooks[i].name);
            cot_real[i] = found == hooks[i].replacement ? NULL : found;
        }
#define NEED(name, parameters) cot_driver.name = (CUresult(*) parameters)real_dlsym(handle, #name);
        CUDA_NEEDS(NEED)
#undef NEED
        __atomic_store_n(&cot_cuda_bound, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&binding);
}

void cot_bind_nvml(void) {
    void *handle = loaded("libnvidia-ml.so.1");
    if (handle == NULL)
        return;
    pthread_mutex_lock(&binding);
    if (!cot_nvml_bound) {
        for (unsigned i = HOOK_NVML_FIRST; i < HOOK_COUNT; i++)
            cot_real[i] = real_dlsym(handle, hooks[i].name);
        cot_driver.nvmlDeviceGetUUID =
            (nvmlReturn_t (*)(nvmlDevice_t, char *, unsigned))real_dlsym(handle, "nvmlDeviceGetUUID");
        __atomic_store_n(&cot_nvml_bound, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&binding);
}

/* The replacement of a real function, known by its address: a library may give one function several names. */
static void *replacement_of(const char *base, void *real) {
    for (unsigned i = 0; i < HOOK_COUNT; i++)
        if (cot_real[i] == real && strcmp(hooks[i].base, base) == 0)
            return hooks[i].replacement;
    return NULL;
}

static void *replaced_by_name(void *handle, const struct hook *hook) {
    void *found = real_dlsym(handle, hook->name);
    if (found == NULL || found == hook->replacement)
        return found;
    if (hook - hooks >= HOOK_NVML_FIRST)
        cot_bind_nvml();
    else
        cot_bind_cuda(handle);
    /* A function of this name in some other library is none of ours. */
    return replacement_of(hook->base, found);
}

struct entered {
    void *answer; /* not NULL: return it */
    void *onward; /* else go on here, with the caller's own frame */
};

__attribute__((visibility("hidden"))) struct entered cot_enter_dlsym(void *handle, const char *name) {
    find_loader();
    struct entered entered = {NULL, (void *)real_dlsym};
    if (name == NULL || handle == RTLD_NEXT || handle == RTLD_DEFAULT || !slot_present())
        return entered;
    if ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')) {
        const struct hook *hook = hook_named(name);
        if (hook != NULL)
            entered.answer = replaced_by_name(handle, hook);
    }
    return entered;
}

__attribute__((visibility("hidden"))) void *cot_enter_dlopen(void) {
    find_loader();
    return (void *)real_dlopen;
}

/* By address; and if the driver answers with an address that it exports under no name, by the form that it
 * documents for this version, so that nothing slips through. */
static void replace(const char *symbol, void **function, int version, unsigned long long flags) {
    if (function == NULL || *function == NULL || symbol == NULL || !slot_present())
        return;
    void *replacement = replacement_of(symbol, *function);
    bool ptsz = (flags & PER_THREAD_DEFAULT_STREAM) != 0;
    int best = -1;
    for (unsigned i = 0; replacement == NULL && i < HOOK_NVML_FIRST; i++) {
        const struct hook *hook = &hooks[i];
        if (strcmp(hook->base, symbol) != 0 || hook->since > version || cot_real[i] == NULL)
            continue;
        if ((!hook->ptsz || ptsz) && (best < 0 || hook->since >= hooks[best].since))
            best = (int)i;
    }
    if (replacement == NULL && best >= 0)
        replacement = hooks[best].replacement;
    if (replacement != NULL)
        *function = replacement;
}

/* A quick no for the hundreds of names that are not hooked. */
static bool may_be_hooked(const char *symbol) {
    return symbol != NULL && hook_named(symbol) != NULL;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
    ENTER(cuGetProcAddress);
    CUresult result = REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS && may_be_hooked(symbol))
        replace(symbol, function, version, flags);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    unsigned long long flags, int *status) {
    ENTER(cuGetProcAddress_v2);
    CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && may_be_hooked(symbol))
        replace(symbol, function, version, flags);
    return result;
}
