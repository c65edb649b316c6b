/* Records the time of the last kernel launch: idleness is measured by it. */
#include "hooks.h"
#include "slot.h"

#define LAUNCH(name, parameters, arguments)                                                                  \
    EXPORT CUresult name parameters {                                                                        \
        ENTER(name);                                                                                         \
        slot_note_launch();                                                                                  \
        return REAL(name) arguments;                                                                         \
    }

#define KERNEL_PARAMETERS                                                                                    \
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
     unsigned shared, CUstream stream, void **parameters, void **extra)
#define KERNEL_ARGUMENTS (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra)
#define COOPERATIVE_PARAMETERS                                                                               \
    (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,             \
     unsigned shared, CUstream stream, void **parameters)
#define COOPERATIVE_ARGUMENTS (f, gx, gy, gz, bx, by, bz, shared, stream, parameters)

LAUNCH(cuLaunchKernel, KERNEL_PARAMETERS, KERNEL_ARGUMENTS)
LAUNCH(cuLaunchKernel_ptsz, KERNEL_PARAMETERS, KERNEL_ARGUMENTS)
LAUNCH(cuLaunchCooperativeKernel, COOPERATIVE_PARAMETERS, COOPERATIVE_ARGUMENTS)
LAUNCH(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_PARAMETERS, COOPERATIVE_ARGUMENTS)
LAUNCH(cuLaunchKernelEx, (const void *config, CUfunction f, void **parameters, void **extra),
       (config, f, parameters, extra))
LAUNCH(cuLaunchKernelEx_ptsz, (const void *config, CUfunction f, void **parameters, void **extra),
       (config, f, parameters, extra))
LAUNCH(cuLaunch, (CUfunction f), (f))
LAUNCH(cuLaunchGrid, (CUfunction f, int width, int height), (f, width, height))
LAUNCH(cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream stream), (f, width, height, stream))
