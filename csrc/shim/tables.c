/* Implements tables.h. */
#define _GNU_SOURCE
#include "tables.h"

#include <string.h>
#include <sys/mman.h>

#define SMALL (1u << 20) /* below this the driver packs allocations together */
#define SMALL_STEP 512u

struct table allocations, arrays, contexts, greens, handles, pools, graphs;

uint64_t round_up(uint64_t value, uint64_t step) {
    uint64_t rest = value % step;
    if (rest == 0)
        return value;
    return value > UINT64_MAX - (step - rest) ? UINT64_MAX / step * step : value + step - rest;
}

static uint64_t granule(void) {
    uint64_t bytes = cot_limits->granule;
    return bytes ? bytes : 2u << 20;
}

/* What small allocations cost more when their sum grows from `before`: the granules that it begins. */
static uint64_t due(uint64_t before, uint64_t bytes) {
    return round_up(before + bytes, granule()) - round_up(before, granule());
}

/* Small allocations cost the granules that their sum fills. A granule is paid before the sum shows it, and
 * given back after, so that no thread allocates in one that another may yet be refused. */
static CUresult charge_small(int card, uint64_t bytes) {
    uint64_t *sum = &cot_self->small[card], paid = 0;
    uint64_t before = __atomic_load_n(sum, __ATOMIC_SEQ_CST);
    for (;;) {
        uint64_t owed = due(before, bytes);
        CUresult verdict = owed > paid ? slot_charge(card, owed - paid) : CUDA_SUCCESS;
        if (verdict != CUDA_SUCCESS) {
            before = __atomic_load_n(sum, __ATOMIC_SEQ_CST);
            if (due(before, bytes) <= paid) /* another thread has meanwhile paid for the granule */
                continue;
            slot_uncharge(card, paid);
            return verdict;
        }
        paid = owed > paid ? owed : paid;
        if (__atomic_compare_exchange_n(sum, &before, before + bytes, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            if (paid > owed)
                slot_uncharge(card, paid - owed);
            return CUDA_SUCCESS;
        }
    }
}

CUresult cost_charge(int card, uint64_t size, struct cost *cost) {
    *cost = (struct cost){.card = card};
    if (size < SMALL) {
        cost->small = round_up(size, SMALL_STEP);
        slot_charge(card, 0); /* most fit into a granule that is paid: this notes the time */
        return charge_small(card, cost->small);
    }
    cost->bytes = round_up(size, granule());
    return slot_charge(card, cost->bytes);
}

void cost_uncharge(const struct cost *cost) {
    uint64_t bytes = cost->bytes;
    if (cost->small) {
        uint64_t before = __atomic_fetch_sub(&cot_self->small[cost->card], cost->small, __ATOMIC_SEQ_CST);
        bytes += due(before - cost->small, cost->small);
    }
    slot_uncharge(cost->card, bytes);
}

/* Open addressing with linear probing; a removed record is filled by moving later ones up, so nothing decays.
 */

static uint64_t home_of(const struct table *table, uint64_t key) {
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdull;
    key ^= key >> 33;
    return key & (table->capacity - 1);
}

static struct record *seek(struct table *table, uint64_t key) {
    if (table->capacity == 0 || key == 0)
        return NULL;
    for (uint64_t i = home_of(table, key);; i = (i + 1) & (table->capacity - 1)) {
        if (table->records[i].key == key)
            return &table->records[i];
        if (table->records[i].key == 0)
            return NULL;
    }
}

static void insert(struct table *table, const struct record *record) {
    uint64_t i = home_of(table, record->key);
    while (table->records[i].key != 0 && table->records[i].key != record->key)
        i = (i + 1) & (table->capacity - 1);
    table->count += table->records[i].key == 0;
    table->records[i] = *record;
}

static bool grow(struct table *table) {
    struct table bigger = {.capacity = table->capacity ? table->capacity * 2 : 256};
    size_t bytes = bigger.capacity * sizeof(struct record);
    bigger.records = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bigger.records == MAP_FAILED)
        return false;
    for (uint64_t i = 0; i < table->capacity; i++)
        if (table->records[i].key != 0)
            insert(&bigger, &table->records[i]);
    if (table->capacity)
        munmap(table->records, table->capacity * sizeof(struct record));
    *table = bigger;
    return true;
}

static void erase(struct table *table, struct record *gone) {
    uint64_t mask = table->capacity - 1, hole = (uint64_t)(gone - table->records);
    for (uint64_t i = (hole + 1) & mask; table->records[i].key != 0; i = (i + 1) & mask) {
        uint64_t home = home_of(table, table->records[i].key);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table->records[hole] = table->records[i];
            hole = i;
        }
    }
    table->records[hole].key = 0;
    table->count--;
}

bool table_put_new(struct table *table, const struct record *record, struct record *old, bool *replaced) {
    pthread_mutex_lock(&cot_self->lock);
    struct record *found = seek(table, record->key);
    *replaced = found != NULL;
    if (found != NULL)
        *old = *found;
    bool room = found != NULL || table->count * 2 < table->capacity || grow(table);
    if (room)
        insert(table, record);
    pthread_mutex_unlock(&cot_self->lock);
    return room;
}

bool table_put(struct table *table, const struct record *record) {
    struct record old;
    bool replaced;
    return table_put_new(table, record, &old, &replaced);
}

bool table_take(struct table *table, uint64_t key, struct record *taken) {
    pthread_mutex_lock(&cot_self->lock);
    struct record *record = seek(table, key);
    if (record != NULL) {
        *taken = *record;
        erase(table, record);
    }
    pthread_mutex_unlock(&cot_self->lock);
    return record != NULL;
}

bool table_get(struct table *table, uint64_t key, struct record *found) {
    pthread_mutex_lock(&cot_self->lock);
    struct record *record = seek(table, key);
    if (record != NULL)
        *found = *record;
    pthread_mutex_unlock(&cot_self->lock);
    return record != NULL;
}

bool table_count(struct table *table, uint64_t key, int change, struct record *counted) {
    pthread_mutex_lock(&cot_self->lock);
    struct record *record = seek(table, key);
    if (record != NULL) {
        record->size += (uint64_t)(int64_t)change;
        *counted = *record;
        if (record->size == 0)
            erase(table, record);
    }
    pthread_mutex_unlock(&cot_self->lock);
    return record != NULL;
}

void table_sweep(struct table *table, bool (*wanted)(const struct record *, const void *), const void *of,
                 void (*removed)(const struct record *)) {
    pthread_mutex_lock(&cot_self->lock);
    for (uint64_t i = 0; i < table->capacity;) {
        struct record gone = table->records[i];
        if (gone.key == 0 || !wanted(&gone, of)) {
            i++;
            continue;
        }
        erase(table, &table->records[i]); /* may move another one here: the place is looked at again */
        removed(&gone);
    }
    pthread_mutex_unlock(&cot_self->lock);
}

void tables_clear(void) {
    struct table *all[] = {&allocations, &arrays, &contexts, &greens, &handles, &pools, &graphs};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->capacity)
            munmap(all[i]->records, all[i]->capacity * sizeof(struct record));
        *all[i] = (struct table){0};
    }
}
