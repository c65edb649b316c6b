"""What pages tell people to type is written so that it can be typed; tests/cluster/test_pages.py types it."""

import tomllib

import pages
import pytest
import yaml

from cotenant.core.units import parse_bytes

PYPROJECT = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())
MEMORY = "cotenant.dev/gpu-memory"


def test_commands_are_found_in_blocks_and_in_sentences():
    found = [each.text for each in pages.commands("install")]
    assert "kubectl get runtimeclass" in found
    assert "kubectl -n cotenant-system get pods" in found
    (install,) = [each for each in found if each.startswith("helm install")]
    assert install.endswith("--set settings.admission.runtime_class=nvidia")
    assert len(found) > 15


@pytest.mark.parametrize("page", ["install", "first-pod", "moving", "operating", "one-machine"])
def test_there_is_one_spelling_of_the_extra(page):
    for each in pages.commands(page):
        if "install" in each.text and "cluster" in each.text.split("install")[1] and "helm" not in each.text:
            assert each.text.endswith("'.[cluster]'")
    assert "cluster" in PYPROJECT["project"]["optional-dependencies"]


@pytest.mark.parametrize("page", ["install", "first-pod"])
def test_how_to_get_the_command_is_said_where_it_is_used(page):
    text = pages.read(page)
    assert "install.md#the-command" in text or "pipx install '.[cluster]'" in text


def test_the_deployment_of_the_first_pod_fits_its_quota():
    documents = [yaml.safe_load(text) for text in pages.manifests("first-pod")]
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (quota,) = [each for each in documents if each["kind"] == "ResourceQuota"]
    containers = deployment["spec"]["template"]["spec"]["containers"]
    asked = sum(parse_bytes(each["resources"]["limits"][MEMORY], MEMORY) for each in containers)
    allowed = parse_bytes(quota["spec"]["hard"][f"requests.{MEMORY}"], MEMORY)
    replicas = deployment["spec"]["replicas"]
    assert replicas * asked <= allowed < (replicas + 1) * asked, "as the text says"
    assert f"takes {replicas * asked >> 30} GiB of it" in pages.read("first-pod")


def test_what_people_meet_is_said():
    install = pages.read("install")
    assert "bare pod is lost" in install
    assert "settings.agent.recovery" in install
    (row,) = [line for line in install.splitlines() if line.startswith("| no agent at all")]
    assert "RuntimeClass" in row
