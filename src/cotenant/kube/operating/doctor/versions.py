"""Compares the versions of servers and agents with each other and with this program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cotenant.core.finding import WARNING, Finding, Kind
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import few
from cotenant.kube.operating.doctor.subject import ClusterSubject

VERSIONS_DIFFER = Kind("versions-differ", WARNING, "an upgrade is in progress, or did not finish")


def versions(facts: Facts) -> Iterator[Finding]:
    """Agents are compared with the servers; where no server is seen, with each other."""
    servers = facts.server_versions
    agents = {seen.name: seen.agent for seen in facts.view.nodes if seen.agent}
    if len(servers) > 1:
        yield VERSIONS_DIFFER.at(
            "server",
            f"servers of several versions run: {', '.join(sorted(servers))}",
            _watch_rollout(facts, "deployment/cotenant-server"),
        )
    most = Counter(agents.values()).most_common(1)
    wanted = servers or {version for version, _ in most}
    others = "the server has" if servers else "most others have"
    for version in sorted(set(agents.values()) - wanted):
        nodes = [name for name, its in agents.items() if its == version]
        yield VERSIONS_DIFFER.at(
            f"agent {version}",
            f"the agents on {few(nodes)} have version {version}, but {others} {', '.join(sorted(wanted))}",
            _watch_rollout(facts, "daemonset/cotenant-agent"),
        )
    if facts.version and wanted and facts.version not in wanted:
        yield VERSIONS_DIFFER.at(
            "cotenant",
            f"this program has version {facts.version}, but the cluster runs {', '.join(sorted(wanted))}",
            f"install version {max(wanted)}: in its source tree, pipx install --force '.[cluster]'",
            means="it may misjudge what it sees; --fix does not restore a webhook that another version made",
        )


def _watch_rollout(facts: Facts, workload: str) -> str:
    status = f"kubectl rollout status -n {facts.installed.namespace} {workload}"
    return f"wait for the upgrade, or see why it does not finish: {status}"


SUBJECT = ClusterSubject(checks=(versions,))
