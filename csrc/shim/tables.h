/* Records what this process holds: tables from a driver's handle or address to its charge. */
#ifndef COTENANT_TABLES_H
#define COTENANT_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "slot.h"

/* What one allocation costs on its card: whole granules, or bytes that share granules with other small ones.
 */
struct cost {
    uint64_t bytes, small;
    int card;
};

CUresult cost_charge(int card, uint64_t size, struct cost *cost);
void cost_uncharge(const struct cost *cost);
uint64_t round_up(uint64_t value, uint64_t step);

struct record {
    uint64_t key; /* never 0 */
    struct cost cost;
    CUcontext context; /* whose end frees it; NULL for what outlives contexts */
    void *link;        /* a pool, or the memory behind a mapping */
    uint64_t size;
};

struct table {
    struct record *records;
    uint64_t capacity, count;
};

extern struct table allocations, arrays, contexts, handles, mappings, graphs;

/* Each takes the lock of the tables for itself. */
bool table_put(struct table *table, const struct record *record);
bool table_take(struct table *table, uint64_t key, struct record *taken);
bool table_get(struct table *table, uint64_t key, struct record *found);
/* Removes the next record of a context; the cursor begins at 0. */
bool table_take_of(struct table *table, CUcontext context, uint64_t *cursor, struct record *taken);
void tables_clear(void);

#endif
