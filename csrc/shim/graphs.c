/* Charges graphs with allocation nodes: at launch they take memory from their device's graph memory pool.
 * How much that can be is read from the nodes when the graph is instantiated. */
#include <stdlib.h>

#include "hooks.h"
#include "pools.h"
#include "tables.h"

#define NESTING 8

static uint64_t allocation_bytes(CUgraph graph, int nesting);

static uint64_t node_bytes(CUgraphNode node, int nesting) {
    int type;
    CUgraph child;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters;
    if (cot_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return 0;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && cot_driver.cuGraphMemAllocNodeGetParams &&
        cot_driver.cuGraphMemAllocNodeGetParams(node, &parameters) == CUDA_SUCCESS)
        return parameters.bytesize;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && nesting < NESTING &&
        cot_driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
        return allocation_bytes(child, nesting + 1);
    return 0;
}

static uint64_t allocation_bytes(CUgraph graph, int nesting) {
    size_t count = 0;
    uint64_t total = 0;
    if (cot_driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return 0;
    CUgraphNode *nodes = malloc(count * sizeof *nodes);
    if (nodes != NULL && cot_driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            total += node_bytes(nodes[i], nesting);
    free(nodes);
    return total;
}

static CUresult instantiated(CUresult result, CUgraphExec *exec, CUgraph graph) {
    if (result == CUDA_SUCCESS && slot_present() && cot_self->attachment == ATTACHED) {
        struct record record = {.key = (uint64_t)(uintptr_t)*exec, .size = allocation_bytes(graph, 0)};
        if (record.size)
            table_put(&graphs, &record);
    }
    return result;
}

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                                   size_t size) {
    ENTER(cuGraphInstantiate);
    return instantiated(REAL(cuGraphInstantiate)(exec, graph, node, log, size), exec, graph);
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                                      size_t size) {
    ENTER(cuGraphInstantiate_v2);
    return instantiated(REAL(cuGraphInstantiate_v2)(exec, graph, node, log, size), exec, graph);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags);
    return instantiated(REAL(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *parameters) {
    ENTER(cuGraphInstantiateWithParams);
    return instantiated(REAL(cuGraphInstantiateWithParams)(exec, graph, parameters), exec, graph);
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, void *parameters) {
    ENTER(cuGraphInstantiateWithParams_ptsz);
    return instantiated(REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, parameters), exec, graph);
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(cuGraphExecDestroy);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    struct record gone;
    if (result == CUDA_SUCCESS && slot_present() && cot_self->attachment == ATTACHED)
        table_take(&graphs, (uint64_t)(uintptr_t)exec, &gone);
    return result;
}

static CUresult start(CUgraphExec exec, CUstream stream, CUresult (*real)(CUgraphExec, CUstream)) {
    struct record graph;
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return real(exec, stream);
    slot_note_launch();
    if (__atomic_load_n(&graphs.count, __ATOMIC_RELAXED) == 0 ||
        !table_get(&graphs, (uint64_t)(uintptr_t)exec, &graph))
        return real(exec, stream);
    struct here here = here_now();
    if (here.place == PLACE_REFUSED)
        return here.refusal;
    return here.place == PLACE_CARD ? pool_run_graph(here, graph.size, exec, stream, real)
                                    : real(exec, stream);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    return start(exec, stream, REAL(cuGraphLaunch));
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch_ptsz);
    return start(exec, stream, REAL(cuGraphLaunch_ptsz));
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphUpload);
    return start(exec, stream, REAL(cuGraphUpload));
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphUpload_ptsz);
    return start(exec, stream, REAL(cuGraphUpload_ptsz));
}
