/* Implements tables.h. */
#define _GNU_SOURCE
#include "tables.h"

#include <string.h>
#include <sys/mman.h>

#define SMALL (1u << 20) /* below this the driver packs allocations together */
#define SMALL_STEP 512u

struct table allocations, arrays, contexts, handles, mappings, graphs;

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

/* Small allocations cost the granules that their sum fills. The sum is moved first and alone decides who pays
 * for the next granule, so threads need no lock. */
static CUresult charge_small(int card, uint64_t bytes) {
    uint64_t step = granule(), *sum = &cot_self->small[card];
    uint64_t before = __atomic_fetch_add(sum, bytes, __ATOMIC_SEQ_CST);
    uint64_t due = round_up(before + bytes, step) - round_up(before, step);
    CUresult verdict = slot_charge(card, due);
    if (verdict != CUDA_SUCCESS) {
        uint64_t after = __atomic_fetch_sub(sum, bytes, __ATOMIC_SEQ_CST);
        uint64_t back = round_up(after, step) - round_up(after - bytes, step);
        if (due > back) /* another thread's allocation now lies in the granule that was refused */
            slot_charge_taken(card, due - back);
        else if (back > due)
            slot_uncharge(card, back - due);
    }
    return verdict;
}

CUresult cost_charge(int card, uint64_t size, struct cost *cost) {
    *cost = (struct cost){.card = card};
    if (size < SMALL) {
        cost->small = round_up(size, SMALL_STEP);
        return charge_small(card, cost->small);
    }
    cost->bytes = round_up(size, granule());
    return slot_charge(card, cost->bytes);
}

void cost_uncharge(const struct cost *cost) {
    uint64_t bytes = cost->bytes;
    if (cost->small) {
        uint64_t before = __atomic_fetch_sub(&cot_self->small[cost->card], cost->small, __ATOMIC_SEQ_CST);
        bytes += round_up(before, granule()) - round_up(before - cost->small, granule());
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

bool table_put(struct table *table, const struct record *record) {
    pthread_mutex_lock(&cot_self->lock);
    bool room = table->count * 2 < table->capacity || grow(table);
    if (room)
        insert(table, record);
    pthread_mutex_unlock(&cot_self->lock);
    return room;
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

bool table_take_of(struct table *table, CUcontext context, uint64_t *cursor, struct record *taken) {
    bool found = false;
    pthread_mutex_lock(&cot_self->lock);
    while (!found && *cursor < table->capacity) {
        struct record *record = &table->records[*cursor];
        if (record->key != 0 && record->context == context) {
            *taken = *record;
            erase(table, record); /* may move another one here: the cursor stays */
            found = true;
        } else {
            ++*cursor;
        }
    }
    pthread_mutex_unlock(&cot_self->lock);
    return found;
}

void tables_clear(void) {
    struct table *all[] = {&allocations, &arrays, &contexts, &handles, &mappings, &graphs};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i]->capacity)
            munmap(all[i]->records, all[i]->capacity * sizeof(struct record));
        *all[i] = (struct table){0};
    }
}
