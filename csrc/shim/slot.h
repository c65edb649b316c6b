/* Attaches this process to its slot; charges and uncharges memory there. */
#ifndef COTENANT_SHIM_SLOT_H
#define COTENANT_SHIM_SLOT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "cotenant_slot.h"
#include "cuda_abi.h"

enum { CARD_NONE = -1 }; /* a card that the grant does not name */

enum attachment {
    DETACHED = 0, /* also what a fork's child finds */
    ATTACHED,
    REFUSED, /* the slot cannot be used: nothing may be allocated */
};

/* What this process knows of itself. It lies in a page that the kernel wipes in a fork's child, so that a
 * child, however it was made, finds itself detached, with no lock held and nothing allocated. */
struct self {
    int attachment;
    pthread_mutex_t lock; /* guards the tables of allocations */
    pthread_mutex_t attaching;
    pthread_mutex_t contexts; /* held while a context begins or ends: the driver gives its handle again */
    pthread_mutex_t pooling;  /* held over a pool's growth */
    pthread_t pooler;         /* the thread that holds it; 0: nobody */
    pthread_mutex_t mapping;  /* held over every change of virtual memory */
    struct cot_process *entry;
    unsigned index;
    time_t launch_second, alloc_second;
    int launch_credit; /* launches that need not look at the clock */
    uint64_t reaped_at;
    CUcontext last_context;    /* known to be charged */
    uint64_t small[COT_CARDS]; /* bytes in allocations that the driver packs into shared granules */
    bool warned;
};

extern struct self *cot_self;
extern const struct cot_limits *cot_limits; /* NULL until mapped */
extern struct cot_usage *cot_usage;

/* Is there a slot at all? Without one every hook calls straight through. */
bool slot_present(void);
/* Maps both files; false if they cannot be used (said once on stderr). */
bool slot_map(void);
/* Takes an entry of `usage`; false if this process must not use a card. */
bool slot_attach_slow(void);

static inline bool slot_attached(void) {
    return __builtin_expect(__atomic_load_n(&cot_self->attachment, __ATOMIC_ACQUIRE) == ATTACHED, 1) ||
           slot_attach_slow();
}

static inline uint64_t slot_mode(void) {
    return __atomic_load_n(&cot_limits->mode, __ATOMIC_RELAXED);
}

static inline uint64_t slot_limit(int card) {
    return __atomic_load_n(&cot_limits->card[card].bytes, __ATOMIC_SEQ_CST);
}

/* Raises a field that other processes raise too. */
static inline void raise_to(uint64_t *field, uint64_t value) {
    uint64_t seen = __atomic_load_n(field, __ATOMIC_RELAXED);
    while (seen < value &&
           !__atomic_compare_exchange_n(field, &seen, value, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
}

/* What all processes of the slot hold on a card. */
uint64_t slot_used(int card);
/* Clears the entries of processes that have died, at most every 100 ms unless forced. */
void slot_reap(bool force);

/* Whether the process of an entry is alive. */
bool slot_lives(unsigned index);

/* Charge before allocating; CUDA_SUCCESS, or what the caller must return. */
CUresult slot_charge(int card, uint64_t bytes);
/* Call when the driver gave what was charged: beyond the limit, in observe and warn, the peak counts only
 * what was given. */
void slot_raise_peak(int card);
static inline void slot_kept(int card) {
    if (__builtin_expect(slot_mode() != COT_ENFORCE, 0))
        slot_raise_peak(card);
}
/* Charge what the driver already took; true if the card's limit is passed by it. */
bool slot_charge_taken(int card, uint64_t bytes);
/* Uncharge after freeing. */
void slot_uncharge(int card, uint64_t bytes);
/* Counts an allocation that was refused or, by mode, let through. */
CUresult slot_over(int card, uint64_t bytes);

/* Which card of the grant a UUID is (16 bytes, without prefix). */
int slot_card(const unsigned char uuid[16]);
bool slot_parse_uuid(const char *text, unsigned char uuid[16]);

/* Is this the pid of a living process of the slot, as that process sees itself? */
bool slot_has_process(uint64_t pid);

void slot_note_slow(uint64_t *field);
void slot_note_launch_slow(void);

/* Most launches follow another one within the second: in such a burst only some look at the clock, and leave
 * word that they did not. A launch that comes after a pause, or after a synchronise, always looks. */
static inline void slot_note_launch(void) {
    struct self *self = cot_self;
    if (__builtin_expect(self->launch_credit > 0, 1)) {
        self->launch_credit--;
        self->entry->unnoted = 1;
    } else {
        slot_note_launch_slow();
    }
}

/* The device has done what was launched: note when, if some launches left it open. */
static inline void slot_note_done(void) {
    struct self *self = cot_self;
    if (self->entry != NULL && self->entry->unnoted) {
        self->launch_credit = 0;
        slot_note_launch_slow();
    }
}

/* Notes the time of an activity, to the second: reading a finer clock costs more than a launch may. */
static inline void slot_note(uint64_t *field, time_t *second) {
    time_t now = time(NULL);
    if (__builtin_expect(now != *second, 0)) {
        *second = now;
        slot_note_slow(field);
    }
}

#endif
