/* Declares glibc's own dynamic loader functions, which this library's hooks stand in front of. */
#ifndef COTENANT_LOADER_H
#define COTENANT_LOADER_H

#include <stdint.h>

struct loader {
    void *(*open)(const char *file, int mode);       /* dlopen */
    void *(*symbol)(void *handle, const char *name); /* dlsym */
    char *(*error)(void); /* dlerror: also clears what a failed call of ours left */
};

/* Finds them at the first call. Each is always callable: without libdl (glibc before 2.34) they answer NULL.
 */
const struct loader *cot_loader(void);

/* Where a loaded library lies in memory. */
struct span {
    uintptr_t begin, end;
};

/* The library that this address is in; empty if there is none. */
struct span cot_span(const void *address);

#endif
