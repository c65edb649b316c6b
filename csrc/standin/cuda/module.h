/* Declares loaded code. A module and a library are one thing here, as are a function and a kernel: CUDA lets
 * a kernel be launched through either handle. */
#ifndef STANDIN_MODULE_H
#define STANDIN_MODULE_H

#include "driver.h"

#define FUNCTION_ATTRIBUTES 18

struct CUfunc_st {
    CUmodule module;
    char *name;
    CUfunction next;
    int attribute[FUNCTION_ATTRIBUTES];
};

struct global {
    char *name;
    uint64_t size;
    CUdeviceptr address; /* 0 until it is asked for */
    struct global *next;
};

struct CUmod_st {
    bool opaque; /* the image cannot be read: every name is taken to be in it */
    CUfunction functions;
    struct global *globals;
};

/* image.c: what is in an image. */
CUresult image_read(CUmodule module, const void *image);
CUfunction module_add_function(CUmodule module, const char *name, size_t length);
void module_add_global(CUmodule module, const char *name, uint64_t size);

#endif
