"""The server's side: who leads, the way to it, its certificates, webhook and policies, and who calls it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, get_args

from cotenant.dialects import names
from cotenant.dialects.wishes import Mode
from cotenant.kube import certificates
from cotenant.kube.admission.configuration import NAME, webhook_configuration
from cotenant.kube.certificate_set import CertificateSet, from_data, is_signed
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, FIX, WARNING, Finding

SECRET = "cotenant-certificates"  # noqa: S105 - its name
POLICIES = tuple(
    f"cotenant-{name}" for name in ("bindings", "cards", "demands", "grants", "modes", "nodes", "server")
)
_STALE = timedelta(seconds=60)
"""Beyond what a lease lasts: clocks differ."""
_LATE = 1 / 4
"""Of a certificate's life: the server renews it when a third is left, so by then it does not."""
_HELM = "helm upgrade, or kubectl apply -f deploy/cotenant.yaml, restores it"


def lease(facts: Facts) -> Iterator[Finding]:
    settings = facts.installed.settings
    target, found = f"lease {facts.installed.namespace}/{settings.leader.lease}", facts.lease
    problem = None
    if found is None:
        problem = "is not there"
    elif not found.spec.holder_identity:
        problem = "is held by nobody"
    elif found.spec.renew_time is None or facts.now - found.spec.renew_time > _STALE + timedelta(
        seconds=settings.leader.duration
    ):
        problem = f"was last renewed {found.spec.renew_time}, by {found.spec.holder_identity}"
    if problem is not None:
        yield Finding(
            "not-led",
            target,
            ERROR,
            f"the {target} {problem}",
            "no server leads: no GPU pod is placed, and nobody is served in line",
            f"kubectl logs -n {facts.installed.namespace} -l app.kubernetes.io/component=server",
        )


def endpoint(facts: Facts) -> Iterator[Finding]:
    service = f"{facts.installed.namespace}/{facts.installed.settings.extender.service}"
    if facts.endpoints is None:
        return
    servers = {each.metadata.name: each.status.pod_ip for each in facts.component("server")}
    holder = facts.lease.spec.holder_identity if facts.lease else None
    leader = next((ip for name, ip in servers.items() if holder and holder.startswith(f"{name}_")), None)
    if not facts.endpoints:
        problem = "leads nowhere"
    elif len(facts.endpoints) > 1:
        problem = f"leads to several servers, {', '.join(facts.endpoints)}: only one of them leads"
    elif leader and facts.endpoints != (leader,):
        problem = f"leads to {facts.endpoints[0]}, and the leader is {leader}"
    else:
        return
    yield Finding(
        "wrong-endpoint",
        f"service {service}",
        ERROR,
        f"the Service {service} {problem}",
        "kube-scheduler does not reach the server that leads: no GPU pod is placed",
        f"the leader writes it when its term begins: kubectl rollout restart -n {facts.installed.namespace} "
        "deployment/cotenant-server",
    )


def certificate(facts: Facts) -> Iterator[Finding]:
    target = f"secret {facts.installed.namespace}/{SECRET}"
    if facts.certificates is None:
        if not any(SECRET in each for each in facts.unread):
            yield Finding(
                "no-certificates",
                target,
                ERROR,
                f"the {target} is not there",
                "the API server and kube-scheduler cannot talk to the server",
                "the server makes it: look at its log",
            )
        return
    kept = from_data(facts.certificates)
    for what, pair in (
        ("serving", kept.serving),
        ("scheduler", kept.scheduler),
        ("authority", kept.authority),
    ):
        late = _is_late(what, pair.certificate, facts)
        problem = _problem(what, pair.certificate, kept, facts) or late
        if problem is not None:
            yield Finding(
                "certificate",
                f"{target}: {what}",
                WARNING if problem is late else ERROR,
                f"the {what} certificate in the {target} {problem}",
                "the API server or kube-scheduler is refused, or will be",
                "the server renews it by itself: if it runs and this stays, look at its log",
            )


def _problem(what: str, pem: bytes, kept: CertificateSet, facts: Facts) -> str | None:
    found = certificates.read(pem)
    if found is None:
        return "is damaged or missing"
    term = certificates.term(found)
    if facts.now >= term.ends:
        return f"has expired at {term.ends}"
    if facts.now < term.begins:
        return f"is not good before {term.begins}"
    if what != "authority" and not is_signed(pem, kept.bundle):
        return "is not signed by the authority beside it"
    return None


def _is_late(what: str, pem: bytes, facts: Facts) -> str | None:
    """An authority has a successor long before its end."""
    found = certificates.read(pem)
    if found is None or what == "authority":
        return None
    term = certificates.term(found)
    left = (term.ends - facts.now) / (term.ends - term.begins)
    return f"has only {term.ends - facts.now} left and is not renewed" if left < _LATE else None


def webhook(facts: Facts) -> Iterator[Finding]:
    found, target = facts.installed.webhook, f"mutatingwebhookconfiguration {NAME}"
    if found is None:
        restorable = facts.certificates is not None and facts.installed.settings_known
        yield Finding(
            "webhook-missing",
            target,
            ERROR,
            f"there is no {target}",
            "GPU pods are not prepared: they get no slot, and no card",
            FIX if restorable else _HELM,
            "webhook" if restorable else None,
        )
        return
    altered = altered_fields(facts)
    if altered:
        yield Finding(
            "webhook-altered",
            target,
            ERROR,
            f"the {target} is not as it was installed: {', '.join(altered)}",
            "GPU pods may pass without it, or other pods wait for it",
            FIX,
            "webhook",
        )
    if facts.certificates is None:
        return
    wanted = base64.b64encode(from_data(facts.certificates).bundle).decode()
    if any(
        (each.get("clientConfig") or {}).get("caBundle") != wanted for each in found.get("webhooks") or ()
    ):
        yield Finding(
            "ca-bundle",
            target,
            ERROR,
            f"the {target} trusts another authority than the one in the Secret {SECRET}",
            "the API server does not trust the webhook: no GPU pod can be created",
            FIX,
            "ca-bundle",
        )


