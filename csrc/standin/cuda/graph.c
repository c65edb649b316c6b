/* Builds graphs. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

CUgraphNode *graph_nodes(struct list *list) {
    return list->items;
}

CUresult graph_add(CUgraph graph, const CUgraphNode *dependencies, size_t count, int type, CUgraphNode *out) {
    NEED(graph && out && (dependencies || !count));
    CUgraphNode node = calloc(1, sizeof *node);
    CUgraphNode *place = node ? list_add(&graph->nodes, sizeof node) : NULL;
    if (!place) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->type = type;
    if (count && (node->dependencies = malloc(count * sizeof *dependencies))) {
        memcpy(node->dependencies, dependencies, count * sizeof *dependencies);
        node->dependency_count = count;
    }
    *place = *out = node;
    return CUDA_SUCCESS;
}

/* A node's address is kept by the graph and every executable made of it; `flags` of the block counts them. */
static void node_drop(struct driver *driver, CUgraphNode node) {
    if (node->block && --node->block->flags == 0 && !node->block->charged)
        block_give(driver, node->block);
    free(node->dependencies);
    free(node);
}

void graph_clear(struct list *list) {
    struct driver *driver = driver_get();
    driver_lock(driver);
    for (size_t i = 0; i < list->count; i++)
        node_drop(driver, graph_nodes(list)[i]);
    driver_unlock(driver);
    free(list->items);
    memset(list, 0, sizeof *list);
}

CUresult graph_copy(const struct list *from, struct list *to) {
    struct driver *driver = driver_get();
    for (size_t i = 0; i < from->count; i++) {
        CUgraphNode node = malloc(sizeof *node);
        CUgraphNode *place = node ? list_add(to, sizeof node) : NULL;
        if (!place) {
            free(node);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *node = *((CUgraphNode *)from->items)[i];
        node->dependencies = NULL;
        node->dependency_count = 0;
        driver_lock(driver);
        if (node->block)
            node->block->flags++;
        driver_unlock(driver);
        *place = node;
    }
    return CUDA_SUCCESS;
}

API cuGraphCreate(CUgraph *graph, unsigned int flags) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(graph && flags == 0);
    *graph = calloc(1, sizeof **graph);
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuGraphDestroy(CUgraph graph) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(graph);
    graph_clear(&graph->nodes);
    free(graph);
    return CUDA_SUCCESS;
}

API cuGraphClone(CUgraph *clone, CUgraph original) {
    NEED(clone && original);
    TRY(cuGraphCreate(clone, 0));
    return graph_copy(&original->nodes, &(*clone)->nodes);
}

CUresult graph_add_allocation(CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              CUDA_MEM_ALLOC_NODE_PARAMS *params, CUgraphNode *out) {
    NEED(params && params->bytesize && (int)params->poolProps.location.type == 1);
    struct device *device;
    TRY(device_get(params->poolProps.location.id, &device));
    if (params->bytesize > standin_capacity(device->shared))
        return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(graph_add(graph, dependencies, count, NODE_MEM_ALLOC, out));
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_take(driver, params->bytesize, KIND_GRAPH);
    if (block) {
        block->charged = 0;
        block->device = device;
        block->flags = 1;
        params->dptr = block->address;
    }
    driver_unlock(driver);
    (*out)->block = block;
    (*out)->alloc = *params;
    return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_add_free(CUgraph graph, const CUgraphNode *dependencies, size_t count, CUdeviceptr address,
                        CUgraphNode *out) {
    struct driver *driver = driver_get();
    driver_lock(driver);
    struct block *block = block_find(driver, address);
    bool known = block && block->kind == KIND_GRAPH && block->address == address;
    driver_unlock(driver);
    NEED(known);
    TRY(graph_add(graph, dependencies, count, NODE_MEM_FREE, out));
    (*out)->free = address;
    return CUDA_SUCCESS;
}

API cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    return graph_add_allocation(graph, dependencies, count, params, node);
}

API cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                          CUdeviceptr address) {
    return graph_add_free(graph, dependencies, count, address, node);
}

API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
    NEED(node && params && node->type == NODE_MEM_ALLOC);
    *params = node->alloc;
    return CUDA_SUCCESS;
}

