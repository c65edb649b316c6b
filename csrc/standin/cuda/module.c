/* Implements modules, libraries, functions and kernels. */
#define _GNU_SOURCE
#include "module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FUNCTION_MAX_THREADS = 0,
    FUNCTION_REGISTERS = 4,
    FUNCTION_PTX_VERSION = 5,
    FUNCTION_BINARY_VERSION = 6,
    FUNCTION_MAX_DYNAMIC_SHARED = 8,
    FUNCTION_CARVEOUT = 9
};

CUfunction module_add_function(CUmodule module, const char *name, size_t length) {
    CUfunction function = calloc(1, sizeof *function);
    if (!function || !(function->name = strndup(name, length))) {
        free(function);
        return NULL;
    }
    function->module = module;
    function->attribute[FUNCTION_MAX_THREADS] = 1024;
    function->attribute[FUNCTION_REGISTERS] = 32;
    function->attribute[FUNCTION_MAX_DYNAMIC_SHARED] = 49152;
    function->attribute[FUNCTION_CARVEOUT] = -1;
    function->next = module->functions;
    module->functions = function;
    return function;
}

void module_add_global(CUmodule module, const char *name, uint64_t size) {
    struct global *global = calloc(1, sizeof *global);
    if (!global || !(global->name = strdup(name))) {
        free(global);
        return;
    }
    global->size = size;
    global->next = module->globals;
    module->globals = global;
}

static void module_end(CUmodule module) {
    struct driver *driver = driver_get();
    while (module->functions) {
        CUfunction function = module->functions;
        module->functions = function->next;
        free(function->name);
        free(function);
    }
    while (module->globals) {
        struct global *global = module->globals;
        module->globals = global->next;
        driver_lock(driver);
        struct block *block = global->address ? block_find(driver, global->address) : NULL;
        if (block && block->kind == KIND_GLOBAL)
            block_give(driver, block);
        driver_unlock(driver);
        free(global->name);
        free(global);
    }
    free(module);
}

static CUresult module_load(CUmodule *out, const void *image) {
    NEED(out && image);
    CUmodule module = calloc(1, sizeof *module);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = image_read(module, image);
    if (result == CUDA_SUCCESS)
        *out = module;
    else
        free(module);
    return result;
}

/* The whole file and a terminating 0, for PTX. */
static CUresult file_read(const char *path, void **data, size_t *size) {
    NEED(path);
    FILE *file = fopen(path, "rbe");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    size_t room = 65536;
    *size = 0;
    *data = NULL;
    do {
        room *= 2;
        char *more = realloc(*data, room);
        if (!more)
            break;
        *data = more;
        *size += fread(more + *size, 1, room - 1 - *size, file);
        more[*size] = 0;
    } while (*size == room - 1);
    fclose(file);
    return *data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult module_load_file(CUmodule *module, const char *path) {
    void *data;
    size_t size;
    TRY(file_read(path, &data, &size));
    CUresult result = size ? module_load(module, data) : CUDA_ERROR_INVALID_IMAGE;
    free(data);
    return result;
}

API cuModuleLoadData(CUmodule *module, const void *image) {
    CUcontext context;
    TRY(current_context(&context));
    return module_load(module, image);
}

API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                       void **values) {
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

API cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return cuModuleLoadData(module, image);
}

API cuModuleLoad(CUmodule *module, const char *path) {
    CUcontext context;
    TRY(current_context(&context));
    return module_load_file(module, path);
}

API cuModuleUnload(CUmodule module) {
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    module_end(module);
    return CUDA_SUCCESS;
}

API cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    NEED(mode);
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    NEED(out && name && *name);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (CUfunction function = module->functions; function; function = function->next)
        if (!strcmp(function->name, name)) {
            *out = function;
            return CUDA_SUCCESS;
        }
    if (!module->opaque)
        return CUDA_ERROR_NOT_FOUND;
    *out = module_add_function(module, name, strlen(name));
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuModuleGetFunctionCount(unsigned int *count, CUmodule module) {
    NEED(count && module);
    *count = 0;
    for (CUfunction function = module->functions; function; function = function->next)
        ++*count;
    return CUDA_SUCCESS;
}

API cuModuleEnumerateFunctions(CUfunction *out, unsigned int room, CUmodule module) {
    NEED(out && module);
    for (CUfunction function = module->functions; function && room; function = function->next, room--)
        *out++ = function;
    return CUDA_SUCCESS;
}

/* Memory of globals comes with the module: it does not count. */
API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
    CUcontext context;
    TRY(current_context(&context));
    NEED(module && name);
    struct global *global = module->globals;
    while (global && strcmp(global->name, name))
        global = global->next;
    if (!global)
        return CUDA_ERROR_NOT_FOUND;
    struct driver *driver = driver_get();
    driver_lock(driver);
    if (!global->address) {
        struct block *block = block_take(driver, global->size, KIND_GLOBAL);
        if (block) {
            block->charged = 0;
            block->device = context->device;
            block->context = context;
            memset((void *)(uintptr_t)block->address, 0, block->size);
            block->touched = true;
            global->address = block->address;
        }
    }
    driver_unlock(driver);
    if (address)
        *address = global->address;
    if (size)
        *size = global->size;
    return global->address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values,
                      unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    return module_load((CUmodule *)library, code);
}

API cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
                          unsigned int jit_count, CUlibraryOption *options, void **values,
                          unsigned int count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    if (!driver_get())
        return CUDA_ERROR_NOT_INITIALIZED;
    return module_load_file((CUmodule *)library, path);
}

API cuLibraryUnload(CUlibrary library) {
    return cuModuleUnload((CUmodule)library);
}

API cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    return cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

API cuLibraryGetKernelCount(unsigned int *count, CUlibrary library) {
    return cuModuleGetFunctionCount(count, (CUmodule)library);
}

API cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int room, CUlibrary library) {
    return cuModuleEnumerateFunctions((CUfunction *)kernels, room, (CUmodule)library);
}

API cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    NEED(module && library);
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

API cuLibraryGetGlobal(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name) {
    return cuModuleGetGlobal_v2(address, size, (CUmodule)library, name);
}

API cuLibraryGetManaged(CUdeviceptr *address, size_t *size, CUlibrary library, const char *name) {
    return cuModuleGetGlobal_v2(address, size, (CUmodule)library, name);
}

API cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    NEED(function && kernel);
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

API cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    NEED(library && kernel);
    *library = (CUlibrary)((CUfunction)kernel)->module;
    return CUDA_SUCCESS;
}

API cuFuncGetModule(CUmodule *module, CUfunction function) {
    NEED(module && function);
    *module = function->module;
    return CUDA_SUCCESS;
}

API cuFuncGetName(const char **name, CUfunction function) {
    NEED(name && function);
    *name = function->name;
    return CUDA_SUCCESS;
}

API cuKernelGetName(const char **name, CUkernel kernel) {
    return cuFuncGetName(name, (CUfunction)kernel);
}

API cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    NEED(state && function);
    *state = 1;
    return CUDA_SUCCESS;
}

API cuFuncLoad(CUfunction function) {
    NEED(function);
    return CUDA_SUCCESS;
}

static CUresult attribute_get(int *value, int attribute, CUfunction function, const struct device *device) {
    NEED(value && function && attribute >= 0 && attribute < FUNCTION_ATTRIBUTES);
    bool version = attribute == FUNCTION_PTX_VERSION || attribute == FUNCTION_BINARY_VERSION;
    *value =
        version ? (int)(device->shared->major * 10 + device->shared->minor) : function->attribute[attribute];
    return CUDA_SUCCESS;
}

API cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    CUcontext context;
    TRY(current_context(&context));
    return attribute_get(value, (int)attribute, function, context->device);
}

API cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    NEED(function && (int)attribute >= FUNCTION_MAX_DYNAMIC_SHARED && (int)attribute < FUNCTION_ATTRIBUTES);
    function->attribute[attribute] = value;
    return CUDA_SUCCESS;
}

API cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice index) {
    struct device *device;
    TRY(device_get(index, &device));
    return attribute_get(value, (int)attribute, (CUfunction)kernel, device);
}

API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    (void)device;
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

API cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    (void)config;
    NEED(function);
    return CUDA_SUCCESS;
}

API cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    (void)device;
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

API cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
    (void)config;
    NEED(function);
    return CUDA_SUCCESS;
}

/* The linker passes on the last image that it was given. */
struct CUlinkState_st {
    void *data;
    size_t size;
};

API cuLinkCreate_v2(unsigned int count, CUjit_option *options, void **values, CUlinkState *out) {
    (void)count, (void)options, (void)values;
    CUcontext context;
    TRY(current_context(&context));
    NEED(out);
    *out = calloc(1, sizeof **out);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API cuLinkAddData_v2(CUlinkState link, CUjitInputType type, void *data, size_t size, const char *name,
                     unsigned int count, CUjit_option *options, void **values) {
    (void)type, (void)name, (void)count, (void)options, (void)values;
    NEED(link && data && size);
    char *copy = malloc(size + 1);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, data, size);
    copy[size] = 0;
    free(link->data);
    link->data = copy;
    link->size = size;
    return CUDA_SUCCESS;
}

API cuLinkAddFile_v2(CUlinkState link, CUjitInputType type, const char *path, unsigned int count,
                     CUjit_option *options, void **values) {
    void *data;
    size_t size;
    TRY(file_read(path, &data, &size));
    CUresult result = cuLinkAddData_v2(link, type, data, size, path, count, options, values);
    free(data);
    return result;
}

API cuLinkComplete(CUlinkState link, void **data, size_t *size) {
    NEED(link && data && link->data);
    *data = link->data;
    if (size)
        *size = link->size;
    return CUDA_SUCCESS;
}

API cuLinkDestroy(CUlinkState link) {
    NEED(link);
    free(link->data);
    free(link);
    return CUDA_SUCCESS;
}
