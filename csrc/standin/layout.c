/* The offsets of the shared file, so that a test can hold standin.py against them. */
#include "state.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t value;
} layout[] = {
    {"state.size", sizeof(struct standin_state)},
    {"state.card", offsetof(struct standin_state, card)},
    {"state.process", offsetof(struct standin_state, process)},
    {"state.high", offsetof(struct standin_state, high)},
    {"card.size", sizeof(struct standin_card)},
    {"card.total", offsetof(struct standin_card, total)},
    {"card.lost", offsetof(struct standin_card, lost)},
    {"card.xid_count", offsetof(struct standin_card, xid_count)},
    {"card.xid", offsetof(struct standin_card, xid)},
    {"card.version", offsetof(struct standin_card, version)},
    {"card.used", offsetof(struct standin_card, used)},
    {"card.peak", offsetof(struct standin_card, peak)},
    {"process.size", sizeof(struct standin_process)},
    {"process.name", offsetof(struct standin_process, name)},
    {"process.use", offsetof(struct standin_process, use)},
    {"use.size", sizeof(struct standin_use)},
    {"use.launches", offsetof(struct standin_use, launches)},
    {"cards", STANDIN_CARDS},
    {"processes", STANDIN_PROCESSES},
    {"xids", STANDIN_XIDS},
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
