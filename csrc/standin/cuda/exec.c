/* Runs graphs. Memory of their allocation nodes is taken from the GPU at the first launch or upload, is used
 * by the graph that runs next, and stays until cuDeviceGraphMemTrim. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

enum { FLAG_AUTO_FREE = 1, FLAG_UPLOAD = 2 };

static uint64_t node_bytes(CUgraphNode node) {
    return round_up(node->alloc.bytesize, SMALL_STEP);
}

/* The block stays with its node; it is only no longer in use. With the lock held. */
void graph_memory_return(struct block *block) {
    block->device->graphs.used -= block->charged;
    block->charged = 0;
    if (!block->flags)
        block_give(driver_get(), block);
}

static CUgraphNode node_of(CUgraphExec exec, CUdeviceptr address) {
    for (size_t i = 0; i < exec->nodes.count; i++) {
        CUgraphNode node = graph_nodes(&exec->nodes)[i];
        if (node->type == NODE_MEM_ALLOC && node->block->address == address)
            return node;
    }
    return NULL;
}

/* The most that the graph's allocations on this device hold at once while it runs. */
static uint64_t peak_on(CUgraphExec exec, struct device *device) {
    uint64_t held = 0, peak = 0;
    for (size_t i = 0; i < exec->nodes.count; i++) {
        CUgraphNode node = graph_nodes(&exec->nodes)[i];
        CUgraphNode freed = node->type == NODE_MEM_FREE ? node_of(exec, node->free) : NULL;
        if (node->type == NODE_MEM_ALLOC && node->block->device == device)
            held += node_bytes(node);
        if (freed && freed->block->device == device)
            held -= node_bytes(freed);
        peak = held > peak ? held : peak;
    }
    return peak;
}

static CUresult reserve(CUgraphExec exec) {
    struct driver *driver = driver_get();
    for (int i = 0; i < driver->devices; i++) {
        struct device *device = &driver->device[i];
        struct graph_memory *memory = &device->graphs;
        uint64_t needed = round_up(memory->used + peak_on(exec, device), STANDIN_GRANULE);
        if (needed <= memory->reserved)
            continue;
        uint64_t used = memory->used;
        memory->used = memory->reserved; /* what is there is needed: do not give it up to make room */
        CUresult result = device_charge(device, needed - memory->reserved);
        memory->used = used;
        TRY(result);
        memory->reserved = needed;
        if (needed > memory->reserved_high)
            memory->reserved_high = needed;
    }
    return CUDA_SUCCESS;
}

/* Allocation nodes whose memory an earlier launch left in use. */
static CUresult settle(CUgraphExec exec) {
    for (size_t i = 0; i < exec->nodes.count; i++) {
        CUgraphNode node = graph_nodes(&exec->nodes)[i];
        if (node->type != NODE_MEM_ALLOC || !node->block->charged)
            continue;
        NEED(exec->flags & FLAG_AUTO_FREE);
        graph_memory_return(node->block);
    }
    return CUDA_SUCCESS;
}

static void run_memory(struct driver *driver, CUgraphExec exec) {
    for (size_t i = 0; i < exec->nodes.count; i++) {
        CUgraphNode node = graph_nodes(&exec->nodes)[i];
        if (node->type == NODE_MEM_ALLOC) {
            struct graph_memory *memory = &node->block->device->graphs;
            node->block->charged = node_bytes(node);
            memory->used += node->block->charged;
            memory->used_high = memory->used > memory->used_high ? memory->used : memory->used_high;
        } else if (node->type == NODE_MEM_FREE) {
            struct block *block = block_find(driver, node->free);
            if (block && block->kind == KIND_GRAPH && block->charged)
                graph_memory_return(block);
        }
    }
}

