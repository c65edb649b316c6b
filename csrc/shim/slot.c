/* Implements slot.h: finds and maps the slot, owns an entry in it, charges against its limits. */
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

static void raise_to(uint64_t *field, uint64_t value) {
    uint64_t seen = __atomic_load_n(field, __ATOMIC_RELAXED);
    while (seen < value &&
           !__atomic_compare_exchange_n(field, &seen, value, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
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

uint64_t slot_used(int card) {
    uint64_t high = __atomic_load_n(&cot_usage->high, __ATOMIC_SEQ_CST);
    uint64_t total = 0;
    for (uint64_t i = 0; i < high && i < COT_PROCESSES; i++)
        total += __atomic_load_n(&cot_usage->process[i].used[card], __ATOMIC_SEQ_CST);
    return total;
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

/* Larger than any card. Without this bound a request of 2^64 less what is in use would wrap the sum of all.
 */
#define MOST_BYTES (1ull << 50)

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
