/* Declares graphs, as far as they can hold memory or occupy the GPU. */
#ifndef STANDIN_GRAPH_H
#define STANDIN_GRAPH_H

#include "driver.h"

enum {
    NODE_KERNEL = 0,
    NODE_MEMCPY = 1,
    NODE_MEMSET = 2,
    NODE_HOST = 3,
    NODE_EMPTY = 5,
    NODE_MEM_ALLOC = 10,
    NODE_MEM_FREE = 11
};

struct CUgraphNode_st {
    CUgraph graph;
    int type;
    CUgraphNode *dependencies;
    size_t dependency_count;
    struct block *block; /* MEM_ALLOC: its address, for as long as the node or a copy of it lives */
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr free;
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_HOST_NODE_PARAMS host;
};

struct CUgraph_st {
    struct list nodes; /* CUgraphNode, each after those that it depends on */
};

struct CUgraphExec_st {
    struct list nodes;
    cuuint64_t flags;
};

CUresult graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t count, int type, CUgraphNode *node);
CUresult graph_add_allocation(CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUDA_MEM_ALLOC_NODE_PARAMS *params, CUgraphNode *node);
CUresult graph_add_free(CUgraph graph, const CUgraphNode *dependencies, size_t count, CUdeviceptr address,
                        CUgraphNode *node);
CUgraphNode *graph_nodes(struct list *list);
CUresult graph_copy(const struct list *from, struct list *to);
void graph_clear(struct list *list);

#endif
