/* Implements imports.h. */
#define _GNU_SOURCE
#include "imports.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#ifndef F_SETSIG
#define F_SETSIG 10
#define F_GETSIG 11
#endif

#define NUMBERS 128

static uint64_t word_of(unsigned index, struct export_name name, int card) {
    return (uint64_t)name.pid << COT_IMPORT_PID_SHIFT | (uint64_t)name.number << COT_IMPORT_NUMBER_SHIFT |
           (uint64_t)(unsigned)card << COT_IMPORT_CARD_SHIFT | (index + 1);
}

static unsigned number_of(uint64_t word) {
    return word >> COT_IMPORT_NUMBER_SHIFT & (NUMBERS - 1);
}

static unsigned card_of(uint64_t word) {
    return word >> COT_IMPORT_CARD_SHIFT & (COT_CARDS - 1);
}

/* These fields of an open file have no effect unless it is asked to send signals, which a driver's never is.
 */
void export_mark(int fd, struct export_name name) {
    if (fcntl(fd, F_SETOWN, (int)name.pid) == 0)
        fcntl(fd, F_SETSIG, (int)name.number);
}

struct export_name export_name(int fd) {
    int pid = fcntl(fd, F_GETOWN), number = fcntl(fd, F_GETSIG);
    bool named = pid > 0 && number > 0;
    return (struct export_name){named ? (uint32_t)pid : 0, named ? (unsigned)number : 0};
}

static unsigned entries(void) {
    uint64_t high = __atomic_load_n(&cot_usage->high, __ATOMIC_SEQ_CST);
    return high < COT_PROCESSES ? (unsigned)high : COT_PROCESSES;
}

static int maker_entry(struct export_name name) {
    for (unsigned i = 0; name.pid != 0 && i < entries(); i++)
        if (__atomic_load_n(&cot_usage->process[i].pid, __ATOMIC_SEQ_CST) == name.pid && slot_lives(i))
            return (int)i;
    return -1;
}

/* Adds first and marks then: whoever is killed in between has charged too much, not too little. */
static bool charge_importer(struct cot_process *heir, struct cot_import *import, uint64_t word) {
    uint64_t bytes = __atomic_load_n(&import->bytes, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&heir->used[card_of(word)], bytes, __ATOMIC_SEQ_CST);
    if (__atomic_compare_exchange_n(&import->maker, &word, word | COT_IMPORT_CHARGED, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        return true;
    __atomic_fetch_sub(&heir->used[card_of(word)], bytes, __ATOMIC_SEQ_CST);
    return false;
}

/* One importer of each number is charged; the others have it from that one from then on. `wanted`: only this
 * word; 0: all of the maker's. */
static void hand_on(unsigned maker, uint32_t pid, uint64_t wanted) {
    unsigned heirs[NUMBERS];
    memset(heirs, 0xff, sizeof heirs);
    for (unsigned i = 0; i < entries(); i++) {
        struct cot_process *process = &cot_usage->process[i];
        for (unsigned j = 0; j < COT_IMPORTS; j++) {
            uint64_t word = __atomic_load_n(&process->import[j].maker, __ATOMIC_SEQ_CST);
            bool ours = (word & COT_IMPORT_ENTRY) == maker + 1 && word >> COT_IMPORT_PID_SHIFT == pid;
            if (!ours || word & COT_IMPORT_CHARGED || (wanted != 0 && word != wanted) || !slot_lives(i))
                continue;
            unsigned number = number_of(word), heir = heirs[number];
            if (heir == UINT32_MAX) {
                if (charge_importer(process, &process->import[j], word))
                    heirs[number] = i;
                continue;
            }
            struct export_name name = {(uint32_t)cot_usage->process[heir].pid, number};
            uint64_t from_heir = word_of(heir, name, (int)card_of(word));
            __atomic_compare_exchange_n(&process->import[j].maker, &word, from_heir, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST);
        }
    }
}

void imports_inherit(unsigned index) {
    hand_on(index, (uint32_t)cot_usage->process[index].pid, 0);
}

int import_note(struct export_name name, int card, uint64_t bytes) {
    int maker = maker_entry(name);
    if (maker < 0)
        return -1;
    uint64_t word = word_of((unsigned)maker, name, card);
    for (int i = 0; i < COT_IMPORTS; i++) {
        struct cot_import *import = &cot_self->entry->import[i];
        if (__atomic_load_n(&import->maker, __ATOMIC_SEQ_CST) != 0)
            continue;
        __atomic_store_n(&import->bytes, bytes, __ATOMIC_SEQ_CST);
        __atomic_store_n(&import->maker, word, __ATOMIC_SEQ_CST);
        if (maker_entry(name) == maker)
            return i;
        /* The maker died meanwhile: either it was handed on, or nobody saw this note. */
        uint64_t now = __atomic_exchange_n(&import->maker, 0, __ATOMIC_SEQ_CST);
        if (now & COT_IMPORT_CHARGED) {
            __atomic_store_n(&import->maker, now, __ATOMIC_SEQ_CST);
            return i;
        }
        return -1;
    }
    return -1;
}

struct export_name import_name(int place) {
    uint64_t word = __atomic_load_n(&cot_self->entry->import[place].maker, __ATOMIC_SEQ_CST);
    uint32_t pid =
        word & COT_IMPORT_CHARGED ? (uint32_t)cot_self->entry->pid : (uint32_t)(word >> COT_IMPORT_PID_SHIFT);
    return (struct export_name){pid, number_of(word)};
}

void export_drop(struct export_name name, int card) {
    hand_on(cot_self->index, name.pid, word_of(cot_self->index, name, card));
}

void import_drop(int place, int card, uint64_t bytes) {
    uint64_t word = __atomic_exchange_n(&cot_self->entry->import[place].maker, 0, __ATOMIC_SEQ_CST);
    if (!(word & COT_IMPORT_CHARGED))
        return;
    export_drop((struct export_name){(uint32_t)cot_self->entry->pid, number_of(word)}, card);
    slot_uncharge(card, bytes);
}
