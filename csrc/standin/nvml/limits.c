/* Sets and reports limits of memory by cgroup, as drivers from r615 on do. An older driver's library does not
 * have these functions: nvidia-ml-py reports that as the same error. */
#define _GNU_SOURCE
#include "nvml_abi.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_DRIVER 615
#define DEEPEST 16

static nvmlReturn_t limited(nvmlDevice_t device, const char *path, struct stat *found) {
    struct standin_state *state = nvml_state();
    if (state && strtol(state->driver_version, NULL, 10) < FIRST_DRIVER)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    DEVICE(device);
    NEED(path && *path == '/' && strlen(path) < sizeof state->group[0].path);
    if (device->parent || nvml_has_instances(device))
        return NVML_ERROR_NOT_SUPPORTED;
    char procs[sizeof state->group[0].path + 16];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    if (stat(path, found) || !S_ISDIR(found->st_mode) || access(procs, F_OK))
        return NVML_ERROR_NOT_FOUND;
    return NVML_SUCCESS;
}

static int find(const struct standin_state *state, const struct stat *folder) {
    for (int i = 0; i < STANDIN_GROUPS; i++)
        if (state->group[i].inode == (uint64_t)folder->st_ino &&
            state->group[i].device == (uint64_t)folder->st_dev)
            return i;
    return -1;
}

/* A removed cgroup has no process. One that has a process, or whose folder is there, is kept: the caller may
 * be somewhere where that folder is not to be seen. */
static bool is_gone(const struct standin_state *state, int fd, int group) {
    struct stat now;
    if (stat(state->group[group].path, &now) == 0 && (uint64_t)now.st_ino == state->group[group].inode)
        return false;
    for (uint64_t i = 0; i < state->high; i++)
        if (state->process[i].pid && standin_in_group(&state->process[i], group) && standin_alive(fd, (int)i))
            return false;
    return true;
}

static void forget_gone(struct standin_state *state) {
    int fd = standin_open();
    for (int i = 0; i < STANDIN_GROUPS; i++)
        if (state->group[i].inode && is_gone(state, fd, i))
            standin_forget_group(state, i);
    if (fd >= 0)
        close(fd);
}

static int make(struct standin_state *state, const char *path, const struct stat *folder) {
    for (int i = 0; i < STANDIN_GROUPS; i++) {
        struct standin_group *group = &state->group[i];
        if (group->inode)
            continue;
        snprintf(group->path, sizeof group->path, "%s", path);
        for (int card = 0; card < STANDIN_CARDS; card++)
            group->limit[card] = (struct standin_limit){0, STANDIN_NO_LIMIT};
        group->device = (uint64_t)folder->st_dev;
        group->inode = (uint64_t)folder->st_ino;
        __atomic_add_fetch(&state->limited, 1, __ATOMIC_ACQ_REL);
        return i;
    }
    return -1;
}

static bool has_limits(const struct standin_group *group) {
    for (int card = 0; card < STANDIN_CARDS; card++)
        if (group->limit[card].soft || group->limit[card].hard != STANDIN_NO_LIMIT)
            return true;
    return false;
}

static void note_pid(struct standin_state *state, int group, unsigned pid) {
    for (uint64_t i = 0; i < state->high; i++)
        if (state->process[i].pid && nvml_pid(&state->process[i]) == pid)
            state->process[i].groups[group / 64] |= 1ull << group % 64;
}

/* Processes that were in the cgroup, or below it, before it had limits. */
static void note_members(struct standin_state *state, int group, const char *folder, int depth) {
    char path[LONGEST_PATH];
    unsigned pid;
    snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%u", &pid) == 1)
        note_pid(state, group, pid);
    if (file)
        fclose(file);
    DIR *items = depth < DEEPEST ? opendir(folder) : NULL;
    struct dirent *item;
    while (items && (item = readdir(items)))
        if (item->d_type == DT_DIR && item->d_name[0] != '.' &&
            (size_t)snprintf(path, sizeof path, "%s/%s", folder, item->d_name) < sizeof path)
            note_members(state, group, path, depth + 1);
    if (items)
        closedir(items);
}

API nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, struct nvml_set_memory_limits *limits) {
    struct standin_state *state = nvml_state();
    struct stat folder;
    NEED(limits);
    nvmlReturn_t result = limited(device, limits->name_space, &folder);
    if (result)
        return result;
    if (geteuid())
        return NVML_ERROR_NO_PERMISSION;
    NEED(limits->soft <= limits->hard);
    if (standin_lock(&state->lock, state, NULL))
        return NVML_ERROR_UNKNOWN;
    forget_gone(state);
    bool clears = !limits->soft && limits->hard == STANDIN_NO_LIMIT;
    int found = find(state, &folder);
    bool fresh = found < 0 && !clears;
    if (fresh)
        found = make(state, limits->name_space, &folder);
    if (found >= 0) {
        state->group[found].limit[nvml_index(device)] = (struct standin_limit){limits->soft, limits->hard};
        if (fresh)
            note_members(state, found, limits->name_space, 0);
        if (!has_limits(&state->group[found]))
            standin_forget_group(state, found);
    }
    standin_unlock(&state->lock);
    return found >= 0 || clears ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, struct nvml_get_memory_limits *limits) {
    struct standin_state *state = nvml_state();
    struct stat folder;
    NEED(limits);
    nvmlReturn_t result = limited(device, limits->name_space, &folder);
    if (result)
        return result;
    if (standin_lock(&state->lock, state, NULL))
        return NVML_ERROR_UNKNOWN;
    int index = nvml_index(device), found = find(state, &folder), fd = standin_open();
    limits->soft = found < 0 ? 0 : state->group[found].limit[index].soft;
    limits->hard = found < 0 ? STANDIN_NO_LIMIT : state->group[found].limit[index].hard;
    limits->used = 0;
    for (uint64_t i = 0; found >= 0 && i < state->high; i++)
        if (state->process[i].use[index].used && standin_in_group(&state->process[i], found) &&
            standin_alive(fd, (int)i))
            limits->used += state->process[i].use[index].used;
    if (fd >= 0)
        close(fd);
    standin_unlock(&state->lock);
    return NVML_SUCCESS;
}
