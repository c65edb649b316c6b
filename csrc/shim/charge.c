/* Implements the second half of slot.h: charges memory against the slot's limits. */
#include <stdio.h>
#include <time.h>

#include "pools.h"
#include "slot.h"

/* Larger than any card. Without this bound a request of 2^64 less what is in use would wrap the sum of all.
 */
#define MOST_BYTES (1ull << 50)

uint64_t slot_used(int card) {
    uint64_t high = __atomic_load_n(&cot_usage->high, __ATOMIC_SEQ_CST);
    uint64_t total = 0;
    for (uint64_t i = 0; i < high && i < COT_PROCESSES; i++)
        total += __atomic_load_n(&cot_usage->process[i].used[card], __ATOMIC_SEQ_CST);
    return total;
}

void slot_raise_peak(int card) {
    uint64_t total = slot_used(card);
    if (total > __atomic_load_n(&cot_usage->peak[card], __ATOMIC_RELAXED))
        raise_to(&cot_usage->peak[card], total);
}

/* What can never fit is not published at all: other threads would see it in the sum, and be refused for it.
 * The limit is read once more after the use is published: who lowers a limit and then reads the use sees this
 * allocation, or this allocation sees the new limit. */
static bool publish(int card, uint64_t bytes) {
    if (bytes > slot_limit(card))
        return false;
    __atomic_fetch_add(&cot_self->entry->used[card], bytes, __ATOMIC_SEQ_CST);
    uint64_t total = slot_used(card);
    if (total <= slot_limit(card)) {
        if (total > __atomic_load_n(&cot_usage->peak[card], __ATOMIC_RELAXED))
            raise_to(&cot_usage->peak[card], total);
        return true;
    }
    __atomic_fetch_sub(&cot_self->entry->used[card], bytes, __ATOMIC_SEQ_CST);
    return false;
}

/* As people write sizes: 4Gi is exact, 4.0Gi is a little more. */
static const char *size_text(char text[32], uint64_t bytes) {
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    int unit = 0;
    while (unit < 6 && bytes >> (10 * (unit + 1)) != 0)
        unit++;
    uint64_t size = 1ULL << (10 * unit), whole = bytes / size, rest = bytes % size;
    if (rest == 0)
        snprintf(text, 32, "%llu%s", (unsigned long long)whole, units[unit]);
    else
        snprintf(text, 32, "%llu.%llu%s", (unsigned long long)whole, (unsigned long long)(rest * 10 / size),
                 units[unit]);
    return text;
}

static void warn(int card, uint64_t bytes) {
    char asked[32], limit[32];
    fprintf(stderr,
            "cotenant: this process asks for %s more on %s, beyond the limit of %s: "
            "allowed, since the mode is warn\n",
            size_text(asked, bytes), cot_limits->card[card].uuid, size_text(limit, slot_limit(card)));
}

CUresult slot_over(int card, uint64_t bytes) {
    uint64_t mode = slot_mode();
    if (mode == COT_ENFORCE) {
        __atomic_fetch_add(&cot_usage->denied, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&cot_self->entry->denied, 1, __ATOMIC_RELAXED);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    __atomic_fetch_add(&cot_usage->over, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&cot_self->entry->over, 1, __ATOMIC_RELAXED);
    if (mode == COT_WARN && !__atomic_exchange_n(&cot_self->warned, true, __ATOMIC_RELAXED))
        warn(card, bytes);
    return CUDA_SUCCESS;
}

/* Two processes that publish at once may each see the other's attempt. A refusal therefore needs the room to
 * be missing three times in a row without our own attempt in the sum; nobody is ever waited for. */
static bool publish_patiently(int card, uint64_t bytes) {
    for (int attempt = 0, missing = 0; attempt < 64 && missing < 3; attempt++) {
        uint64_t limit = slot_limit(card);
        if (bytes > limit)
            return false;
        if (slot_used(card) > limit - bytes)
            missing++;
        else if (publish(card, bytes))
            return true;
        struct timespec pause = {0, 10000 + (long)(cot_self->index * 7919u % 31u) * 1000};
        nanosleep(&pause, NULL);
    }
    return false;
}

/* Before a refusal: what dead processes left, and what this process's pools hold without using it. A driver
 * whose card is full gives up its pools' unused memory in the same way. */
static bool publish_after_clearing(int card, uint64_t bytes) {
    if (bytes > slot_limit(card))
        return false;
    slot_reap(true);
    pools_refresh();
    if (publish_patiently(card, bytes))
        return true;
    return slot_mode() == COT_ENFORCE && pools_trim(card) && publish_patiently(card, bytes);
}

CUresult slot_charge(int card, uint64_t bytes) {
    struct self *self = cot_self;
    slot_note(&self->entry->last_alloc, &self->alloc_second);
    if (bytes == 0 || __builtin_expect(bytes <= MOST_BYTES && publish(card, bytes), 1))
        return CUDA_SUCCESS;
    if (bytes > MOST_BYTES)
        return slot_mode() == COT_ENFORCE ? slot_over(card, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (publish_after_clearing(card, bytes))
        return CUDA_SUCCESS;
    CUresult verdict = slot_over(card, bytes);
    if (verdict == CUDA_SUCCESS) /* the peak waits for slot_kept: the card may not have it */
        __atomic_fetch_add(&self->entry->used[card], bytes, __ATOMIC_SEQ_CST);
    return verdict;
}

bool slot_charge_taken(int card, uint64_t bytes) {
    __atomic_fetch_add(&cot_self->entry->used[card], bytes, __ATOMIC_SEQ_CST);
    slot_raise_peak(card);
    return slot_used(card) > slot_limit(card);
}

void slot_uncharge(int card, uint64_t bytes) {
    __atomic_fetch_sub(&cot_self->entry->used[card], bytes, __ATOMIC_SEQ_CST);
    slot_note(&cot_self->entry->last_alloc, &cot_self->alloc_second);
}
