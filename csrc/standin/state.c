/* Maps the shared file, owns this process's entry in it, and charges GPUs. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#define F_OFD_SETLKW 38
#endif

/* Set by the first map; never unmapped, since other threads may be in it. The path is kept: programs
 * change their directory and clear their environment. */
static struct standin_state *mapped;
static char mapped_path[4096];
static dev_t mapped_device;
static ino_t mapped_inode;

int standin_open(void) {
    const char *path = *mapped_path ? mapped_path : getenv("COTENANT_STANDIN");
    return path && *path ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

static int byte_lock(int fd, int command, uint64_t byte, struct flock *out) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    int result = fcntl(fd, command, &lock);
    if (out)
        *out = lock;
    return result;
}

/* Alive is who holds the lock on its byte. If that cannot be asked, nobody is declared dead. */
int standin_alive(int fd, int entry) {
    struct flock lock;
    if (fd < 0 || byte_lock(fd, F_OFD_GETLK, STANDIN_LOCK_PROCESS + (uint64_t)entry, &lock) < 0)
        return 1;
    return lock.l_type != F_UNLCK;
}

/* The writer of the file knows nothing of pthreads: the first user makes the mutexes. */
static void make_mutexes(struct standin_state *state, int fd) {
    if (__atomic_load_n(&state->mutexes, __ATOMIC_ACQUIRE))
        return;
    while (byte_lock(fd, F_OFD_SETLKW, STANDIN_LOCK_SETUP, NULL) < 0 && errno == EINTR)
        ;
    if (!state->mutexes) {
        pthread_mutexattr_t robust;
        pthread_mutexattr_init(&robust);
        pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&state->lock.mutex, &robust);
        for (int i = 0; i < STANDIN_CARDS; i++)
            pthread_mutex_init(&state->card[i].lock.mutex, &robust);
        pthread_mutexattr_destroy(&robust);
        __atomic_store_n(&state->mutexes, 1, __ATOMIC_RELEASE);
    }
    /* by hand: the mapping keeps the file open, and with it the lock, beyond close() */
    struct flock none = {
        .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = (off_t)STANDIN_LOCK_SETUP, .l_len = 1};
    fcntl(fd, F_OFD_SETLK, &none);
}

