/* Simulates a GPU's time: launches queue one after the other, and utilisation is read from what was queued.
 *
 * Work is contiguous from now to `busy_until`, so what had been done by any moment is
 * `busy` less what still lies ahead: no timer is needed. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

#define SECOND 1000000000ull
#define CARD_STEP (SECOND / 32)
#define USE_STEP (SECOND / 8)
#define QUEUE_LAUNCHES 1024
#define QUEUE_NS (SECOND / 10)
#define SPIN_NS 100000

uint64_t standin_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

static uint64_t done(uint64_t busy, uint64_t until, uint64_t now) {
    uint64_t ahead = until > now ? until - now : 0;
    return ahead < busy ? busy - ahead : 0;
}

static void sample(struct standin_sample *ring, uint64_t room, uint64_t *count, uint64_t step, uint64_t now,
                   uint64_t busy) {
    if (*count && now < ring[(*count - 1) % room].time + step)
        return;
    ring[*count % room] = (struct standin_sample){now, busy};
    __atomic_store_n(count, *count + 1, __ATOMIC_RELEASE);
}

/* The driver's queue is bounded: beyond it a launch waits, as on a real card. */
uint64_t standin_occupy(struct standin_state *state, int index, int entry, uint64_t ns) {
    struct standin_card *card = &state->card[index];
    struct standin_use *use = &state->process[entry].use[index];
    uint64_t bound = ns * QUEUE_LAUNCHES < QUEUE_NS ? ns * QUEUE_LAUNCHES : QUEUE_NS;
    uint64_t now = standin_now();
    if (use->busy_until > now + bound && use->busy_until > now + ns) {
        standin_wait(use->busy_until - (bound > ns ? bound : ns));
        now = standin_now();
    }
    if (standin_lock(&card->lock, state, card))
        return now;
    sample(card->sample, STANDIN_SAMPLES, &card->samples, CARD_STEP, now,
           done(card->busy, card->busy_until, now));
    sample(use->sample, STANDIN_USE_SAMPLES, &use->samples, USE_STEP, now,
           done(use->busy, use->busy_until, now));
    uint64_t end = (card->busy_until > now ? card->busy_until : now) + ns;
    card->busy += ns;
    card->busy_until = end;
    use->busy += ns;
    use->busy_until = end;
    standin_unlock(&card->lock);
    return end;
}

void standin_wait(uint64_t until) {
    uint64_t now = standin_now();
    while (now < until) {
        if (until - now > SPIN_NS) {
            uint64_t wake = until - SPIN_NS / 2;
            struct timespec at = {(time_t)(wake / SECOND), (long)(wake % SECOND)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        } else {
            sched_yield();
        }
        now = standin_now();
    }
}

/* Share of the last second that was busy: now's figure less that of a second ago, between two samples
 * taken as busy first, then idle. Without a sample so old, nothing had been done before the first one. */
static double share(const struct standin_sample *ring, uint64_t room, uint64_t count, uint64_t now,
                    uint64_t total) {
    uint64_t from = now > SECOND ? now - SECOND : 0;
    uint64_t next = total;
    uint64_t oldest = count > room ? count - room : 0;
    for (uint64_t i = count; i > oldest; i--) {
        const struct standin_sample *at = &ring[(i - 1) % room];
        if (at->time <= from) {
            uint64_t before = at->busy + (from - at->time);
            return (double)(total - (before < next ? before : next)) / SECOND;
        }
        next = at->busy;
    }
    return (double)(total - next) / SECOND;
}

double standin_utilisation(struct standin_state *state, int index) {
    struct standin_card *card = &state->card[index];
    if (!card->samples || standin_lock(&card->lock, state, card))
        return 0.0;
    uint64_t now = standin_now();
    uint64_t total = done(card->busy, card->busy_until, now);
    double value = share(card->sample, STANDIN_SAMPLES, card->samples, now, total);
    standin_unlock(&card->lock);
    return value > 1.0 ? 1.0 : value;
}

double standin_process_utilisation(struct standin_state *state, int index, int entry) {
    struct standin_card *card = &state->card[index];
    struct standin_use *use = &state->process[entry].use[index];
    if (!use->samples || standin_lock(&card->lock, state, card))
        return 0.0;
    uint64_t now = standin_now();
    double value =
        share(use->sample, STANDIN_USE_SAMPLES, use->samples, now, done(use->busy, use->busy_until, now));
    standin_unlock(&card->lock);
    return value > 1.0 ? 1.0 : value;
}
