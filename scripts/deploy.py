"""Writes the chart's version, the settings' part of its schema, the GpuScaler's definition, the dashboards,
and deploy/.

The chart is the source of deploy/. `make deploy` runs this, and a test fails if the files differ from that.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import yaml

from cotenant import __version__
from cotenant.kube.scaler.definition import definition
from cotenant.kube.settings import Settings
from cotenant.settings.declaring import Duration, Form, Range
from cotenant.settings.reference import explanations

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

import dashboards  # noqa: E402

CHART = ROOT / "charts" / "cotenant"
SCHEMA = CHART / "values.schema.json"
DEFINITION = CHART / "definitions" / "gpuscaler.yaml"
ABOUT = CHART / "Chart.yaml"
ICON = ROOT / "docs" / "icon.svg"
NAMESPACE = "cotenant-system"
KUBERNETES = "1.37.1"
"""Determines only the image of kube-scheduler."""

OF_THE_CHART = {
    "namespace",
    "kubeconfig",
    "server",
    "webhook.service",
    "extender.service",
    "keda.service",
    "leader.lease",
    "agent.node",
    "agent.address",
    "agent.certificate",
    "mps.supervise",
    "mps.shared_memory",
}
"""Settings that the chart sets itself: another value would not match the rest of what it installs."""

DURATION = r"^(([0-9]+(\.[0-9]*)?|\.[0-9]+)([mnu]?s|[dhm]))+$"
SIZE = r"^([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i?B?|kB?|[mun]|[eE][+-]?[0-9]{1,3})?$"
"""What `core/units.py` reads, and a little more; microseconds only as `us`."""

HOOK = "helm.sh/hook"
"""Marks objects that Helm creates at certain moments; kubectl would create them at once."""

COMPONENT = "app.kubernetes.io/component: keda"
"""Marks objects that only KEDA needs."""

HEAD = """\
# Made from charts/cotenant by `make deploy`: change the chart, not this file.
#
#     {use}
#
# First give the image of kube-scheduler your cluster's version (`kubectl version`): none may be newer than
# its API server.
"""
KEDA_HEAD = """\
# Made from charts/cotenant by `make deploy`: change the chart, not this file.
#
#     kubectl apply -f deploy/keda.yaml
#
# For KEDA in the namespace `keda`, after deploy/cotenant.yaml and KEDA itself. Then set `enabled = true`
# below [keda] in the ConfigMap cotenant-settings, and restart the Deployment cotenant-server.
"""
OWN_NAMESPACE = f"""\
---
# The agent reads the host's pids and the kubelet's folders, which is what this level allows. Server and
# scheduler keep within `restricted` of themselves.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    app.kubernetes.io/name: cotenant
    app.kubernetes.io/instance: cotenant
    app.kubernetes.io/component: namespace
    pod-security.kubernetes.io/enforce: privileged
"""


def rendered(helm: Path) -> dict[str, str]:
    """Renders the files of deploy/, by name."""
    install = "".join(part for part in _documents(helm) if HOOK not in part)
    head = HEAD.format(use="kubectl apply -f deploy/cotenant.yaml")
    with_keda = _documents(helm, "--set", "settings.keda.enabled=true")
    keda = "".join(part for part in with_keda if COMPONENT in part)
    return {"cotenant.yaml": head + OWN_NAMESPACE + install, "keda.yaml": KEDA_HEAD + keda}


def _documents(helm: Path, *options: str) -> list[str]:
    """Renders the chart; each document begins with its `---`."""
    command = [helm, "template", "cotenant", CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    done = subprocess.run([*map(str, command), *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    parts = re.split(r"^---\n", done.stdout, flags=re.MULTILINE)
    return [f"---\n{part}" for part in parts if part.strip()]


def about() -> str:
    """Returns Chart.yaml with the version of the code, the images that it installs, and its icon."""
    icon = base64.b64encode(ICON.read_bytes()).decode()
    lines = {
        r"^(version|appVersion): ": __version__,
        r"^(icon): ": f"data:image/svg+xml;base64,{icon}",
        r"^( *image): cotenant\.dev/cotenant:": f"cotenant.dev/cotenant:{__version__}",
        r"^( *image): registry\.k8s\.io/kube-scheduler:": f"registry.k8s.io/kube-scheduler:v{KUBERNETES}",
    }
    text = ABOUT.read_text()
    for begins, value in lines.items():
        text = re.sub(f"{begins}.*$", rf"\1: {value}", text, flags=re.MULTILINE)
    return text


def schema() -> str:
    """Returns the chart's schema, with the settings as they are declared now."""
    whole = json.loads(SCHEMA.read_text())
    whole["properties"]["settings"] = _section(Settings, ())
    return json.dumps(whole, indent=2) + "\n"


def _section(kind: type[Any], path: tuple[str, ...]) -> dict[str, Any]:
    told = explanations(kind)
    hints = get_type_hints(kind, include_extras=True)
    known = {
        each.name: {
            "description": " ".join(told[each.name].split()),
            **_value(hints[each.name], (*path, each.name)),
        }
        for each in fields(kind)
        if ".".join((*path, each.name)) not in OF_THE_CHART
    }
    return {"type": "object", "additionalProperties": False, "properties": known}


def _value(hint: Any, path: tuple[str, ...]) -> dict[str, Any]:
    if is_dataclass(hint) and isinstance(hint, type):
        return _section(hint, path)
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    if any(not isinstance(mark, Range) for mark in marks):
        return {"type": "string", **_form(marks)}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if hint == tuple[str, ...]:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": {bool: "boolean", int: "integer", str: "string"}[hint], **_bounds(marks)}


def _form(marks: tuple[Any, ...]) -> dict[str, Any]:
    """Describes a text: Helm refuses what is surely wrong; bounds are for the program to check."""
    for mark in marks:
        if isinstance(mark, Form):
            return {"pattern": mark.pattern}
    if any(isinstance(mark, Duration) for mark in marks):
        return {"examples": ["60s"], "pattern": DURATION}
    return {"examples": ["256Mi"], "pattern": SIZE}


def _bounds(marks: tuple[Any, ...]) -> dict[str, int]:
    return {key: value for mark in marks for key, value in (("minimum", mark.least), ("maximum", mark.most))}


def written(helm: Path) -> Iterator[tuple[Path, str]]:
    """Yields every generated file with its content: first those that Helm reads."""
    yield ABOUT, about()
    yield SCHEMA, schema()
    yield from dashboards.written()
    yield DEFINITION, yaml.safe_dump(definition(), sort_keys=False, allow_unicode=True, width=118)
    for name, text in rendered(helm).items():
        yield ROOT / "deploy" / name, text


def main() -> int:
    from cluster.testbed import binaries

    for path, text in written(binaries.helm()):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
