/* Charges graphs with allocation nodes: at launch they take memory from their device's graph memory pool.
 * How much that can be is read from the graph when it is instantiated. */
#include <stdlib.h>

#include "graph_need.h"
#include "hooks.h"
#include "pools.h"
#include "tables.h"

/* What is called with a graph's need at hand. */
struct making {
    CUgraphExec *exec;
    CUgraph graph;
    CUDA_GRAPH_INSTANTIATE_PARAMS *parameters;
    CUresult (*real)(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
};

struct starting {
    CUgraphExec exec;
    CUstream stream;
    CUresult (*real)(CUgraphExec, CUstream);
};

static CUresult make(void *argument) {
    struct making *making = argument;
    return making->real(making->exec, making->graph, making->parameters);
}

static CUresult start(void *argument) {
    struct starting *starting = argument;
    return starting->real(starting->exec, starting->stream);
}

/* The graph of an executable may change after it was made: what counts is what it was then. */
static CUresult keep(CUgraphExec exec, const struct graph_need *need) {
    struct record record = {.key = (uint64_t)(uintptr_t)exec, .link = malloc(sizeof *need)};
    if (record.link == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *(struct graph_need *)record.link = *need;
    return table_put(&graphs, &record) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A graph can be made before this process has used a card. */
static CUresult known_need(CUgraph graph, struct graph_need *need) {
    if (!graph_need(graph, need))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return need->devices == 0 || slot_attached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

static CUresult instantiated(CUresult result, CUgraphExec *exec, CUgraph graph) {
    struct graph_need need;
    if (result != CUDA_SUCCESS || !slot_present())
        return result;
    result = known_need(graph, &need);
    if (result == CUDA_SUCCESS && need.devices)
        result = keep(*exec, &need);
    if (result != CUDA_SUCCESS)
        REAL(cuGraphExecDestroy)(*exec);
    return result;
}

/* This form can also upload what it makes, which takes the memory at once. */
static CUresult instantiate(struct making making) {
    struct graph_need need = {0};
    if (slot_present() && making.graph != NULL && making.parameters != NULL &&
        making.parameters->flags & CU_GRAPH_INSTANTIATE_FLAG_UPLOAD) {
        CUresult result = known_need(making.graph, &need);
        if (result != CUDA_SUCCESS)
            return result;
    }
    CUresult result = need.devices ? pools_run(&need, make, &making) : make(&making);
    return instantiated(result, making.exec, making.graph);
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

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    ENTER(cuGraphInstantiateWithParams);
    return instantiate((struct making){exec, graph, parameters, REAL(cuGraphInstantiateWithParams)});
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    ENTER(cuGraphInstantiateWithParams_ptsz);
    return instantiate((struct making){exec, graph, parameters, REAL(cuGraphInstantiateWithParams_ptsz)});
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(cuGraphExecDestroy);
    struct record gone;
    bool known = slot_present() && cot_self->attachment == ATTACHED &&
                 table_take(&graphs, (uint64_t)(uintptr_t)exec, &gone);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (known && result != CUDA_SUCCESS)
        table_put(&graphs, &gone);
    else if (known)
        free(gone.link);
    return result;
}

static CUresult start_charged(struct starting starting) {
    struct record graph;
    if (!slot_present() || cot_self->attachment != ATTACHED)
        return start(&starting);
    slot_note_launch();
    if (__atomic_load_n(&graphs.count, __ATOMIC_RELAXED) == 0 ||
        !table_get(&graphs, (uint64_t)(uintptr_t)starting.exec, &graph))
        return start(&starting);
    struct graph_need need = *(struct graph_need *)graph.link;
    return pools_run(&need, start, &starting);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    return start_charged((struct starting){exec, stream, REAL(cuGraphLaunch)});
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch_ptsz);
    return start_charged((struct starting){exec, stream, REAL(cuGraphLaunch_ptsz)});
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphUpload);
    return start_charged((struct starting){exec, stream, REAL(cuGraphUpload)});
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphUpload_ptsz);
    return start_charged((struct starting){exec, stream, REAL(cuGraphUpload_ptsz)});
}
