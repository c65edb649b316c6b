/* Records allocations that have an address, whichever function gave it. */
#ifndef COTENANT_MEMORY_H
#define COTENANT_MEMORY_H

#include <stdbool.h>

struct record;

/* For what the driver has just given; false if it could not be recorded. */
bool remember_allocation(const struct record *record);
/* For what the driver has freed; its record is already taken out. */
void allocation_freed(const struct record *gone);

#endif
