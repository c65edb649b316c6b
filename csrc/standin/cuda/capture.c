/* Implements stream capture: launches, stream-ordered allocations and frees become graph nodes, in order. */
#include "graph.h"

CUresult capture_allocation(CUstream stream, uint64_t size, CUmemoryPool pool, CUdeviceptr *address) {
    struct device *device = pool && pool->device ? pool->device : stream->context->device;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.bytesize = size};
    params.poolProps.allocType = 1;
    params.poolProps.location.type = 1;
    params.poolProps.location.id = device->index;
    CUgraphNode last = stream->capture_last, node = NULL;
    TRY(graph_add_allocation(stream->capture, &last, last != NULL, &params, &node));
    stream->capture_last = node;
    *address = params.dptr;
    return CUDA_SUCCESS;
}

CUresult capture_free(CUstream stream, CUdeviceptr address) {
    CUgraphNode last = stream->capture_last, node = NULL;
    TRY(graph_add_free(stream->capture, &last, last != NULL, address, &node));
    stream->capture_last = node;
    return CUDA_SUCCESS;
}

CUresult capture_kernel(CUstream stream, CUfunction function) {
    CUgraphNode last = stream->capture_last, node = NULL;
    TRY(graph_add(stream->capture, &last, last != NULL, NODE_KERNEL, &node));
    node->kernel.func = function;
    stream->capture_last = node;
    return CUDA_SUCCESS;
}

API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
    (void)mode;
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    if (stream == &context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture_last = NULL;
    return cuGraphCreate(&stream->capture, 0);
}

API cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(graph);
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    *graph = stream->capture;
    stream->capture = NULL;
    return CUDA_SUCCESS;
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(status);
    *status = stream->capture ? 1 : 0;
    return CUDA_SUCCESS;
}

API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                              const CUgraphNode **dependencies, size_t *count) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(status);
    *status = stream->capture ? 1 : 0;
    if (id)
        *id = stream->id;
    if (graph)
        *graph = stream->capture;
    if (dependencies)
        *dependencies = &stream->capture_last;
    if (count)
        *count = stream->capture && stream->capture_last ? 1 : 0;
    return CUDA_SUCCESS;
}

API cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                              const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
                              size_t *count) {
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count);
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    NEED(mode);
    *mode = 0;
    return CUDA_SUCCESS;
}
