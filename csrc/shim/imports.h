/* Decides which process of a slot is charged for memory that several have: the one that made it, then the
 * importer that has it last. */
#ifndef COTENANT_IMPORTS_H
#define COTENANT_IMPORTS_H

#include "slot.h"

/* What names exported memory to the processes that get it. */
struct export_name {
    uint32_t pid;    /* of the maker, 0 if unknown */
    unsigned number; /* 1 to 64: a signal's number can be kept in a descriptor */
};

/* Names are kept in the open file, which travels with the descriptor. */
void export_mark(int fd, struct export_name name);
struct export_name export_name(int fd);

/* Notes that this process has imported memory whose maker lives in the slot. Returns its place, or -1: nobody
 * here is known to be charged for it, so this process has to be. */
int import_note(struct export_name name, int card, uint64_t bytes);
/* This process no longer has what it imported. */
void import_drop(int place, int card, uint64_t bytes);
/* This process no longer has what it made and exported: if others have it, one of them is charged. Call
 * before uncharging. */
void export_drop(struct export_name name, int card);
/* The name under which imported memory goes on to others. */
struct export_name import_name(int place);

/* A process is dead: hands on what others imported from it. Call while its entry is locked, before it is
 * cleared. */
void imports_inherit(unsigned index);

#endif
