"""Lists the parts of a server, in the order in which they are made and begin a term.

A part may use what earlier ones share. A new one is a folder with its `part.py`, and its line here.
"""

from __future__ import annotations

from cotenant.kube.admission.part import Admission
from cotenant.kube.binding.part import Binding, Learning, LedgerPart
from cotenant.kube.events import Events
from cotenant.kube.extender.part import LeaderEndpoint, Scheduler
from cotenant.kube.line.part import Evicting, Line
from cotenant.kube.overuse.part import Overuse
from cotenant.kube.parts.part import Part
from cotenant.kube.scaler.keda.part import Keda
from cotenant.kube.scaler.part import Scaler
from cotenant.kube.server.certificates import Certificates

PARTS: tuple[type[Part], ...] = (
    Certificates,
    Admission,
    LedgerPart,
    Events,
    Line,
    Evicting,
    Binding,
    Learning,
    Scheduler,
    LeaderEndpoint,
    Overuse,
    Scaler,
    Keda,
)
