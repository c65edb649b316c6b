/* Defines the stand-in driver's one shared file: GPUs, and what every process holds on them.
 *
 * hardware/standin/driver.py writes it, every process that loads the stand-in libcuda or libnvidia-ml maps
 * it. A process's memory is its entry; a card's `used` is only the sum of the entries, kept under the card's
 * lock and recomputed from them when the holder of that lock was killed. An entry counts while its process
 * holds the lock on the entry's byte, so whatever kills a process returns its memory.
 *
 * Only 8-byte words and fixed-size text: standin.py knows the offsets, and a test compares them.
 */
#ifndef STANDIN_STATE_H
#define STANDIN_STATE_H

#include <pthread.h>
#include <stdint.h>

#define STANDIN_MAGIC "COTSTAND"
#define STANDIN_ABI 3u
#define STANDIN_CARDS 64
#define STANDIN_PROCESSES 1024
#define STANDIN_SAMPLES 64
#define STANDIN_USE_SAMPLES 16
#define STANDIN_XIDS 16
#define STANDIN_SHARED 256
#define STANDIN_GROUPS 512
#define STANDIN_NO_LIMIT UINT64_MAX

/* Byte locks, far beyond the end of the file. */
#define STANDIN_LOCK_SETUP (1ull << 40)         /* while the mutexes are being made */
#define STANDIN_LOCK_CONTROL ((1ull << 40) + 1) /* while standin.py changes a card */
#define STANDIN_LOCK_PROCESS (1ull << 41)       /* + i: held by the owner of process[i] while it lives */

#define STANDIN_MIB (1ull << 20)
#define STANDIN_GRANULE (2 * STANDIN_MIB)

union standin_mutex {
    pthread_mutex_t mutex;
    unsigned char bytes[64];
};

/* How much of a card's time had been used at a moment: utilisation is the difference of two. */
struct standin_sample {
    uint64_t time;
    uint64_t busy;
};

struct standin_xid {
    uint64_t code;
    uint64_t time;
};

struct standin_card {
    char uuid[80];
    char name[96];
    uint64_t total;         /* bytes on the card */
    uint64_t reserved;      /* of these, kept by the driver */
    uint64_t context_bytes; /* what a context costs */
    uint64_t launch_ns;     /* how long a launch occupies the card */
    uint64_t major;         /* compute capability */
    uint64_t minor;
    uint64_t multiprocessors;
    uint64_t parent;   /* MIG instance: index of its card plus 1 */
    uint64_t slices;   /* MIG instance: compute slices */
    uint64_t instance; /* MIG instance: GPU instance id */
    uint64_t mig_capable;
    uint64_t lost; /* has fallen off the bus */
    uint64_t ecc_corrected;
    uint64_t ecc_uncorrected;
    uint64_t power_limit; /* mW */
    uint64_t ordinal;     /* position among the physical cards, as NVML counts them */
    uint64_t xid_count;   /* XIDs ever posted; the last is xid[(xid_count - 1) % STANDIN_XIDS] */
    struct standin_xid xid[STANDIN_XIDS];

    union standin_mutex lock; /* guards all below and use[card] of every process */
    uint64_t version;         /* odd while something below is being changed */
    uint64_t used;            /* bytes of all entries */
    uint64_t peak;            /* the most that `used` has been */
    uint64_t busy;            /* ns of work ever queued */
    uint64_t busy_until;      /* when the queue is empty */
    uint64_t samples;
    struct standin_sample sample[STANDIN_SAMPLES];
    uint64_t unified; /* it has no memory of its own: NVML does not report any */
    unsigned char pad[2048 - 176 - 17 * 8 - STANDIN_XIDS * 16 - 64 - 7 * 8 - STANDIN_SAMPLES * 16];
};

/* What one process has on one card. */
struct standin_use {
    uint64_t used;    /* bytes, contexts included */
    uint64_t context; /* of these, contexts */
    uint64_t launches;
    uint64_t busy;
    uint64_t busy_until;
    uint64_t samples;
    uint64_t spare[2];
    struct standin_sample sample[STANDIN_USE_SAMPLES];
};

struct standin_process {
    uint64_t pid;       /* in its own namespace; 0: the entry is empty */
    uint64_t namespace; /* inode of that pid namespace */
    uint64_t started;   /* clock ticks since boot: with the pid it names the process for good */
    uint64_t generation;
    char name[32];
    uint64_t
        groups[STANDIN_GROUPS / 64]; /* of which limited cgroups it is, one bit each, as of its last charge */
    struct standin_use use[STANDIN_CARDS];
};

/* Memory that was exported: it lives as long as any process has it, and counts in one of them, the owner. */
struct standin_shared {
    uint64_t id; /* inode of the file behind it; 0: the entry is empty */
    uint64_t card;
    uint64_t bytes;
    uint64_t owner; /* process entry plus 1; 0: nobody has it, but a descriptor of it may be on its way */
    uint64_t holders[STANDIN_PROCESSES / 64]; /* one bit for each process entry */
    uint64_t spare[4];
};

struct standin_limit {
    uint64_t soft; /* 0: nothing is guaranteed */
    uint64_t hard; /* STANDIN_NO_LIMIT: there is none */
};

