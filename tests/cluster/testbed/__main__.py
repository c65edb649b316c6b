"""`python -m cluster.testbed build` makes the binaries; `... run -- COMMAND` runs it inside a testbed's namespaces."""

import argparse
import sys

from . import abilities, binaries, modules, namespaces, places
from .compiling import CannotBuild


def build() -> int:
    reasons = abilities.prepare()
    for part, reason in reasons.items():
        print(f"testbed: the {part} will not run here: {reason}")
    for name, other in {"null extender": binaries.null_extender, "Helm": binaries.helm}.items():
        try:
            other()
        except CannotBuild as why:
            print(f"testbed: no {name}: {why}")
    ready = [part for part in (places.CONTROL_PLANE, places.KUBELET) if part not in reasons]
    print(
        f"testbed: {', '.join(ready) or 'nothing'} ready in {places.cache()} (Kubernetes {places.version()})"
    )
    return 0


def build_keda() -> int:
    try:
        print(f"testbed: KEDA {places.KEDA} ready in {binaries.keda()}")
        print(
            f"testbed: prometheus-adapter {places.PROMETHEUS_ADAPTER} ready in {binaries.prometheus_adapter()}"
        )
    except CannotBuild as why:
        print(f"testbed: no adapter of metrics: {why}", file=sys.stderr)
        return 1
    return 0


def run(command: list[str]) -> int:
    reasons = abilities.prepare()
    if places.CONTROL_PLANE in reasons:
        print(f"testbed: {reasons[places.CONTROL_PLANE]}", file=sys.stderr)
        return 1
    return namespaces.run(command, reasons)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster.testbed", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="find or build every binary")
    verbs.add_parser("keda", help="find or build KEDA and prometheus-adapter")
    module = verbs.add_parser("module", help="write go.mod and go.sum for a version of Kubernetes")
    module.add_argument("version", choices=places.KUBERNETES)
    inside = verbs.add_parser("run", help="run a command in the namespaces of a new testbed")
    inside.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.verb == "build":
        return build()
    if asked.verb == "keda":
        return build_keda()
    if asked.verb == "module":
        print(modules.write(asked.version))
        return 0
    command = asked.command[1:] if asked.command[:1] == ["--"] else asked.command
    return run(command)


if __name__ == "__main__":
    sys.exit(main())