static CUresult run_work(CUgraphNode node, CUcontext context, CUstream stream) {
    const CUDA_MEMSET_NODE_PARAMS *f = &node->fill;
    switch (node->type) {
    case NODE_KERNEL:
        return launch(context, stream);
    case NODE_MEMCPY:
        return cuMemcpy3D_v2(&node->copy);
    case NODE_MEMSET:
        return f->elementSize == 1
                   ? cuMemsetD2D8_v2(f->dst, f->pitch, (unsigned char)f->value, f->width, f->height)
               : f->elementSize == 2
                   ? cuMemsetD2D16_v2(f->dst, f->pitch, (unsigned short)f->value, f->width, f->height)
                   : cuMemsetD2D32_v2(f->dst, f->pitch, f->value, f->width, f->height);
    case NODE_HOST:
        standin_wait(stream->until);
        node->host.fn(node->host.userData);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

API cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(out && graph);
    CUgraphExec exec = calloc(1, sizeof *exec);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->flags = flags;
    TRY(graph_copy(&graph->nodes, &exec->nodes));
    *out = exec;
    return CUDA_SUCCESS;
}

API cuGraphInstantiate_v2(CUgraphExec *out, CUgraph graph, CUgraphNode *error, char *log, size_t size) {
    if (error)
        *error = NULL;
    if (log && size)
        *log = 0;
    return cuGraphInstantiateWithFlags(out, graph, 0);
}

API cuGraphUpload(CUgraphExec exec, CUstream handle) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(exec);
    struct driver *driver = driver_get();
    driver_lock(driver);
    CUresult result = reserve(exec);
    driver_unlock(driver);
    return result;
}

API cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
    NEED(params);
    params->hErrNode_out = NULL;
    params->result_out = 0;
    TRY(cuGraphInstantiateWithFlags(out, graph, params->flags));
    return params->flags & FLAG_UPLOAD ? cuGraphUpload(*out, params->hUploadStream) : CUDA_SUCCESS;
}

API cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(exec);
    struct driver *driver = driver_get();
    driver_lock(driver);
    CUresult result = settle(exec);
    if (result == CUDA_SUCCESS)
        result = reserve(exec);
    if (result == CUDA_SUCCESS)
        run_memory(driver, exec);
    driver_unlock(driver);
    TRY(result);
    for (size_t i = 0; i < exec->nodes.count; i++)
        TRY(run_work(graph_nodes(&exec->nodes)[i], context, stream));
    return CUDA_SUCCESS;
}

API cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
    NEED(exec && flags);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

API cuGraphExecDestroy(CUgraphExec exec) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    NEED(exec);
    graph_clear(&exec->nodes);
    free(exec);
    return CUDA_SUCCESS;
}

API cuDeviceGraphMemTrim(CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    struct driver *driver = driver_get();
    struct graph_memory *memory = &device->graphs;
    driver_lock(driver);
    uint64_t needed = round_up(memory->used, STANDIN_GRANULE);
    if (needed < memory->reserved) {
        device_uncharge(device, memory->reserved - needed);
        memory->reserved = needed;
    }
    driver_unlock(driver);
    return CUDA_SUCCESS;
}

enum { GRAPH_USED = 0, GRAPH_USED_HIGH = 1, GRAPH_RESERVED = 2, GRAPH_RESERVED_HIGH = 3 };

API cuDeviceGetGraphMemAttribute(CUdevice index, CUgraphMem_attribute attribute, void *value) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(value && (unsigned)attribute <= GRAPH_RESERVED_HIGH);
    const struct graph_memory *memory = &device->graphs;
    const uint64_t figures[] = {memory->used, memory->used_high, memory->reserved, memory->reserved_high};
    *(cuuint64_t *)value = figures[attribute];
    return CUDA_SUCCESS;
}

API cuDeviceSetGraphMemAttribute(CUdevice index, CUgraphMem_attribute attribute, void *value) {
    struct device *device;
    TRY(device_get(index, &device));
    NEED(value && *(cuuint64_t *)value == 0);
    if ((int)attribute == GRAPH_USED_HIGH)
        device->graphs.used_high = device->graphs.used;
    else if ((int)attribute == GRAPH_RESERVED_HIGH)
        device->graphs.reserved_high = device->graphs.reserved;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
