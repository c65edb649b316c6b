"""Declares the settings of scaling and release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cotenant.settings.declaring import Duration


@dataclass(frozen=True, slots=True)
class ScalerSettings:
    """How GpuScalers are served, and how workloads that idle are released."""

    poll: Annotated[float, Duration(least=1)] = 5.0
    """Time between two decisions about a workload. 2s does as well, and asks the queues more often."""
    allow_loopback: bool = False
    """Whether queues may be on the server's own loopback (127.0.0.1, ::1). Only for a server that runs as a
    process of a machine that nobody shares: in a pod, any GpuScaler's author could ask what listens there.
    """
