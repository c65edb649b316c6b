/* Holds processes to the limits of their cgroups, which nvmlDeviceSetMemoryLimits_v1 has set.
 *
 * The real driver asks the kernel for a process's cgroup. Here each process finds its own at every charge,
 * while there are limits at all: /proc/self/cgroup names it, the mounts of cgroup filesystems show its folder
 * and those above it, and the inode of a folder is the same for whoever sees it. In a container the mount
 * ends at the container's own cgroup: limits above it are not seen from there. A hierarchy that the container
 * does not have mounted, as v2 beside v1, is matched by the path that /proc/self/cgroup shows where there is
 * no cgroup namespace. */
#define _GNU_SOURCE
#include "state.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LONGEST 4096

/* Both are lists with commas between the names. */
static bool has_any(const char *options, const char *controllers) {
    size_t length = strcspn(controllers, ",");
    for (const char *at = options; *at;) {
        size_t end = strcspn(at, ",");
        if (end == length && !strncmp(at, controllers, length))
            return true;
        at += end + (at[end] == ',');
    }
    return false;
}

/* This process's path in the hierarchy with these mount options, NULL for v2. */
static bool find_path(const char *options, char out[LONGEST]) {
    char line[LONGEST + 256];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        controllers++;
        found = options ? *controllers && has_any(options, controllers) : !*controllers;
        if (found)
            snprintf(out, LONGEST, "%s", path);
    }
    if (file)
        fclose(file);
    return found;
}

static void note_folder(const struct standin_state *state, const char *folder, uint64_t *groups) {
    struct stat found;
    if (stat(folder, &found))
        return;
    for (int i = 0; i < STANDIN_GROUPS; i++)
        if (state->group[i].inode == (uint64_t)found.st_ino &&
            state->group[i].device == (uint64_t)found.st_dev)
            groups[i / 64] |= 1ull << i % 64;
}

/* The folder of this process below a mount, and all above it up to the mount itself. */
static void note_mount(const struct standin_state *state, const char *root, const char *point,
                       const char *path, uint64_t *groups) {
    char folder[2 * LONGEST];
    size_t shown = strcmp(root, "/") ? strlen(root) : 0, top = strlen(point);
    if (strncmp(path, root, shown) || (shown && path[shown] && path[shown] != '/'))
        return;
    snprintf(folder, sizeof folder, "%s%s", point, path + shown);
    for (size_t length = strlen(folder); length >= top; length--) {
        if (length > top && folder[length] && folder[length] != '/')
            continue;
        folder[length] = 0;
        note_folder(state, folder, groups);
    }
}

/* Whether a cgroup's folder is this path in some hierarchy: what comes before it is where that is mounted. */
static bool is_at(const char *folder, const char *path, size_t length) {
    size_t whole = strlen(folder), before = whole - length;
    if (whole <= length || strncmp(folder + before, path, length) || strncmp(folder, "/sys/fs/cgroup", 14))
        return false;
    const char *below = memchr(folder + 14, '/', before - 14 < before ? before - 14 : 0);
    return !below || !memchr(below + 1, '/', before - (size_t)(below + 1 - folder));
}

/* By the names alone: at least two of them, since every hierarchy has the same few at its top. */
static void note_path(const struct standin_state *state, const char *path, uint64_t *groups) {
    for (size_t length = strlen(path); length; length--) {
        if (path[length] && path[length] != '/')
            continue;
        if (!memchr(path + 1, '/', length - 1))
            return;
        for (int i = 0; i < STANDIN_GROUPS; i++)
            if (state->group[i].inode && is_at(state->group[i].path, path, length))
                groups[i / 64] |= 1ull << i % 64;
    }
}

static void note_paths(const struct standin_state *state, uint64_t *groups) {
    char line[LONGEST + 256];
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *path = strchr(line, ':');
        path = path ? strchr(path + 1, ':') : NULL;
        if (path && path[1] == '/' && strncmp(path + 1, "/..", 3))
            note_path(state, path + 1, groups);
    }
    if (file)
        fclose(file);
}

static void find_groups(const struct standin_state *state, uint64_t *groups) {
    char own[LONGEST];
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && getline(&line, &room, file) > 0) {
        char root[LONGEST], point[LONGEST], kind[16], options[512];
        char *rest = strstr(line, " - ");
        if (!rest || sscanf(rest, " - %15s %*s %511s", kind, options) != 2 || strncmp(kind, "cgroup", 6) ||
            sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2)
            continue;
        if (find_path(strcmp(kind, "cgroup2") ? options : NULL, own))
            note_mount(state, root, point, own, groups);
    }
    free(line);
    if (file)
        fclose(file);
}

void standin_join_groups(struct standin_state *state, int entry) {
    if (!__atomic_load_n(&state->limited, __ATOMIC_ACQUIRE) || standin_lock(&state->lock, state, NULL))
        return;
    uint64_t groups[STANDIN_GROUPS / 64] = {0};
    find_groups(state, groups);
    note_paths(state, groups);
    memcpy(state->process[entry].groups, groups, sizeof groups);
    standin_unlock(&state->lock);
}

void standin_forget_group(struct standin_state *state, int group) {
    for (uint64_t i = 0; i < state->high; i++)
        state->process[i].groups[group / 64] &= ~(1ull << group % 64);
    if (state->group[group].inode)
        __atomic_sub_fetch(&state->limited, 1, __ATOMIC_ACQ_REL);
    memset(&state->group[group], 0, sizeof state->group[group]);
}

int standin_passes_limit(const struct standin_state *state, int card, int entry, uint64_t more) {
    for (int i = 0; state->limited && i < STANDIN_GROUPS; i++) {
        const struct standin_limit *limit = &state->group[i].limit[card];
        if (!state->group[i].inode || limit->hard == STANDIN_NO_LIMIT ||
            !standin_in_group(&state->process[entry], i))
            continue;
        uint64_t used = more;
        for (uint64_t j = 0; j < state->high; j++)
            if (standin_in_group(&state->process[j], i))
                used += state->process[j].use[card].used;
        if (used > limit->hard)
            return 1;
    }
    return 0;
}
