"""Every command of the pages install, first pod and moving, typed as it stands in the text, on a real cluster.

What a testbed has not is put beside them: cards and the extender's address (added by the `helm` in PATH), a registry and a
package index (`podman`, `docker`, `pipx`, `uv` and `pip` only check what they are told). A drain is only tried: the testbed's single
node runs the servers too.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
import yaml
from cluster import chart, installed
from cluster.cotenant.images import player
from cluster.cotenant.manifests import running
from cluster.testbed import places
from cluster.testbed.cluster import Cluster

PAGES = ("install", "first-pod", "moving")
CARDS = "2xA100-80GB"
BUILDER = '#!/bin/sh\ncase "$1" in build) test -e Containerfile;; push) true;; *) exit 64;; esac\n'
INSTALLER = """#!/bin/sh
for last; do :; done
case "$last" in
  '.[cluster]') grep -q '^cluster = \\[' pyproject.toml;;
  .) test -e pyproject.toml;;
  *) exit 64;;
esac
"""


class Reader:
    """Somebody who follows the pages, in a copy of the source tree, and remembers what was typed."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.tree = folder / "tree"
        self.typed: set[pages.Command] = set()
        self._environ = {
            **os.environ,
            "PATH": f"{self._tools(folder / 'bin')}:{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.control_plane.kubeconfig("admin", ("system:masters",))),
        }
        self._copy_tree()

    def follow(self, page: str, section: str, only: tuple[str, ...] = ("",)) -> str:
        """Types the commands of a section that begin so, in their order; what they said."""
        said = []
        for each in pages.commands(page):
            if each.section == section and each.text.startswith(only):
                self.typed.add(each)
                said.append(self.type(each.text))
        assert said, f"{page}.md has no commands in {section!r}"
        return "\n".join(said)

    def type(self, text: str) -> str:
        filled = text.replace("REGISTRY", "cotenant.dev").replace("VERSION", places.version())
        filled = filled.replace("NODE", self.cluster.node.name) if "custom-columns" not in filled else filled
        done = subprocess.run(
            ["bash", "-c", filled],
            env=self._environ,
            cwd=self.tree,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{filled}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _copy_tree(self) -> None:
        for name in ("charts", "deploy", "Containerfile", "pyproject.toml"):
            source, target = pages.ROOT / name, self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        own = self.tree / "deploy" / "cotenant.yaml"
        own.write_text(installed.deploy_text(CARDS))
        first, scene, quota = pages.manifests("first-pod")
        for name, text in (("first", first), ("room-scene", scene), ("quota", quota)):
            (self.tree / f"{name}.yaml").write_text(text)
        values = yaml.safe_load(pages.read("moving").split("```yaml")[1].split("```")[0])
        (self.tree / "values.yaml").write_text(yaml.safe_dump(values))

    def _tools(self, folder: Path) -> Path:
        folder.mkdir()
        added = f"--set=settings.agent.simulate={CARDS} --set=scheduler.extenderUrl={installed.EXTENDER}"
        scripts = {
            "helm": f'#!/bin/sh\ncase "$1" in install|upgrade) set -- "$@" {added};; esac\nexec {places.helm()} "$@"\n',
            "kubectl": f'#!/bin/sh\ncase "$1" in drain) set -- "$@" --dry-run=server;; esac\n'
            f'exec {places.binary("kubectl")} "$@"\n',
            **dict.fromkeys(("podman", "docker"), BUILDER),
            **dict.fromkeys(("pipx", "uv", "pip"), INSTALLER),
            **dict.fromkeys(
                ("cotenant", "kubectl-cotenant"),
                f"#!{sys.executable}\nfrom cotenant.cli.main import main\n\nmain()\n",
            ),
        }
        for name, text in scripts.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return folder


@pytest.fixture(scope="module")
def reader(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    installed.prepare(cluster)
    player(cluster, "docker.io/nvidia/cuda:13.0.1-base-ubuntu24.04")
    for each in ("model", "resize"):
        player(cluster, f"registry.example/{each}:1")
    shows_cards = {"metadata": {"name": "nvidia"}, "handler": "runc"}
    cluster.api.create("/apis/node.k8s.io/v1/runtimeclasses", shows_cards)
    cluster.api.delete(f"/api/v1/namespaces/{chart.NAMESPACE}")
    cluster.api.until_gone(f"/api/v1/namespaces/{chart.NAMESPACE}")
    with installed.service_proxy(cluster):
        yield Reader(cluster, tmp_path_factory.mktemp("reader"))
    cluster.api.delete("/apis/node.k8s.io/v1/runtimeclasses/nvidia")
    chart.make_namespace(cluster.api)
    installed.clear(cluster)


@pytest.mark.timeout(900)
def test_every_command_of_install_first_pod_and_moving_works_as_it_stands(reader: Reader, cluster: Cluster):
    api = cluster.api
    reader.follow("install", "Before")
    reader.follow("install", "With Helm")
    installed.until_ready(api)
    assert cluster.node.name in reader.follow("install", "The command")
    assert "cotenant-agent" in reader.follow("install", "Look")

    reader.follow("first-pod", "")
    assert "pod default/first: running" in reader.follow("first-pod", "Ask")
    reader.follow("first-pod", "Several containers")
    path = "/apis/apps/v1/namespaces/team/deployments/room-scene"
    api.until(path, lambda seen: seen.get("status", {}).get("readyReplicas") == 2, 180)
    assert "84Gi" in reader.follow("first-pod", "A quota")

    api.delete("/api/v1/namespaces/default/pods/first")
    api.until_gone("/api/v1/namespaces/default/pods/first", 90)
    cluster.kubectl("create", "deployment", "web", "-n", "team", "--image=registry.example/model:1")
    for section in dict.fromkeys(each.section for each in pages.commands("moving")):
        reader.follow("moving", section)
        installed.until_ready(api)
    running(api, "team", _one_pod(cluster, "web"), 180)

    reader.follow("install", "Upgrade")
    installed.until_ready(api)
    reader.follow("install", "Reboot")
    reader.follow("install", "Uninstall", only=("helm", "kubectl delete namespace", "kubectl delete crd"))
    api.until_gone(f"/api/v1/namespaces/{chart.NAMESPACE}", 180)

    reader.follow("install", "Without Helm")
    installed.until_ready(api)
    reader.follow("install", "Uninstall", only=("kubectl delete -f", "cotenant uninstall"))
    api.delete("/api/v1/namespaces/team")
    assert {each for page in PAGES for each in pages.commands(page)} - reader.typed == set()


def _one_pod(cluster: Cluster, app: str) -> str:
    said = cluster.kubectl("get", "pods", "-n", "team", "-l", f"app={app}", "-o", "json")
    name: str = json.loads(said)["items"][-1]["metadata"]["name"]
    return name