/* A cgroup with limits, which nvmlDeviceSetMemoryLimits_v1 has set. The path is that of whoever set them; a
 * process in a container knows the folder by its device and inode alone. */
struct standin_group {
    uint64_t inode; /* 0: the entry is empty */
    uint64_t device;
    uint64_t spare[6];
    char path[960];
    struct standin_limit limit[STANDIN_CARDS];
};

struct standin_state {
    char magic[8];
    uint32_t abi;
    uint32_t cards;
    uint64_t size;            /* of the whole file */
    uint64_t cuda_version;    /* 13000 */
    char driver_version[32];  /* "580.95.05" */
    uint64_t mutexes;         /* not 0: the mutexes are made */
    uint64_t high;            /* entries [0, high) have been in use at some time */
    union standin_mutex lock; /* guards who owns which entry */
    uint64_t limited;         /* cgroups with limits: entries of `group` that are not empty */
    unsigned char pad[4096 - 8 - 8 - 2 * 8 - 32 - 3 * 8 - 64];
    struct standin_card card[STANDIN_CARDS];
    struct standin_process process[STANDIN_PROCESSES];
    struct standin_shared shared[STANDIN_SHARED]; /* guarded by the lock of the state */
    struct standin_group group[STANDIN_GROUPS];   /* the same */
};

_Static_assert(sizeof(struct standin_card) == 2048, "card");
_Static_assert(sizeof(struct standin_use) == 320, "use");
_Static_assert(sizeof(struct standin_process) == 128 + 320 * STANDIN_CARDS, "process");
_Static_assert(sizeof(struct standin_state) == 4096 + 2048 * STANDIN_CARDS +
                                                   sizeof(struct standin_process) * STANDIN_PROCESSES +
                                                   192 * STANDIN_SHARED + 2048 * STANDIN_GROUPS,
               "state");
_Static_assert(sizeof(struct standin_group) == 2048, "group");

/* Map the file that COTENANT_STANDIN names, once a process; NULL if there is none that can be used. */
struct standin_state *standin_map(void);

/* The same, but another file if COTENANT_STANDIN now names another: for a library that can be shut down and
 * started again. The old one stays mapped. */
struct standin_state *standin_map_again(void);

/* Which cards are in the machine as far as this process can tell, one bit each: runtime.c */
uint64_t standin_shown(const struct standin_state *state);

/* Take an entry for this process. Returns its index, -1 if there is no place. */
int standin_attach(struct standin_state *state);

/* Add to or take from what process `entry` holds on `card`; 0 if the card has not so much. A process that
 * would pass the hard limit of a cgroup it is in does not come back: it is killed. Dead processes are reaped
 * before either. */
int standin_charge(struct standin_state *state, int card, int entry, uint64_t bytes, uint64_t context);
void standin_uncharge(struct standin_state *state, int card, int entry, uint64_t bytes, uint64_t context);

/* Take back what dead processes left on every card. */
void standin_reap(struct standin_state *state);

static inline uint64_t standin_capacity(const struct standin_card *card) {
    return card->total - card->reserved;
}

/* A look at one card by somebody who need not be a user of it: entries of living processes only. */
struct standin_holder {
    int entry;
    uint64_t used;
    uint64_t context;
};
int standin_holders(struct standin_state *state, int card, struct standin_holder *holders, int room,
                    uint64_t *used);

/* Exported memory: shared.c. All return an index of state->shared, or -1. */
int standin_share(struct standin_state *state, int card, int entry, uint64_t id, uint64_t bytes);
int standin_join(struct standin_state *state, int entry, uint64_t id);
void standin_leave(struct standin_state *state, int shared, int entry);
/* Who answers for memory whose owner is gone: a living holder, or -1. */
int standin_heir(int fd, const struct standin_shared *shared, int gone);
/* With the state's lock held: hands on what a process had in common with others. */
void standin_leave_all(struct standin_state *state, int fd, int entry);

/* Limits by cgroup: groups.c. Note of which limited cgroups this process, or those with these pids, are. */
void standin_join_groups(struct standin_state *state, int entry);
/* With the state's lock held: whose cgroup is gone is empty again. */
void standin_forget_group(struct standin_state *state, int group);
/* With the card's lock held: whether `more` bytes of this process pass the hard limit of one of its cgroups.
 */
int standin_passes_limit(const struct standin_state *state, int card, int entry, uint64_t more);
static inline int standin_in_group(const struct standin_process *process, int group) {
    return process->groups[group / 64] >> group % 64 & 1;
}

/* state.c, for shared.c */
int standin_open(void);
int standin_alive(int fd, int entry);
int standin_try_charge(struct standin_state *state, int card, int entry, uint64_t bytes);
void standin_move(struct standin_state *state, int card, int from, int to, uint64_t bytes);

int standin_lock(union standin_mutex *lock, struct standin_state *state, struct standin_card *card);
void standin_unlock(union standin_mutex *lock);

/* Work on a card: time.c */
uint64_t standin_now(void);
uint64_t standin_occupy(struct standin_state *state, int card, int entry, uint64_t ns);
void standin_wait(uint64_t until);
double standin_utilisation(struct standin_state *state, int card);
double standin_process_utilisation(struct standin_state *state, int card, int entry);

#endif