struct standin_state *standin_map(void) {
    struct standin_state *state = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
    if (state)
        return state;
    int fd = standin_open();
    struct stat info;
    if (fd < 0)
        return NULL;
    if (fstat(fd, &info) == 0 && info.st_size == (off_t)sizeof *state) {
        state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (state == MAP_FAILED)
            state = NULL;
        else if (memcmp(state->magic, STANDIN_MAGIC, 8) || state->abi != STANDIN_ABI ||
                 state->cards > STANDIN_CARDS) {
            munmap(state, sizeof *state);
            state = NULL;
        }
    }
    if (state) {
        make_mutexes(state, fd);
        struct standin_state *none = NULL;
        if (!__atomic_compare_exchange_n(&mapped, &none, state, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            munmap(state, sizeof *state);
            state = none;
        } else {
            mapped_device = info.st_dev;
            mapped_inode = info.st_ino;
            if (!realpath(getenv("COTENANT_STANDIN"), mapped_path))
                *mapped_path = 0;
        }
    }
    close(fd);
    return state;
}

struct standin_state *standin_map_again(void) {
    char path[sizeof mapped_path];
    struct stat now;
    const char *wanted = getenv("COTENANT_STANDIN");
    bool same = wanted && realpath(wanted, path) && !strcmp(path, mapped_path) && stat(path, &now) == 0 &&
                now.st_dev == mapped_device && now.st_ino == mapped_inode;
    if (!same) {
        mapped = NULL;
        *mapped_path = 0;
    }
    return standin_map();
}

/* The holder before was killed inside: the entries are right, the sum may not be. */
static void recount(struct standin_state *state, struct standin_card *card) {
    uint64_t sum = 0;
    int index = (int)(card - state->card);
    for (uint64_t i = 0; i < state->high; i++)
        sum += state->process[i].use[index].used;
    card->used = sum;
    card->version += card->version & 1;
}

int standin_lock(union standin_mutex *lock, struct standin_state *state, struct standin_card *card) {
    int result = pthread_mutex_lock(&lock->mutex);
    if (result == EOWNERDEAD) {
        if (card)
            recount(state, card);
        pthread_mutex_consistent(&lock->mutex);
        result = 0;
    }
    return result;
}

void standin_unlock(union standin_mutex *lock) {
    pthread_mutex_unlock(&lock->mutex);
}

/* Readers without the lock (standin.py) take only what they saw between two equal, even versions. */
static void change(struct standin_card *card, struct standin_use *use, uint64_t used, uint64_t context) {
    uint64_t sum = card->used - use->used + used;
    __atomic_store_n(&card->version, card->version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&use->used, used, __ATOMIC_RELAXED);
    __atomic_store_n(&use->context, context, __ATOMIC_RELAXED);
    __atomic_store_n(&card->used, sum, __ATOMIC_RELAXED);
    if (sum > card->peak)
        card->peak = sum;
    __atomic_store_n(&card->version, card->version + 1, __ATOMIC_RELEASE);
}

enum answer { FULL, CHARGED, PASSES_LIMIT };

static enum answer try_charge(struct standin_state *state, int index, int entry, uint64_t bytes,
                              uint64_t context) {
    struct standin_card *card = &state->card[index];
    struct standin_use *use = &state->process[entry].use[index];
    if (standin_lock(&card->lock, state, card))
        return FULL;
    uint64_t capacity = standin_capacity(card);
    int fits = bytes + context <= capacity && card->used <= capacity - bytes - context;
    enum answer answer = !fits                                                        ? FULL
                         : standin_passes_limit(state, index, entry, bytes + context) ? PASSES_LIMIT
                                                                                      : CHARGED;
    if (answer == CHARGED)
        change(card, use, use->used + bytes + context, use->context + context);
    standin_unlock(&card->lock);
    return answer;
}

int standin_try_charge(struct standin_state *state, int card, int entry, uint64_t bytes) {
    return try_charge(state, card, entry, bytes, 0) == CHARGED;
}

/* The kernel does not let process 1 of a namespace kill itself: that one exits. */
static _Noreturn void end_process(void) {
    kill(getpid(), SIGKILL);
    _exit(128 + SIGKILL);
}

/* In one change: at no moment is the memory nobody's, or counted twice. */
void standin_move(struct standin_state *state, int index, int from, int to, uint64_t bytes) {
    struct standin_card *card = &state->card[index];
    struct standin_use *old = &state->process[from].use[index], *new = &state->process[to].use[index];
    if (standin_lock(&card->lock, state, card))
        return;
    __atomic_store_n(&card->version, card->version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&old->used, old->used - bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&new->used, new->used + bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&card->version, card->version + 1, __ATOMIC_RELEASE);
    standin_unlock(&card->lock);
}

int standin_charge(struct standin_state *state, int card, int entry, uint64_t bytes, uint64_t context) {
    standin_join_groups(state, entry);
    enum answer answer = try_charge(state, card, entry, bytes, context);
    if (answer != CHARGED) {
        standin_reap(state);
        answer = try_charge(state, card, entry, bytes, context);
    }
    if (answer == PASSES_LIMIT)
        end_process();
    return answer == CHARGED;
}

void standin_uncharge(struct standin_state *state, int index, int entry, uint64_t bytes, uint64_t context) {
    struct standin_card *card = &state->card[index];
    struct standin_use *use = &state->process[entry].use[index];
    if (standin_lock(&card->lock, state, card))
        return;
    change(card, use, use->used - bytes - context, use->context - context);
    standin_unlock(&card->lock);
}

/* Call with the state's lock held and the entry's byte locked or nobody's. */
static void clear_entry(struct standin_state *state, int fd, int entry) {
    struct standin_process *process = &state->process[entry];
    standin_leave_all(state, fd, entry);
    for (uint32_t i = 0; i < state->cards; i++) {
        struct standin_card *card = &state->card[i];
        if (standin_lock(&card->lock, state, card))
            continue;
        change(card, &process->use[i], 0, 0);
        memset(&process->use[i], 0, sizeof process->use[i]);
        standin_unlock(&card->lock);
    }
    memset(process->groups, 0, sizeof process->groups);
    process->pid = 0;
}

void standin_reap(struct standin_state *state) {
    int fd = standin_open();
    if (fd < 0)
        return;
    if (standin_lock(&state->lock, state, NULL) == 0) {
        for (uint64_t i = 0; i < state->high; i++)
            if (state->process[i].pid && !standin_alive(fd, (int)i))
                clear_entry(state, fd, (int)i);
        standin_unlock(&state->lock);
    }
    close(fd);
}

static uint64_t start_time(void) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    char *field = strrchr(text, ')'); /* the name before it may hold anything */
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

static void fill_entry(struct standin_process *process) {
    struct stat namespace;
    process->namespace = stat("/proc/self/ns/pid", &namespace) == 0 ? (uint64_t)namespace.st_ino : 0;
    process->started = start_time();
    memset(process->name, 0, sizeof process->name);
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t length = read(fd, process->name, sizeof process->name - 1);
        if (length > 0 && process->name[length - 1] == '\n')
            process->name[length - 1] = 0;
        close(fd);
    }
    process->generation++;
    __atomic_store_n(&process->pid, (uint64_t)getpid(), __ATOMIC_RELEASE);
}

