"""Writes the commands and lists of names that findings have in common."""

from __future__ import annotations

from cotenant.kube.operating.doctor.facts import Facts

FIX = "run `cotenant doctor --cluster --fix`"


def restore(namespace: str, component: str) -> str:
    """How a part of the installation is restored as the chart made it."""
    return (
        f"restore it with Helm: helm upgrade cotenant charts/cotenant -n {namespace} --reuse-values; or "
        f"without it: kubectl apply -f deploy/cotenant.yaml -l app.kubernetes.io/component={component}"
    )


def delete_pod(namespace: str, name: str) -> str:
    return f"kubectl delete pod -n {namespace} {name}"


def server_log(facts: Facts) -> str:
    return f"kubectl logs -n {facts.installed.namespace} -l app.kubernetes.io/component=server"


def look_at_agent(facts: Facts, node: str) -> str:
    """Where to read why the agent of a node does not do its work, or why there is no agent."""
    space = facts.installed.namespace
    for pod in facts.component("agent"):
        if pod.spec.node_name == node:
            return f"read the agent's log: kubectl logs -n {space} {pod.metadata.name}"
    return f"find out why no agent runs on {node}: kubectl describe daemonset -n {space} cotenant-agent"


def few(names: list[str]) -> str:
    """At most five of the names, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
