/* Charges memory pools by what the driver reserves for them, not by what the program asks of them. */
#ifndef COTENANT_POOLS_H
#define COTENANT_POOLS_H

#include "contexts.h"

struct record;

/* Reads again what every pool holds: after a free or a synchronise it may be less. */
void pools_refresh(void);
/* Forgets all pools, which in a fork's child are the parent's. */
void pools_clear(void);
/* An allocation that came from a pool was freed; its record is already taken out. */
void pool_freed(const struct record *gone);
/* Starts a graph that may take `size` bytes from its device's pool for graphs. */
CUresult pool_run_graph(struct here here, uint64_t size, CUgraphExec exec, CUstream stream,
                        CUresult (*start)(CUgraphExec, CUstream));

#endif
