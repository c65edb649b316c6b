#ifndef COTENANT_CONTEXTS_H
#define COTENANT_CONTEXTS_H

#include "slot.h"

/* Where an allocation would land. */
enum place {
    PLACE_CARD,    /* on a card of the grant: charge it */
    PLACE_THROUGH, /* no business of the shim's: call the driver */
    PLACE_REFUSED, /* return `place.refusal` */
};

struct here {
    enum place place;
    int card;
    CUdevice device;
    CUcontext context;
    CUresult refusal;
};

/* The card of the calling thread's current context. */
struct here here_now(void);
/* The card of a device that is named by number. */
struct here here_on(CUdevice device);

#endif
