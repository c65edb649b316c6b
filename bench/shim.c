/* Measures driver calls from inside a process: `shim.py` runs this with and without the shim.
 *
 *   shim_bench calls            medians of alloc+free, launch and meminfo, in ns
 *   shim_bench hold             take a context and an allocation, print a line, wait for stdin to close
 *   shim_bench start            dlopen, cuInit, context, end
 *   shim_bench spawn N A B      start `A` and `B` (two shell-free argument-less programs) in turn; median us of each
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

typedef unsigned long long u64;
static int (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int), (*set_current)(void *);
static int (*mem_alloc)(u64 *, size_t), (*mem_free)(u64), (*mem_info)(size_t *, size_t *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static int (*module_load)(void **, const void *), (*get_function)(void **, void *, const char *);

static void *driver(const char *name) {
    static void *handle;
    if (handle == NULL && (handle = dlopen("libcuda.so.1", RTLD_NOW)) == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return dlsym(handle, name);
}

static void check(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, result);
        exit(1);
    }
}

static void open_card(void) {
    int device;
    void *context;
    init = driver("cuInit"), device_get = driver("cuDeviceGet");
    retain = driver("cuDevicePrimaryCtxRetain"), set_current = driver("cuCtxSetCurrent");
    mem_alloc = driver("cuMemAlloc_v2"), mem_free = driver("cuMemFree_v2"), mem_info = driver("cuMemGetInfo_v2");
    launch = driver("cuLaunchKernel"), module_load = driver("cuModuleLoadData");
    get_function = driver("cuModuleGetFunction");
    check(init(0), "cuInit");
    check(device_get(&device, 0), "cuDeviceGet");
    check(retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(set_current(context), "cuCtxSetCurrent");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

#define SAMPLES 301
#define MEASURE(rounds, operation)                                                                           \
    ({                                                                                                       \
        static double samples[SAMPLES];                                                                      \
        for (int s = 0; s < SAMPLES; s++) {                                                                  \
            double begin = now();                                                                            \
            for (int i = 0; i < (rounds); i++) {                                                             \
                operation;                                                                                   \
            }                                                                                                \
            samples[s] = (now() - begin) / (rounds);                                                         \
        }                                                                                                    \
        median(samples, SAMPLES);                                                                            \
    })

static void calls(void) {
    u64 address;
    size_t available, total;
    void *module, *function;
    static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
    open_card();
    check(module_load(&module, ptx), "cuModuleLoadData");
    check(get_function(&function, module, "k"), "cuModuleGetFunction");
    double allocation = MEASURE(300, {
        check(mem_alloc(&address, 4 << 20), "cuMemAlloc");
        check(mem_free(address), "cuMemFree");
    });
    double launching = MEASURE(3000, check(launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "cuLaunchKernel"));
    double info = MEASURE(300, check(mem_info(&available, &total), "cuMemGetInfo"));
    printf("%.2f %.2f %.2f\n", allocation, launching, info);
}

static double run_once(const char *self, const char *preload) {
    char *const argv[] = {(char *)self, "start", NULL};
    if (preload)
        setenv("LD_PRELOAD", preload, 1);
    else
        unsetenv("LD_PRELOAD");
    pid_t pid;
    int status;
    double begin = now();
    check(posix_spawn(&pid, self, NULL, NULL, argv, environ), "posix_spawn");
    waitpid(pid, &status, 0);
    check(status, "start");
    return (now() - begin) / 1000;
}

static void spawn(const char *self, int rounds, const char *preload) {
    double *direct = calloc(rounds, sizeof *direct), *shimmed = calloc(rounds, sizeof *shimmed);
    for (int i = 0; i < rounds; i++) {
        direct[i] = run_once(self, NULL);
        shimmed[i] = run_once(self, preload);
    }
    printf("%.1f %.1f\n", median(direct, rounds), median(shimmed, rounds));
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "calls") == 0) {
        calls();
    } else if (strcmp(what, "hold") == 0) {
        u64 address;
        open_card();
        check(mem_alloc(&address, 4 << 20), "cuMemAlloc");
        puts("ready");
        fflush(stdout);
        return getchar() == EOF ? 0 : 0;
    } else if (strcmp(what, "start") == 0) {
        open_card();
    } else if (strcmp(what, "spawn") == 0 && argc == 4) {
        spawn(argv[0], atoi(argv[2]), argv[3]);
    } else {
        fprintf(stderr, "usage: %s calls | hold | start | spawn ROUNDS LIBRARY\n", argv[0]);
        return 2;
    }
    return 0;
}