/* The byte's lock belongs to the open file, and a mapping keeps that open after its descriptor is closed.
 * So it ends exactly with this process's memory: a fork's child does not have the page, exec drops it,
 * and a program that closes all descriptors keeps its entry. */
int standin_attach(struct standin_state *state) {
    int fd = standin_open();
    int found = -1;
    if (fd < 0)
        return -1;
    void *page = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED || madvise(page, 1, MADV_DONTFORK) || standin_lock(&state->lock, state, NULL)) {
        close(fd);
        return -1;
    }
    for (int i = 0; found < 0 && i < STANDIN_PROCESSES; i++)
        if (byte_lock(fd, F_OFD_SETLK, STANDIN_LOCK_PROCESS + (uint64_t)i, NULL) == 0)
            found = i;
    if (found >= 0) {
        clear_entry(state, fd, found);
        if ((uint64_t)found >= state->high)
            state->high = (uint64_t)found + 1;
        fill_entry(&state->process[found]);
    } else {
        munmap(page, 1);
    }
    standin_unlock(&state->lock);
    close(fd);
    return found;
}

int standin_holders(struct standin_state *state, int index, struct standin_holder *holders, int room,
                    uint64_t *used) {
    struct standin_card *card = &state->card[index];
    int fd = standin_open();
    int count = 0;
    uint64_t sum = 0;
    if (standin_lock(&card->lock, state, card) == 0) {
        for (uint64_t i = 0; i < state->high && count < room; i++) {
            struct standin_use *use = &state->process[i].use[index];
            if (use->used)
                holders[count++] = (struct standin_holder){(int)i, use->used, use->context};
        }
        standin_unlock(&card->lock);
    }
    int living = 0;
    for (int i = 0; i < count; i++) {
        if (!standin_alive(fd, holders[i].entry))
            continue;
        sum += holders[i].used;
        holders[living++] = holders[i];
    }
    for (int i = 0; i < STANDIN_SHARED; i++) {
        const struct standin_shared *shared = &state->shared[i];
        int owner = (int)shared->owner - 1;
        if (!shared->id || shared->card != (uint64_t)index || owner < 0 || standin_alive(fd, owner))
            continue;
        int heir = standin_heir(fd, shared, owner), at = 0;
        while (heir >= 0 && at < living && holders[at].entry != heir)
            at++;
        if (heir < 0 || at == room)
            continue;
        if (at == living)
            holders[living++] = (struct standin_holder){heir, 0, 0};
        holders[at].used += shared->bytes;
        sum += shared->bytes;
    }
    if (fd >= 0)
        close(fd);
    *used = sum;
    return living;
}