API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address) {
    NEED(node && address && node->type == NODE_MEM_FREE);
    *address = node->free;
    return CUDA_SUCCESS;
}

API cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count) {
    return graph_add(graph, dependencies, count, NODE_EMPTY, node);
}

API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_KERNEL_NODE_PARAMS_v2 *params) {
    NEED(params && (params->func || params->kern));
    TRY(graph_add(graph, dependencies, count, NODE_KERNEL, node));
    (*node)->kernel = *params;
    return CUDA_SUCCESS;
}

API cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS_v1 *params) {
    NEED(params);
    CUDA_KERNEL_NODE_PARAMS_v2 full = {0};
    memcpy(&full, params, sizeof *params);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &full);
}

API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params) {
    NEED(node && params && node->type == NODE_KERNEL);
    *params = node->kernel;
    return CUDA_SUCCESS;
}

API cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                         const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
    NEED(params && context);
    TRY(graph_add(graph, dependencies, count, NODE_MEMSET, node));
    (*node)->fill = *params;
    return CUDA_SUCCESS;
}

API cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                         const CUDA_MEMCPY3D *params, CUcontext context) {
    NEED(params && context);
    TRY(graph_add(graph, dependencies, count, NODE_MEMCPY, node));
    (*node)->copy = *params;
    return CUDA_SUCCESS;
}

API cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                       const CUDA_HOST_NODE_PARAMS *params) {
    NEED(params && params->fn);
    TRY(graph_add(graph, dependencies, count, NODE_HOST, node));
    (*node)->host = *params;
    return CUDA_SUCCESS;
}

API cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                   CUgraphNodeParams *params) {
    NEED(params);
    switch ((int)params->type) {
    case NODE_KERNEL:
        return cuGraphAddKernelNode_v2(node, graph, dependencies, count,
                                       (const CUDA_KERNEL_NODE_PARAMS_v2 *)&params->kernel);
    case NODE_EMPTY:
        return graph_add(graph, dependencies, count, NODE_EMPTY, node);
    case NODE_MEM_ALLOC:
        return graph_add_allocation(graph, dependencies, count, (CUDA_MEM_ALLOC_NODE_PARAMS *)&params->alloc,
                                    node);
    case NODE_MEM_FREE:
        return graph_add_free(graph, dependencies, count, params->free.dptr, node);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params) {
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, params);
}

API cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                      const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params) {
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    NEED(node && type);
    *type = node->type;
    return CUDA_SUCCESS;
}

/* All nodes, or those that depend on none; only their number if there is no room for them. */
static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots) {
    NEED(graph && count);
    size_t room = nodes ? *count : 0, found = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        CUgraphNode node = graph_nodes(&graph->nodes)[i];
        if (roots && node->dependency_count)
            continue;
        if (found < room)
            nodes[found] = node;
        found++;
    }
    for (size_t i = found; i < room; i++)
        nodes[i] = NULL;
    *count = found;
    return CUDA_SUCCESS;
}

API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, false);
}

API cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    return list_nodes(graph, nodes, count, true);
}

/* Edges, in the order of the nodes that they lead to. */
API cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    NEED(graph && count && !from == !to);
    size_t room = from ? *count : 0, found = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        CUgraphNode node = graph_nodes(&graph->nodes)[i];
        for (size_t j = 0; j < node->dependency_count; j++, found++)
            if (found < room) {
                from[found] = node->dependencies[j];
                to[found] = node;
            }
    }
    *count = found;
    return CUDA_SUCCESS;
}

API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                       size_t *count) {
    size_t room = count && from && data ? *count : 0;
    TRY(cuGraphGetEdges(graph, from, to, count));
    memset(data, 0, (room < *count ? room : *count) * sizeof *data);
    return CUDA_SUCCESS;
}

API cuGraphDestroyNode(CUgraphNode node) {
    struct driver *driver = driver_get();
    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(node && node->graph && node->type != NODE_MEM_ALLOC && node->type != NODE_MEM_FREE);
    struct list *nodes = &node->graph->nodes;
    for (size_t i = 0; i < nodes->count; i++)
        if (graph_nodes(nodes)[i] == node) {
            list_remove(nodes, sizeof node, i);
            driver_lock(driver);
            node_drop(driver, node);
            driver_unlock(driver);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}
