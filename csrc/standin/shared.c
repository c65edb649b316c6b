/* Keeps memory that was exported to other processes alive as long as any of them has it, as the driver does.
 * It counts in its owner: the process that made it, and when that has dropped it or is gone, another one that
 * has it. */
#include "state.h"

#include <string.h>
#include <unistd.h>

static int has(const struct standin_shared *shared, int entry) {
    return shared->holders[entry / 64] >> entry % 64 & 1;
}

static int find(const struct standin_state *state, uint64_t id) {
    for (int i = 0; i < STANDIN_SHARED; i++)
        if (state->shared[i].id == id)
            return i;
    return -1;
}

int standin_heir(int fd, const struct standin_shared *shared, int gone) {
    for (int i = 0; i < STANDIN_PROCESSES; i++)
        if (i != gone && has(shared, i) && standin_alive(fd, i))
            return i;
    return -1;
}

static void leave(struct standin_state *state, int fd, struct standin_shared *shared, int entry) {
    shared->holders[entry / 64] &= ~(1ull << entry % 64);
    if (shared->owner != (uint64_t)entry + 1)
        return;
    int heir = standin_heir(fd, shared, entry);
    if (heir >= 0)
        standin_move(state, (int)shared->card, entry, heir, shared->bytes);
    else
        standin_uncharge(state, (int)shared->card, entry, shared->bytes, 0);
    shared->owner = (uint64_t)(heir + 1);
}

void standin_leave_all(struct standin_state *state, int fd, int entry) {
    for (int i = 0; i < STANDIN_SHARED; i++)
        if (state->shared[i].id && has(&state->shared[i], entry))
            leave(state, fd, &state->shared[i], entry);
}

void standin_leave(struct standin_state *state, int shared, int entry) {
    int fd = standin_open();
    if (standin_lock(&state->lock, state, NULL) == 0) {
        leave(state, fd, &state->shared[shared], entry);
        standin_unlock(&state->lock);
    }
    if (fd >= 0)
        close(fd);
}

int standin_share(struct standin_state *state, int card, int entry, uint64_t id, uint64_t bytes) {
    if (standin_lock(&state->lock, state, NULL))
        return -1;
    int found = -1;
    for (int i = 0; i < STANDIN_SHARED && found < 0; i++)
        if (!state->shared[i].id || !state->shared[i].owner)
            found = i;
    if (found >= 0) {
        struct standin_shared *shared = &state->shared[found];
        memset(shared, 0, sizeof *shared);
        shared->card = (uint64_t)card;
        shared->bytes = bytes;
        shared->owner = (uint64_t)entry + 1;
        shared->holders[entry / 64] |= 1ull << entry % 64;
        __atomic_store_n(&shared->id, id, __ATOMIC_RELEASE);
    }
    standin_unlock(&state->lock);
    return found;
}

/* A descriptor alone keeps memory too, but nobody counts it: who imports it then has to get room for it. */
int standin_join(struct standin_state *state, int entry, uint64_t id) {
    if (standin_lock(&state->lock, state, NULL))
        return -1;
    int found = find(state, id);
    struct standin_shared *shared = found < 0 ? NULL : &state->shared[found];
    if (shared && !shared->owner) {
        if (standin_try_charge(state, (int)shared->card, entry, shared->bytes))
            shared->owner = (uint64_t)entry + 1;
        else
            found = -1;
    }
    if (found >= 0)
        shared->holders[entry / 64] |= 1ull << entry % 64;
    standin_unlock(&state->lock);
    return found;
}
