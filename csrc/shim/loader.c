/* Finds glibc's dlopen, dlsym and dlerror without being linked with them.
 *
 * Before glibc 2.34 they are in libdl.so.2, later in libc.so.6. A library that needs libdl.so.2 keeps every
 * program of an image that lacks it from starting, so this one needs libc alone, and looks for them in the
 * objects that are loaded when it is asked. Every version of these three names is the same function. */
#define _GNU_SOURCE
#include "loader.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *hash; /* DT_GNU_HASH */
};

static void *no_open(const char *file, int mode) {
    (void)file, (void)mode;
    return NULL;
}

static void *no_symbol(void *handle, const char *name) {
    (void)handle, (void)name;
    return NULL;
}

static char *no_error(void) {
    return NULL;
}

/* Tables of the object in memory; glibc has made the addresses absolute. */
static bool read_dynamic(const struct dl_phdr_info *object, struct symbols *out) {
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        ElfW(Addr) address = entry->d_un.d_ptr;
        address += address < object->dlpi_addr ? object->dlpi_addr : 0;
        if (entry->d_tag == DT_SYMTAB)
            out->table = (const ElfW(Sym) *)address;
        else if (entry->d_tag == DT_STRTAB)
            out->names = (const char *)address;
        else if (entry->d_tag == DT_GNU_HASH)
            out->hash = (const uint32_t *)address;
    }
    return out->table != NULL && out->names != NULL && out->hash != NULL;
}

static const ElfW(Sym) * find(const struct symbols *in, const char *name) {
    uint32_t buckets = in->hash[0], first = in->hash[1], bloom = in->hash[2], hash = 5381;
    const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)(in->hash + 4) + bloom);
    const uint32_t *chain = bucket + buckets;
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    uint32_t i = buckets > 0 ? bucket[hash % buckets] : 0;
    if (i < first || i == 0)
        return NULL;
    do {
        const ElfW(Sym) *symbol = &in->table[i];
        if ((chain[i - first] | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && strcmp(in->names + symbol->st_name, name) == 0)
            return symbol;
    } while (!(chain[i++ - first] & 1));
    return NULL;
}

static int look_in(struct dl_phdr_info *object, size_t size, void *into) {
    (void)size;
    struct loader *found = into;
    struct symbols symbols = {0};
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *file = slash != NULL ? slash + 1 : object->dlpi_name;
    if ((strcmp(file, "libc.so.6") != 0 && strcmp(file, "libdl.so.2") != 0) ||
        !read_dynamic(object, &symbols))
        return 0;
    const ElfW(Sym) *open = find(&symbols, "dlopen"), *symbol = find(&symbols, "dlsym"),
                    *error = find(&symbols, "dlerror");
    if (open == NULL || symbol == NULL || error == NULL)
        return 0;
    found->open = (void *(*)(const char *, int))(object->dlpi_addr + open->st_value);
    found->symbol = (void *(*)(void *, const char *))(object->dlpi_addr + symbol->st_value);
    found->error = (char *(*)(void))(object->dlpi_addr + error->st_value);
    return 1;
}

/* No lock: threads that look at once find and write the same. */
const struct loader *cot_loader(void) {
    static const struct loader absent = {no_open, no_symbol, no_error};
    static struct loader present;
    static bool known;
    if (__builtin_expect(__atomic_load_n(&known, __ATOMIC_ACQUIRE), 1))
        return &present;
    struct loader found;
    if (dl_iterate_phdr(look_in, &found) == 0)
        return &absent; /* libdl may still come, with a library that needs it */
    __atomic_store_n(&present.open, found.open, __ATOMIC_RELAXED);
    __atomic_store_n(&present.symbol, found.symbol, __ATOMIC_RELAXED);
    __atomic_store_n(&present.error, found.error, __ATOMIC_RELAXED);
    __atomic_store_n(&known, true, __ATOMIC_RELEASE);
    return &present;
}

struct search {
    uintptr_t address;
    struct span found;
};

static int spans(struct dl_phdr_info *object, size_t size, void *into) {
    (void)size;
    struct search *search = into;
    struct span span = {UINTPTR_MAX, 0};
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (object->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        span.begin = begin < span.begin ? begin : span.begin;
        span.end =
            begin + object->dlpi_phdr[i].p_memsz > span.end ? begin + object->dlpi_phdr[i].p_memsz : span.end;
    }
    if (search->address < span.begin || search->address >= span.end)
        return 0;
    search->found = span;
    return 1;
}

struct span cot_span(const void *address) {
    struct search search = {.address = (uintptr_t)address};
    dl_iterate_phdr(spans, &search);
    return search.found;
}
