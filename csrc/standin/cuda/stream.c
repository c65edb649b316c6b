/* Implements streams and events. */
#include "driver.h"

#include <stdlib.h>

#define LEGACY ((CUstream)1)
#define PER_THREAD ((CUstream)2)

struct CUevent_st {
    unsigned flags;
    bool recorded;
    uint64_t at;
};

/* The stream behind a handle (0 and the two special ones are the context's own) and its context. */
CUresult stream_of(CUstream handle, CUcontext *context, CUstream *stream) {
    TRY(current_context(context));
    if (!handle || handle == LEGACY || handle == PER_THREAD) {
        *stream = &(*context)->legacy;
        return CUDA_SUCCESS;
    }
    *context = handle->context;
    *stream = handle;
    return handle->context->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/* Waiting is when pools give back what they hold above their threshold. */
void synchronise(CUcontext context, uint64_t until) {
    if (until)
        standin_wait(until);
    struct driver *driver = driver_get();
    driver_lock(driver);
    pool_release_unused(context->device, false);
    driver_unlock(driver);
}

API cuCtxSynchronize_v2(CUcontext context) {
    context = context_if_known(context);
    if (!context)
        TRY(current_context(&context));
    synchronise(context, context->device->use->busy_until);
    return CUDA_SUCCESS;
}

API cuCtxSynchronize(void) {
    return cuCtxSynchronize_v2(NULL);
}

API cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(stream && flags < 2);
    CUstream made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context;
    made->flags = flags;
    made->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    made->id = __atomic_add_fetch(&driver_get()->next_id, 1, __ATOMIC_RELAXED);
    *stream = made;
    return CUDA_SUCCESS;
}

API cuStreamCreate(CUstream *stream, unsigned int flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

API cuStreamDestroy_v2(CUstream stream) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!stream || stream == LEGACY || stream == PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    free(stream);
    return CUDA_SUCCESS;
}

API cuStreamSynchronize(CUstream handle) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    if (stream->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    synchronise(context, stream->until);
    return CUDA_SUCCESS;
}

API cuStreamQuery(CUstream handle) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    return stream->until > standin_now() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

API cuStreamGetPriority(CUstream handle, int *priority) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(priority);
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

API cuStreamGetFlags(CUstream handle, unsigned int *flags) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(flags);
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

API cuStreamGetId(CUstream handle, unsigned long long *id) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(id);
    *id = stream->id;
    return CUDA_SUCCESS;
}

API cuStreamGetDevice(CUstream handle, CUdevice *device) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(device);
    *device = context->device->index;
    return CUDA_SUCCESS;
}

API cuStreamGetCtx(CUstream handle, CUcontext *out) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(out);
    *out = context;
    return CUDA_SUCCESS;
}

API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags) {
    (void)flags;
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->recorded && event->at > stream->until)
        stream->until = event->at;
    return CUDA_SUCCESS;
}

API cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t length, unsigned int flags) {
    (void)address, (void)length, (void)flags;
    CUcontext context;
    CUstream stream;
    return stream_of(handle, &context, &stream);
}

/* Host functions run in their place in the stream, here on the thread that gives them. */
API cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(function);
    standin_wait(stream->until);
    function(data);
    return CUDA_SUCCESS;
}

API cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data, unsigned int flags) {
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    NEED(callback && flags == 0);
    standin_wait(stream->until);
    callback(handle, CUDA_SUCCESS, data);
    return CUDA_SUCCESS;
}

API cuEventCreate(CUevent *event, unsigned int flags) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(event && flags < 8);
    CUevent made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->flags = flags;
    *event = made;
    return CUDA_SUCCESS;
}

API cuEventDestroy_v2(CUevent event) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    free(event);
    return CUDA_SUCCESS;
}

API cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned int flags) {
    (void)flags;
    CUcontext context;
    CUstream stream;
    TRY(stream_of(handle, &context, &stream));
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t now = standin_now();
    event->at = stream->until > now ? stream->until : now;
    event->recorded = true;
    return CUDA_SUCCESS;
}

API cuEventRecord(CUevent event, CUstream handle) {
    return cuEventRecordWithFlags(event, handle, 0);
}

API cuEventQuery(CUevent event) {
    CUcontext context;
    TRY(current_context(&context));
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    return event->recorded && event->at > standin_now() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

API cuEventSynchronize(CUevent event) {
    CUcontext context;
    TRY(current_context(&context));
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    synchronise(context, event->recorded ? event->at : 0);
    return CUDA_SUCCESS;
}

API cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    NEED(milliseconds);
    if (!start || !end || !start->recorded || !end->recorded || ((start->flags | end->flags) & 2))
        return CUDA_ERROR_INVALID_HANDLE;
    uint64_t now = standin_now();
    if (start->at > now || end->at > now)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(int64_t)(end->at - start->at) / 1e6);
    return CUDA_SUCCESS;
}

API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
