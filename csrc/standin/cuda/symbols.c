/* Lists every function that cuGetProcAddress can find, with the CUDA version from which on it is valid. */
#include "symbols.h"

#include <string.h>

/* Only their addresses matter here, so they are declared without their parameters. */
#define SYMBOL(name, version, symbol, per_thread)                                                            \
    int symbol();                                                                                            \
    int per_thread();
#include "symbols.def"
#undef SYMBOL

static const struct symbol symbols[] = {
#define SYMBOL(name, version, symbol, per_thread) {#name, version, symbol, per_thread},
#include "symbols.def"
#undef SYMBOL
};

const struct symbol *symbol_find(const char *name, int version, bool *known) {
    const struct symbol *found = NULL;
    *known = false;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        if (strcmp(symbols[i].name, name))
            continue;
        *known = true;
        if (symbols[i].version <= version)
            found = &symbols[i];
    }
    return found;
}
