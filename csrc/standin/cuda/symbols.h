#ifndef STANDIN_SYMBOLS_H
#define STANDIN_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>

struct symbol {
    const char *name;
    int version;
    int (*function)();
    int (*per_thread)();
};

/* The newest function of this name that a program written for `version` may get; `known` says that there is
 * at least a newer one. */
const struct symbol *symbol_find(const char *name, int version, bool *known);

#endif
