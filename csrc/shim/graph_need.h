/* Finds out how much memory the allocation nodes of a graph take. */
#ifndef COTENANT_GRAPH_NEED_H
#define COTENANT_GRAPH_NEED_H

#include <stdbool.h>
#include <stdint.h>

#include "cotenant_slot.h"
#include "cuda_abi.h"

struct graph_need {
    unsigned devices;
    struct {
        CUdevice device;
        uint64_t peak; /* the most that they can hold at once while the graph runs */
        uint64_t left; /* what they hold when it has run */
    } on[COT_CARDS];
};

/* False: this machine has not the memory to find out, or there are more devices than a slot can have. */
bool graph_need(CUgraph graph, struct graph_need *need);

#endif
