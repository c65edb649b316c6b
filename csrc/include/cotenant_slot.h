/* Defines the slot: the two files through which the node and a container's processes communicate.
 *
 *   limits   written by the node, mapped read-only by the processes
 *   usage    written by the processes, one entry each, read by the node
 *
 * Both have a fixed layout of little-endian 8-byte words and live on tmpfs. `limits` is rewritten in
 * place, word by word, and read at every charge, so a live grant can be resized. No total is kept:
 * a process publishes its own use and sums the entries, so that no lock is shared and a process that
 * is killed at any instruction leaves nothing wrong but its own entry, which its lock shows to be dead.
 *
 * Locks are byte-range locks (OFD) on `usage`. They lie far beyond its end:
 *   COT_LOCK_PROCESS + i   write-locked by the process that owns entry i, while it is alive
 *   COT_LOCK_OWNER         read-locked by the runner and inherited by the command it starts
 * A process that gets a write lock on the whole file may close the slot: no process uses it or can begin to.
 */
#ifndef COTENANT_SLOT_H
#define COTENANT_SLOT_H

#include <stdint.h>

#define COT_ABI 1u
#define COT_CARDS 16
#define COT_PROCESSES 1024
#define COT_OWNER_BYTES 64
#define COT_UUID_BYTES 80

#define COT_LIMITS_MAGIC "COTLIMIT"
#define COT_USAGE_MAGIC "COTUSAGE"

#define COT_LOCK_PROCESS (1ull << 40)
#define COT_LOCK_OWNER (1ull << 41)

/* What happens to an allocation beyond the limit. */
enum cot_mode { COT_OBSERVE = 0, COT_WARN = 1, COT_ENFORCE = 2 };

struct cot_card_limit {
    char uuid[COT_UUID_BYTES]; /* "GPU-..." or "MIG-...", NUL-terminated */
    uint64_t bytes;            /* the most that all processes may hold together, contexts included */
    uint64_t context_bytes;    /* what one context of one process costs on this card */
    uint64_t reserved[4];
};

struct cot_limits {
    char magic[8];
    uint32_t abi;
    uint32_t cards;              /* how many of card[] are filled */
    char owner[COT_OWNER_BYTES]; /* pod UID, or the id of a local grant */
    uint64_t mode;               /* enum cot_mode */
    uint64_t granule;            /* the driver hands out memory in steps of this */
    uint64_t made;               /* CLOCK_MONOTONIC ns of its creation; 0: an older version created it */
    uint64_t reserved[19];
    struct cot_card_limit card[COT_CARDS];
};

/* Memory that one process of the slot made and another one imported. It is charged to its maker; when that
 * has dropped it or is dead, whoever sees to that adds it to `used` of one process that has it, and marks it.
 */
struct cot_import {
    uint64_t maker; /* 0: empty; else the fields below */
    uint64_t bytes;
};

#define COT_IMPORTS 8
#define COT_IMPORT_ENTRY 0xffffull      /* the maker's entry plus 1 */
#define COT_IMPORT_CARD_SHIFT 16        /* 8 bits: the card of limits */
#define COT_IMPORT_NUMBER_SHIFT 24      /* 7 bits: tells apart what one maker has exported */
#define COT_IMPORT_CHARGED (1ull << 31) /* counts in this process's `used` */
#define COT_IMPORT_PID_SHIFT 32         /* 32 bits: the maker's pid, as it sees itself */

/* Times are CLOCK_MONOTONIC nanoseconds: the files never outlive a boot. */
struct cot_process {
    uint64_t pid; /* as the process sees itself: for showing, never for deciding */
    uint64_t last_launch;
    uint64_t last_alloc;
    uint64_t denied;
    uint64_t over;
    uint64_t unnoted; /* not 0: there were launches after last_launch; whoever reads takes them for now */
    uint64_t reserved[10];
    uint64_t used[COT_CARDS]; /* bytes held on each card of limits, contexts included */
    uint64_t context[COT_CARDS];
    struct cot_import import[COT_IMPORTS];
};

struct cot_usage {
    char magic[8];
    uint32_t abi;
    uint32_t processes;          /* how many entries the file has */
    char owner[COT_OWNER_BYTES]; /* the same as in limits */
    uint64_t closed;             /* not 0: the grant has ended, every charge is refused */
    uint64_t high;               /* entries [0, high) have been in use at some time */
    uint64_t denied;             /* refused allocations of all processes, ended ones too */
    uint64_t over;               /* allocations beyond the limit that observe or warn let through */
    uint64_t last_launch; /* of processes whose entry was cleared, and of kernels that the driver saw */
    uint64_t last_alloc;
    uint64_t reserved[16];
    uint64_t peak[COT_CARDS]; /* the most that all held together */
    unsigned char pad[4096 - 16 - COT_OWNER_BYTES - 22 * 8 - COT_CARDS * 8];
    struct cot_process process[COT_PROCESSES];
};

_Static_assert(sizeof(struct cot_card_limit) == 128, "card limit");
_Static_assert(sizeof(struct cot_limits) == 256 + 128 * COT_CARDS, "limits");
_Static_assert(sizeof(struct cot_process) == 512, "process");
_Static_assert(sizeof(struct cot_usage) == 4096 + 512 * COT_PROCESSES, "usage");

#endif
