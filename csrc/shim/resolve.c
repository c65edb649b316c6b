/* Intercepts every way in which a program can find a driver function.
 *
 *   linked      the dynamic linker binds to the exported hooks, since this library is loaded first
 *   dlsym       the hook below, entered through assembly so that the real dlsym sees the true caller
 *   by driver   cuGetProcAddress; what the real one answers decides which form of a hook replaces it
 *
 * No lock is held here: the dynamic loader has one of its own, which a thread may hold that runs a library's
 * constructor and calls a hook from it. Threads that bind at once find and write the same.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "hooks.h"
#include "loader.h"
#include "slot.h"

#define BUCKETS 512

struct needs cot_driver;
void *cot_real[HOOK_COUNT];
int cot_cuda_bound, cot_nvml_bound;

struct hook {
    const char *name, *base;
    void *replacement;
};

/* The replacements are declared where they are defined; here only their addresses matter. */
#define HOOK(name, base) extern char hook_##name[] __asm__(#name);
CUDA_HOOKS(HOOK)
NVML_HOOKS(HOOK)
#undef HOOK

static const struct hook hooks[HOOK_COUNT] = {
#define HOOK(name, base) [H_##name] = {#name, #base, hook_##name},
    CUDA_HOOKS(HOOK) NVML_HOOKS(HOOK)
#undef HOOK
};

_Static_assert(HOOK_COUNT < BUCKETS / 2 && HOOK_COUNT < 255, "the tables of names stay sparse");

/* Names are looked up once for each of a program's several hundred, so the tables are hashed. */
static unsigned char by_name[BUCKETS], by_base[BUCKETS]; /* hook + 1; of a base, its first */
static bool hashed;

static unsigned hash(const char *text) {
    unsigned value = 2166136261u;
    while (*text)
        value = (value ^ (unsigned char)*text++) * 16777619u;
    return value;
}

static void hash_names(void) {
    unsigned char names[BUCKETS] = {0}, bases[BUCKETS] = {0};
    for (unsigned i = 0; i < HOOK_COUNT; i++) {
        unsigned at = hash(hooks[i].name) % BUCKETS;
        while (names[at])
            at = (at + 1) % BUCKETS;
        names[at] = (unsigned char)(i + 1);
        at = hash(hooks[i].base) % BUCKETS;
        while (bases[at] && strcmp(hooks[bases[at] - 1].base, hooks[i].base) != 0)
            at = (at + 1) % BUCKETS;
        if (!bases[at])
            bases[at] = (unsigned char)(i + 1);
    }
    for (unsigned i = 0; i < BUCKETS; i++) {
        __atomic_store_n(&by_name[i], names[i], __ATOMIC_RELAXED);
        __atomic_store_n(&by_base[i], bases[i], __ATOMIC_RELAXED);
    }
    __atomic_store_n(&hashed, true, __ATOMIC_RELEASE);
}

/* The hook of this name, or with `bases` the first hook of this base; NULL for the hundreds of others. */
static const struct hook *find_hook(const char *text, bool bases) {
    if (!__atomic_load_n(&hashed, __ATOMIC_ACQUIRE))
        hash_names();
    const unsigned char *table = bases ? by_base : by_name;
    for (unsigned at = hash(text) % BUCKETS; table[at]; at = (at + 1) % BUCKETS) {
        const struct hook *hook = &hooks[table[at] - 1];
        if (strcmp(bases ? hook->base : hook->name, text) == 0)
            return hook;
    }
    return NULL;
}

/* A library by its soname, wherever it came from. What is found stays: its functions are called for good. */
static void *loaded(const struct loader *loader, const char *soname) {
    return loader->open(soname, RTLD_LAZY | RTLD_NOLOAD);
}

/* Also where nothing has loaded it yet: a framework may be linked with lazy stubs of its functions, and the
 * hooks are called in place of those stubs, which would have loaded it. */
