/* Plays a container for bench.agent: enters its cgroup, takes memory of a GPU, says so and keeps it until it is killed.
 *
 *     agent_tenant CGROUP DEVICE BYTES
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

typedef int (*call)();

static call find(void *cuda, const char *name) {
    call found = (call)dlsym(cuda, name);
    if (found == NULL) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

int main(int count, char **words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count != 4)
        return 2;
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.procs", words[1]);
    FILE *procs = fopen(path, "w");
    if (procs == NULL || fprintf(procs, "%d", getpid()) < 0 || fclose(procs) != 0)
        return 3;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (cuda == NULL)
        return 4;
    void *context = NULL;
    unsigned long long address = 0;
    int failed = find(cuda, "cuInit")(0) || find(cuda, "cuDevicePrimaryCtxRetain")(&context, atoi(words[2])) ||
                 find(cuda, "cuCtxSetCurrent")(context) ||
                 find(cuda, "cuMemAlloc_v2")(&address, (size_t)atoll(words[3]));
    puts(failed ? "fails" : "holds");
    fflush(stdout);
    for (;;)
        pause();
}
