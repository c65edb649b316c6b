/* Exports the offsets of the shared file, so that a test can compare hardware/standin/layout.py with them. */
#include "state.h"

#include <stddef.h>
#include <string.h>

#define SIZE(type) {#type ".size", sizeof(struct standin_##type)}
#define FIELD(type, field) {#type "." #field, offsetof(struct standin_##type, field)}

static const struct {
    const char *name;
    uint64_t value;
} layout[] = {
    SIZE(state),
    FIELD(state, magic),
    FIELD(state, abi),
    FIELD(state, cards),
    FIELD(state, cuda_version),
    FIELD(state, driver_version),
    FIELD(state, mutexes),
    FIELD(state, high),
    FIELD(state, lock),
    FIELD(state, limited),
    FIELD(state, card),
    FIELD(state, process),
    FIELD(state, shared),
    FIELD(state, group),
    SIZE(card),
    FIELD(card, uuid),
    FIELD(card, name),
    FIELD(card, total),
    FIELD(card, reserved),
    FIELD(card, context_bytes),
    FIELD(card, launch_ns),
    FIELD(card, major),
    FIELD(card, minor),
    FIELD(card, multiprocessors),
    FIELD(card, parent),
    FIELD(card, slices),
    FIELD(card, instance),
    FIELD(card, mig_capable),
    FIELD(card, lost),
    FIELD(card, ecc_corrected),
    FIELD(card, ecc_uncorrected),
    FIELD(card, power_limit),
    FIELD(card, ordinal),
    FIELD(card, xid_count),
    FIELD(card, xid),
    FIELD(card, lock),
    FIELD(card, version),
    FIELD(card, used),
    FIELD(card, peak),
    FIELD(card, busy),
    FIELD(card, busy_until),
    FIELD(card, samples),
    FIELD(card, sample),
    FIELD(card, unified),
    SIZE(process),
    FIELD(process, pid),
    FIELD(process, namespace),
    FIELD(process, started),
    FIELD(process, generation),
    FIELD(process, name),
    FIELD(process, groups),
    FIELD(process, use),
    SIZE(use),
    FIELD(use, used),
    FIELD(use, context),
    FIELD(use, launches),
    FIELD(use, busy),
    FIELD(use, busy_until),
    FIELD(use, samples),
    FIELD(use, sample),
    SIZE(shared),
    FIELD(shared, id),
    FIELD(shared, card),
    FIELD(shared, bytes),
    FIELD(shared, owner),
    FIELD(shared, holders),
    SIZE(group),
    FIELD(group, inode),
    FIELD(group, device),
    FIELD(group, path),
    FIELD(group, limit),
    SIZE(limit),
    FIELD(limit, soft),
    FIELD(limit, hard),
    {"abi", STANDIN_ABI},
    {"cards", STANDIN_CARDS},
    {"processes", STANDIN_PROCESSES},
    {"xids", STANDIN_XIDS},
    {"groups", STANDIN_GROUPS},
    {"lock.control", STANDIN_LOCK_CONTROL},
    {"lock.process", STANDIN_LOCK_PROCESS},
};

/* The value of this name, or all ones. */
__attribute__((visibility("default"))) uint64_t standin_layout(const char *name) {
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (!strcmp(layout[i].name, name))
            return layout[i].value;
    return UINT64_MAX;
}
