/* Forgets virtual memory, which in a fork's child is the parent's. */
#ifndef COTENANT_VMM_H
#define COTENANT_VMM_H

void vmm_clear(void);

#endif
