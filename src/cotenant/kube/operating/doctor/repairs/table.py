"""Repairs by the names that findings give them."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.kube.operating.doctor import ledger_checks, policy_checks, scheduler_checks
from cotenant.kube.operating.doctor.repairs.endpoint import endpoint
from cotenant.kube.operating.doctor.repairs.node import undrain
from cotenant.kube.operating.doctor.repairs.policy import policy
from cotenant.kube.operating.doctor.repairs.repair import Repair
from cotenant.kube.operating.doctor.repairs.scheduler import scheduler
from cotenant.kube.operating.doctor.repairs.servers import servers
from cotenant.kube.operating.doctor.repairs.webhook import ca_bundle, webhook

REPAIRS: Mapping[str, Repair] = {
    "ca-bundle": ca_bundle,
    "endpoint": endpoint,
    policy_checks.REPAIR: policy,
    scheduler_checks.REPAIR: scheduler,
    ledger_checks.REPAIR: servers,
    "undrain": undrain,
    "webhook": webhook,
}
