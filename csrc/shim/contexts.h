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

/* Whether CUDA is not initialised: then nothing can be allocated, and the driver says best what is wrong.
 * Hooks that would look at parameters, or refuse, ask first. */
bool driver_asleep(void);
/* The card of the calling thread's current context. */
struct here here_now(void);
/* The card of a device that is named by number. */
struct here here_on(CUdevice device);
/* The card of a stream, which may be another one than the current context's. */
struct here here_of(CUstream stream);

enum location { LOCATION_UNKNOWN, LOCATION_HOST, LOCATION_DEVICE };

/* What kind of memory a location names. CUDA adds kinds: only what is known to be host memory is taken for
 * it. */
enum location location_of(const CUmemLocation *location, CUdevice *device);
/* The card of a location. Host memory goes through; under `enforce` an unknown kind is refused. */
struct here here_at(const CUmemLocation *location);

#endif