static void *load(const struct loader *loader, const char *soname, const char *other) {
    void *handle = loaded(loader, soname);
    if (handle == NULL)
        handle = loader->open(soname, RTLD_LAZY);
    return handle != NULL ? handle : loader->open(other, RTLD_LAZY);
}

/* Old drivers lack some functions; the program that asks dlerror next must not hear of them. */
static void bind_hooks(const struct loader *loader, void *handle, unsigned first, unsigned end) {
    for (unsigned i = first; i < end; i++) {
        void *found = loader->symbol(handle, hooks[i].name);
        __atomic_store_n(&cot_real[i], found == hooks[i].replacement ? NULL : found, __ATOMIC_RELAXED);
    }
}

static void bind_cuda(const struct loader *loader, void *handle) {
    bind_hooks(loader, handle, 0, HOOK_NVML_FIRST);
#define NEED(name, parameters)                                                                               \
    __atomic_store_n(&cot_driver.name, (CUresult(*) parameters)loader->symbol(handle, #name),                \
                     __ATOMIC_RELAXED);
    CUDA_NEEDS(NEED)
#undef NEED
    __atomic_store_n(&cot_cuda_bound, 1, __ATOMIC_RELEASE);
}

static struct span nvml_span, own_span;

bool cot_nvml_called_by_program(const void *caller) {
    uintptr_t at = (uintptr_t)caller;
    return !(at >= nvml_span.begin && at < nvml_span.end) && !(at >= own_span.begin && at < own_span.end);
}

static void bind_nvml(const struct loader *loader, void *handle) {
    bind_hooks(loader, handle, HOOK_NVML_FIRST, HOOK_COUNT);
#define NEED(name, parameters)                                                                               \
    __atomic_store_n(&cot_driver.name, (nvmlReturn_t(*) parameters)loader->symbol(handle, #name),            \
                     __ATOMIC_RELAXED);
    NVML_NEEDS(NEED)
#undef NEED
    nvml_span = cot_span(cot_real[H_nvmlDeviceGetMemoryInfo]);
    own_span = cot_span(hooks);
    __atomic_store_n(&cot_nvml_bound, 1, __ATOMIC_RELEASE);
}

void cot_bind_cuda(void) {
    const struct loader *loader = cot_loader();
    void *handle = load(loader, "libcuda.so.1", "libcuda.so");
    if (handle != NULL)
        bind_cuda(loader, handle);
    loader->error();
}

void cot_bind_nvml(void) {
    const struct loader *loader = cot_loader();
    void *handle = load(loader, "libnvidia-ml.so.1", "libnvidia-ml.so");
    if (handle != NULL)
        bind_nvml(loader, handle);
    loader->error();
}

/* Binds if the library is there: a look at a function's address is no reason to load it. */
static bool bound_if_loaded(const struct loader *loader, bool nvml) {
    int *bound = nvml ? &cot_nvml_bound : &cot_cuda_bound;
    if (__atomic_load_n(bound, __ATOMIC_ACQUIRE))
        return true;
    void *handle = loaded(loader, nvml ? "libnvidia-ml.so.1" : "libcuda.so.1");
    if (handle != NULL && nvml)
        bind_nvml(loader, handle);
    else if (handle != NULL)
        bind_cuda(loader, handle);
    loader->error();
    return handle != NULL;
}

/* The replacement of a real function, known by its address. The driver may give one function several names,
 * of different bases too, and several functions one address, where it supports neither: then the base
 * decides. */
static void *replacement_of(const char *base, void *real) {
    void *other = NULL;
    unsigned others = 0;
    for (unsigned i = 0; i < HOOK_COUNT; i++) {
        if (hooks[i].replacement == real)
            return real; /* a driver that finds its own functions as any program does */
        if (cot_real[i] != real)
            continue;
        if (strcmp(hooks[i].base, base) == 0)
            return hooks[i].replacement;
        other = hooks[i].replacement;
        others++;
    }
    return others == 1 ? other : NULL;
}

/* A form that is newer than this library may have other parameters, so it is not replaced. Said once for each
 * function. */
static void name_unknown(const struct hook *first, const char *form) {
    static bool named[HOOK_COUNT];
    if (!__atomic_exchange_n(&named[first - hooks], true, __ATOMIC_RELAXED))
        fprintf(
            stderr,
            "cotenant: this program uses %s in a form that the driver has and this version of cotenant does "
            "not know (%s): its calls pass uncounted; a newer cotenant may know it\n",
            first->base, form);
}

/* The base of a name like cuMemAllocAsync_v3_ptsz; NULL if it has none that is hooked. */
static const struct hook *hook_of_form(const char *name) {
    char base[64];
    size_t length = strlen(name);
    if (length >= sizeof base)
        return NULL;
    memcpy(base, name, length + 1);
    if (length > 5 && (strcmp(base + length - 5, "_ptsz") == 0 || strcmp(base + length - 5, "_ptds") == 0))
        base[length -= 5] = '\0';
    size_t digits = length;
    while (digits > 0 && isdigit((unsigned char)base[digits - 1]))
        digits--;
    if (digits < length && digits > 2 && base[digits - 1] == 'v' && base[digits - 2] == '_')
        base[digits - 2] = '\0';
    return find_hook(base, true);
}

/* What dlsym shall answer for a name that is a hook's or another form of one; NULL: what it answers by
 * itself. A function of this name in some other library is none of ours. */
static void *replaced_by_name(void *handle, const char *name, const struct hook *hook) {
    const struct loader *loader = cot_loader();
    void *found = loader->symbol(handle, name);
    bool nvml = name[0] == 'n';
    if (found == NULL || found == hook->replacement || !bound_if_loaded(loader, nvml))
        return NULL;
    void *replacement = replacement_of(hook->base, found);
    void *driver = loaded(loader, nvml ? "libnvidia-ml.so.1" : "libcuda.so.1");
    if (replacement == NULL && driver != NULL && loader->symbol(driver, name) == found)
        name_unknown(hook, name);
    loader->error();
    return replacement;
}

struct entered {
    void *answer; /* not NULL: return it */
    void *onward; /* else go on here, with the caller's own frame */
};

__attribute__((visibility("hidden"))) struct entered cot_enter_dlsym(void *handle, const char *name) {
    struct entered entered = {NULL, (void *)cot_loader()->symbol};
    if (name == NULL || handle == RTLD_NEXT || handle == RTLD_DEFAULT || !slot_present())
        return entered;
    if ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v')) {
        const struct hook *hook = find_hook(name, false);
        if (hook == NULL)
            hook = hook_of_form(name);
        if (hook != NULL)
            entered.answer = replaced_by_name(handle, name, hook);
    }
    return entered;
}

__attribute__((visibility("hidden"))) void *cot_enter_dlopen(void) {
    return (void *)cot_loader()->open;
}

/* By address alone: which form the driver means for a version is the driver's to say. */
static void replace(const char *symbol, void **function, int version) {
    if (function == NULL || *function == NULL || symbol == NULL || !slot_present())
        return;
    void *replacement = replacement_of(symbol, *function);
    const struct hook *hook = replacement == NULL ? find_hook(symbol, true) : NULL;
    if (replacement != NULL)
        *function = replacement;
    if (hook == NULL)
        return;
    char form[32];
    snprintf(form, sizeof form, "asked for CUDA %d.%d", version / 1000, version % 1000 / 10);
    name_unknown(hook, form);
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
    ENTER(cuGetProcAddress);
    CUresult result = REAL(cuGetProcAddress)(symbol, function, version, flags);
    if (result == CUDA_SUCCESS)
        replace(symbol, function, version);
    return result;
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    unsigned long long flags, int *status) {
    ENTER(cuGetProcAddress_v2);
    CUresult result = REAL(cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS)
        replace(symbol, function, version);
    return result;
}
