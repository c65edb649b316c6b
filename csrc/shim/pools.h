/* Charges memory pools by what the driver reserves for them, not by what the program asks of them. */
#ifndef COTENANT_POOLS_H
#define COTENANT_POOLS_H

#include "contexts.h"
#include "graph_need.h"

struct record;

/* Reads again what every pool holds: after a free or a synchronise it may be less. */
void pools_refresh(void);
/* Has the driver give up what this process's pools and graphs on a card hold without using it; true if that
 * was anything. */
bool pools_trim(int card);
/* Forgets all pools, which in a fork's child are the parent's. */
void pools_clear(void);
/* A context has ended: with the last of a device the driver may have freed its pools' allocations. */
void pools_after_context(void);
/* An allocation that came from a pool was freed; its record is already taken out. */
void pool_freed(const struct record *gone);

/* Calls what lets a graph take memory from its devices' pools for graphs. */
CUresult pools_run(const struct graph_need *need, CUresult (*call)(void *), void *argument);

#endif