def altered_fields(facts: Facts) -> list[str]:
    """Where the webhook's configuration differs; whom it is asked about, only if settings are known."""
    found = (facts.installed.webhook or {}).get("webhooks") or []
    settings = facts.installed.settings
    (wanted,) = webhook_configuration(settings, settings.dialects)["webhooks"]
    if [each.get("name") for each in found] != [wanted["name"]]:
        return ["webhooks"]
    known = facts.installed.settings_known
    return [
        key
        for key, value in wanted.items()
        if key != "clientConfig" and (known or key != "matchConditions") and found[0].get(key) != value
    ] + [
        f"clientConfig.service.{key}"
        for key, value in wanted["clientConfig"]["service"].items()
        if ((found[0].get("clientConfig") or {}).get("service") or {}).get(key) != value
    ]


def policies(facts: Facts) -> Iterator[Finding]:
    if facts.policies is None or facts.bindings is None:
        return
    for name in POLICIES:
        policy, binding = facts.policies.get(name), facts.bindings.get(name)
        problem = None
        if policy is None:
            problem = "is not there"
        elif (policy.get("spec") or {}).get("failurePolicy") != "Fail":
            problem = "lets pass what it cannot judge (failurePolicy)"
        elif binding is None:
            problem = "is bound to nothing"
        elif "Deny" not in ((binding.get("spec") or {}).get("validationActions") or ()):
            problem = "does not deny (validationActions of its binding)"
        elif (binding.get("spec") or {}).get("matchResources"):
            problem = "does not count everywhere (matchResources of its binding)"
        if problem is not None:
            yield Finding(
                "policy",
                f"policy {name}",
                ERROR,
                f"the ValidatingAdmissionPolicy {name} {problem}",
                "an author of pods may get more than was granted: see docs/security.md",
                _HELM,
            )


def schedulers(facts: Facts) -> Iterator[Finding]:
    for where, configuration in facts.schedulers.items():
        ours = [each for each in configuration.get("extenders") or () if _is_ours(each, facts)]
        if not ours:
            continue
        percentage = configuration.get("percentageOfNodesToScore")
        profiles = configuration.get("profiles") or [{}]
        sampled = [
            profile.get("schedulerName", "default-scheduler")
            for profile in profiles
            if profile.get("percentageOfNodesToScore", percentage) != 100
        ]
        if sampled:
            yield Finding(
                "scheduler-samples",
                where,
                ERROR,
                f"{where}: the scheduler {', '.join(sampled)} looks at a part of the nodes only",
                "in a big cluster a pod may wait though there is a node with room",
                "set percentageOfNodesToScore: 100 and restart that scheduler",
            )
        for extender in ours:
            problem = _extender_problem(extender)
            if problem is not None:
                yield Finding(
                    "scheduler-extender",
                    where,
                    ERROR,
                    f"{where}: {problem}",
                    "GPU pods are bound without a grant, or others are evicted for nothing",
                    "write it as docs/install.md shows, and restart that scheduler",
                )


def _extender_problem(extender: Mapping[str, Any]) -> str | None:
    missing = [
        verb for verb in ("filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb") if not extender.get(verb)
    ]
    if missing:
        return f"the extender has no {', '.join(missing)}"
    if extender.get("ignorable"):
        return "the extender is ignorable: while it does not answer, GPU pods are placed without it"
    return None


def _is_ours(extender: Mapping[str, Any], facts: Facts) -> bool:
    service = facts.installed.settings.extender.service
    told = (extender.get("tlsConfig") or {}).get("serverName") or ""
    resources = {each.get("name") for each in extender.get("managedResources") or ()}
    return service in str(extender.get("urlPrefix")) or service in told or names.GPU_MEMORY in resources


def modes(facts: Facts) -> Iterator[Finding]:
    for meta in facts.namespaces:
        said = meta.labels.get(names.ENFORCE)
        if said and said not in get_args(Mode):
            yield Finding(
                "bad-mode",
                f"namespace {meta.name}",
                ERROR,
                f"the label {names.ENFORCE} of namespace {meta.name} is {said!r}",
                "GPU containers there do not start",
                f"kubectl label namespace {meta.name} {names.ENFORCE}=enforce --overwrite",
            )


def quotas(facts: Facts) -> Iterator[Finding]:
    """Kubernetes counts what is not its own under `requests.` only."""
    for quota in facts.quotas:
        hard = quota.spec.get("hard") or {}
        for name in hard:
            if names.DOMAIN not in name or name.startswith("requests."):
                continue
            bare = name.removeprefix("limits.")
            yield Finding(
                "quota-not-counted",
                f"quota {quota.metadata.namespace}/{quota.metadata.name}",
                WARNING,
                f"quota {quota.metadata.namespace}/{quota.metadata.name} limits {name}, which is not counted",
                "pods of that namespace may take more than it says",
                f"write requests.{bare} in place of {name}",
            )


def unread(facts: Facts) -> Iterator[Finding]:
    for what in facts.unread:
        yield Finding(
            "not-looked-at",
            what.partition(":")[0],
            WARNING,
            f"could not be looked at: {what}",
            "something may be wrong there that is not told here",
            "call it with the rights of a cluster administrator",
        )
