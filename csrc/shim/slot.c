/* Implements the first half of slot.h: finds and maps the slot, owns an entry in it. */
#define _GNU_SOURCE
#include "slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "imports.h"
#include "pools.h"
#include "tables.h"
#include "vmm.h"

#ifndef F_OFD_SETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Where a container finds its slot. It wins over the environment, which a container's author controls. */
#define CONTAINER_SLOT "/run/cotenant/slot"
#define REAP_INTERVAL 100000000ull

static struct self wiped_by_hand; /* kernels before 4.14 cannot wipe: a fork handler does it then */
struct self *cot_self = &wiped_by_hand;
const struct cot_limits *cot_limits;
struct cot_usage *cot_usage;

static char folder[3072];
static unsigned char card_uuid[COT_CARDS][16];
static bool card_named[COT_CARDS];
static bool looked;
static pthread_mutex_t mapping = PTHREAD_MUTEX_INITIALIZER;

static void forget_in_child(void) {
    memset(&wiped_by_hand, 0, sizeof wiped_by_hand);
    pthread_mutex_init(&mapping, NULL);
}

static void find_slot(void) {
    const char *named = getenv("COTENANT_SLOT");
    if (access(CONTAINER_SLOT, F_OK) == 0)
        named = CONTAINER_SLOT;
    if (named == NULL || *named == '\0' || strlen(named) >= sizeof folder)
        return;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && madvise(page, 4096, MADV_WIPEONFORK) == 0)
        cot_self = page;
    pthread_atfork(NULL, NULL, forget_in_child);
    strcpy(folder, named);
}

/* At the first question, since other libraries may ask before this one's turn to be initialised has come, and
 * at the latest before main, so that a program cannot rename its slot. */
__attribute__((constructor)) static void look_for_slot(void) {
    pthread_mutex_lock(&mapping);
    if (!looked) {
        find_slot();
        __atomic_store_n(&looked, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mapping);
}

bool slot_present(void) {
    if (__builtin_expect(!__atomic_load_n(&looked, __ATOMIC_ACQUIRE), 0))
        look_for_slot();
    return folder[0] != '\0';
}

/* Whether it may be over the next time: a process that has opened too much may close something. */
static bool passes(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN || error == EINTR;
}

/* Says once what is wrong, once more if it is there to stay, and leaves `error` in errno. */
static bool complain(const char *what, const char *why, int error) {
    static bool complained[2];
    bool stays = !passes(error);
    if (!__atomic_exchange_n(&complained[stays], true, __ATOMIC_RELAXED))
        fprintf(stderr, "cotenant: %s/%s %s: GPU memory is refused to this process%s\n", folder, what, why,
                stays ? "" : " until that is over");
    errno = error;
    return false;
}

static void *map_file(const char *name, size_t size, int flags, int protection) {
    char path[sizeof folder + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) {
        complain(name, errno == ENOENT ? "is gone (the grant has ended)" : strerror(errno), errno);
        return NULL;
    }
    struct stat st;
    void *mapped = MAP_FAILED;
    bool whole = fstat(fd, &st) == 0 && (size_t)st.st_size >= size;
    if (whole)
        mapped = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    int error = whole ? errno : EINVAL;
    close(fd);
    if (mapped == MAP_FAILED) {
        complain(name, whole ? strerror(error) : "is not a file of the expected size", error);
        return NULL;
    }
    return mapped;
}

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool slot_parse_uuid(const char *text, unsigned char uuid[16]) {
    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        text += 4;
    for (int i = 0; i < 16; i++) {
        if (*text == '-')
            text++;
        int high = hex(text[0]), low = high < 0 ? -1 : hex(text[1]);
        if (low < 0)
            return false;
        uuid[i] = (unsigned char)(high << 4 | low);
        text += 2;
    }
    return true;
}

int slot_card(const unsigned char uuid[16]) {
    for (uint32_t i = 0; i < cot_limits->cards && i < COT_CARDS; i++)
        if (card_named[i] && memcmp(card_uuid[i], uuid, 16) == 0)
            return (int)i;
    return CARD_NONE;
}

static bool are_usable(const struct cot_limits *limits, const struct cot_usage *usage) {
    if (memcmp(limits->magic, COT_LIMITS_MAGIC, 8) != 0 || limits->abi != COT_ABI ||
        limits->cards > COT_CARDS)
        return complain("limits", "has another ABI version than this library", EINVAL);
    if (memcmp(usage->magic, COT_USAGE_MAGIC, 8) != 0 || usage->abi != COT_ABI ||
        usage->processes != COT_PROCESSES)
        return complain("usage", "has another ABI version than this library", EINVAL);
    if (memcmp(usage->owner, limits->owner, COT_OWNER_BYTES) != 0)
        return complain("usage", "belongs to another grant than limits", EINVAL);
    return true;
}

/* It may be tried often, so a failure leaves nothing mapped. */
static bool map_both(void) {
    struct cot_limits *limits = map_file("limits", sizeof *limits, O_RDONLY, PROT_READ);
    struct cot_usage *usage =
        limits != NULL ? map_file("usage", sizeof *usage, O_RDWR, PROT_READ | PROT_WRITE) : NULL;
    if (usage == NULL || !are_usable(limits, usage)) {
        int error = errno;
        if (limits != NULL)
            munmap(limits, sizeof *limits);
        if (usage != NULL)
            munmap(usage, sizeof *usage);
        errno = error;
        return false;
    }
    for (uint32_t i = 0; i < limits->cards; i++)
        card_named[i] = slot_parse_uuid(limits->card[i].uuid, card_uuid[i]);
    cot_usage = usage;
    __atomic_store_n(&cot_limits, limits, __ATOMIC_RELEASE);
    return true;
}

bool slot_map(void) {
    if (__atomic_load_n(&cot_limits, __ATOMIC_ACQUIRE) != NULL)
        return true;
    pthread_mutex_lock(&mapping);
    bool mapped = cot_limits != NULL || map_both();
    pthread_mutex_unlock(&mapping);
    return mapped;
}

static int open_usage(void) {
    char path[sizeof folder + 16];
    snprintf(path, sizeof path, "%s/usage", folder);
    return open(path, O_RDWR | O_CLOEXEC);
}

static bool lock_entry(int fd, unsigned index, short type) {
    struct flock range = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(COT_LOCK_PROCESS + index), .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &range) == 0;
}

