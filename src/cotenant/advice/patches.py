"""Writes advice as patches of workloads, one YAML document each.

`kubectl patch --patch-file` takes one document, `kubectl apply --server-side` all of them: each names its
object. YAML of this form is written by hand, since a workstation has no library for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cotenant.core.errors import BadInput
from cotenant.core.rightsizing.advice import Advice
from cotenant.core.units import format_bytes, format_exact

MEMORY = "cotenant.dev/gpu-memory"
_KINDS = {
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "daemonset": ("apps/v1", "DaemonSet"),
    "replicaset": ("apps/v1", "ReplicaSet"),
    "replicationcontroller": ("v1", "ReplicationController"),
    "cronjob": ("batch/v1", "CronJob"),
}
"""Those whose template can be changed."""
_TEMPLATE = ("spec", "template", "spec")
_OF_CRON_JOB = ("spec", "jobTemplate", "spec", "template", "spec")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How a container asks for GPU memory."""

    resource: str = MEMORY
    unit: int = 1
    """Bytes of one."""
    removed: tuple[str, ...] = ()
    """Resources that it asks for now and that memory replaces."""

    def amount(self, size: int) -> str:
        return format_exact(size) if self.unit == 1 else str(-(-size // self.unit))


def patches(advice: Sequence[Advice], spellings: Mapping[tuple[str, str], Spelling] | None = None) -> str:
    """Writes all documents; `spellings` by workload and container. BadInput if no workload has a kind, or no
    container a name.
    """
    spelled = spellings or {}
    by_workload: dict[str, list[Advice]] = {}
    nameless: dict[str, None] = {}
    for each in advice:
        if each.advised is not None and each.advised != each.now:
            owner = each.group.owner
            if each.group.is_instance or not owner.container:
                nameless[owner.workload] = None
            else:
                by_workload.setdefault(owner.workload, []).append(each)
    parts: list[str] = []
    left_out: list[str] = []
    for workload, found in by_workload.items():
        names = workload.split("/")
        if len(names) == 3 and names[1] in _KINDS:
            parts.append(_document(names[0], names[1], names[2], _widest(found), spelled))
        else:
            left_out.append(workload)
    changed = [*left_out, *nameless]
    if changed and all(each.group.owner.workload.count("/") != 2 for each in advice):
        raise BadInput(
            f"output: {changed[0]!a} is not a workload that can be patched: yaml needs workloads as "
            "NAMESPACE/KIND/NAME, such as team/deployment/web"
        )
    if nameless and not parts:
        raise BadInput(
            f"output: the samples of {next(iter(nameless))!a} do not say what its container is called in the "
            "template, and yaml needs that: name it in the column `container`, replicas in a column `pod`, "
            "or say --containers name if it is named there"
        )
    parts += [f"# {_comment(each)}: its container's name is not known: left out\n" for each in nameless]
    parts += [f"# {_comment(each)}: has no template that can be changed: left out\n" for each in left_out]
    return "---\n".join(parts)


def _widest(found: Sequence[Advice]) -> list[Advice]:
    """Keeps one for each container: where two versions run, the larger figure does for both."""
    best: dict[str, Advice] = {}
    for each in found:
        name = each.group.owner.container
        if name not in best or (each.advised or 0) > (best[name].advised or 0):
            best[name] = each
    return list(best.values())


def _document(
    namespace: str,
    kind: str,
    name: str,
    found: Sequence[Advice],
    spelled: Mapping[tuple[str, str], Spelling],
) -> str:
    version, proper = _KINDS[kind]
    lines = [f"# kubectl patch -n {_comment(namespace)} {kind} {_comment(name)} --patch-file FILE"]
    for each in found:
        now = "-" if each.now is None else format_bytes(each.now)
        peak = format_bytes(each.evidence.peak)
        lines.append(
            f"# {_comment(each.group.owner.container)}: {now} -> {format_bytes(each.advised or 0)}, "
            f"peak {peak} of {_comment(each.evidence.peak_of)}, confidence {each.confidence}"
        )
    lines += [
        f"apiVersion: {version}",
        f"kind: {proper}",
        f"metadata: {{name: {_text(name)}, namespace: {_text(namespace)}}}",
    ]
    path = _OF_CRON_JOB if kind == "cronjob" else _TEMPLATE
    lines += [f"{'  ' * depth}{part}:" for depth, part in enumerate(path)]
    inner = "  " * len(path)
    lines.append(f"{inner}containers:")
    for each in found:
        container = each.group.owner.container
        spelling = spelled.get((each.group.owner.workload, container), Spelling())
        amounts = [f"{spelling.resource}: {_text(spelling.amount(each.advised or 0))}"]
        amounts += [f"{removed}: null" for removed in spelling.removed]
        lines += [
            f"{inner}- name: {_text(container)}",
            f"{inner}  resources:",
            f"{inner}    requests: {{{', '.join(amounts)}}}",
            f"{inner}    limits: {{{', '.join(amounts)}}}",
        ]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """Quotes as JSON does, which YAML reads."""
    return json.dumps(value)


def _comment(value: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in value)
