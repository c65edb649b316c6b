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
    uint64_t size;     /* bytes, or how often it is held */
};

struct table {
    struct record *records;
    uint64_t capacity, count;
};

extern struct table allocations, arrays, contexts, greens, handles, pools, graphs;

/* Each takes the lock of the tables for itself. */
bool table_put(struct table *table, const struct record *record);
/* The same for what the driver has just given. If there is a record of that key, its memory was freed in a
 * way that is about to be seen: with a context that another thread ends. It comes back in `old`. */
bool table_put_new(struct table *table, const struct record *record, struct record *old, bool *replaced);
bool table_take(struct table *table, uint64_t key, struct record *taken);
bool table_get(struct table *table, uint64_t key, struct record *found);
/* Adds to a record's `size` and removes it when that is 0; the record as it is then. */
bool table_count(struct table *table, uint64_t key, int change, struct record *counted);
/* Removes every record that is wanted, all under one lock: others move records while it is free. */
void table_sweep(struct table *table, bool (*wanted)(const struct record *, const void *), const void *of,
                 void (*removed)(const struct record *));
void tables_clear(void);

#endif