bool slot_lives(unsigned index) {
    if (cot_self->entry == &cot_usage->process[index])
        return true;
    int fd = open_usage();
    struct flock range = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(COT_LOCK_PROCESS + index), .l_len = 1};
    bool held = fd < 0 || fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return held;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Only for an entry whose lock is held. What the dead owner did last is kept for the whole slot. */
static void clear_entry(struct cot_process *entry) {
    if (entry->pid != 0)
        imports_inherit((unsigned)(entry - cot_usage->process));
    raise_to(&cot_usage->last_launch, entry->unnoted ? now_ns() : entry->last_launch);
    raise_to(&cot_usage->last_alloc, entry->last_alloc);
    for (int card = 0; card < COT_CARDS; card++)
        __atomic_store_n(&entry->used[card], 0, __ATOMIC_SEQ_CST);
    memset(entry, 0, sizeof *entry);
}

/* The lock must live exactly as long as this process image: so it is held by a mapping, not by a descriptor.
 * The program may close every descriptor, a fork's child does not inherit the mapping, exec ends it. */
static bool take_entry(void) {
    int fd = open_usage();
    if (fd < 0)
        return complain("usage", strerror(errno), errno);
    unsigned index = 0;
    while (index < COT_PROCESSES && !lock_entry(fd, index, F_WRLCK))
        index++;
    if (index == COT_PROCESSES) {
        close(fd);
        return complain("usage", "has no entry left for one more process", EAGAIN);
    }
    void *holder = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    bool held = holder != MAP_FAILED && madvise(holder, 4096, MADV_DONTFORK) == 0;
    if (!held) {
        close(fd);
        return complain("usage", "cannot be held", ENOMEM);
    }
    close(fd);
    if (__atomic_load_n(&cot_usage->closed, __ATOMIC_SEQ_CST)) {
        munmap(holder, 4096);
        return complain("usage", "is closed (the grant has ended)", EINVAL);
    }
    struct cot_process *entry = &cot_usage->process[index];
    clear_entry(entry);
    entry->pid = (uint64_t)getpid();
    raise_to(&cot_usage->high, index + 1);
    cot_self->entry = entry;
    cot_self->index = index;
    return true;
}

bool slot_attach_slow(void) {
    pthread_mutex_lock(&cot_self->attaching);
    if (cot_self->attachment == DETACHED) {
        tables_clear(); /* a fork's child has copies of its parent's, which mean nothing here */
        pools_clear();
        vmm_clear();
        int found = slot_map() && take_entry() ? ATTACHED : passes(errno) ? DETACHED : REFUSED;
        __atomic_store_n(&cot_self->attachment, found, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&cot_self->attaching);
    return cot_self->attachment == ATTACHED;
}

void slot_note_slow(uint64_t *field) {
    __atomic_store_n(field, now_ns(), __ATOMIC_RELAXED);
}

#define BURST 7

void slot_note_launch_slow(void) {
    struct self *self = cot_self;
    if (self->entry == NULL)
        return;
    time_t second = self->launch_second;
    slot_note(&self->entry->last_launch, &self->launch_second);
    __atomic_store_n(&self->entry->unnoted, 0, __ATOMIC_RELAXED);
    self->launch_credit = self->launch_second == second ? BURST : 0;
}

static bool holds_anything(const struct cot_process *entry) {
    for (int card = 0; card < COT_CARDS; card++)
        if (__atomic_load_n(&entry->used[card], __ATOMIC_RELAXED))
            return true;
    return false;
}

void slot_reap(bool force) {
    uint64_t now = now_ns();
    if (!force && now - __atomic_load_n(&cot_self->reaped_at, __ATOMIC_RELAXED) < REAP_INTERVAL)
        return;
    __atomic_store_n(&cot_self->reaped_at, now, __ATOMIC_RELAXED);
    int fd = -1;
    uint64_t high = __atomic_load_n(&cot_usage->high, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < high && i < COT_PROCESSES; i++) {
        struct cot_process *entry = &cot_usage->process[i];
        if (entry == cot_self->entry || !holds_anything(entry))
            continue;
        if (fd < 0 && (fd = open_usage()) < 0)
            return;
        if (lock_entry(fd, i, F_WRLCK)) {
            clear_entry(entry);
            lock_entry(fd, i, F_UNLCK);
        }
    }
    if (fd >= 0)
        close(fd);
}

bool slot_has_process(uint64_t pid) {
    uint64_t high = __atomic_load_n(&cot_usage->high, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < high && i < COT_PROCESSES; i++)
        if (__atomic_load_n(&cot_usage->process[i].pid, __ATOMIC_RELAXED) == pid && slot_lives(i))
            return true;
    return false;
}
