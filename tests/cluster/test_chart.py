"""The chart says what the program says, refuses what makes no sense, and comes and goes without leaving anything."""

import base64
import importlib.util
import json
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from cluster import chart
from cluster.chart import NAMESPACE, helm, named, render
from cluster.testbed import places
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane
from kube.scaler.specs import spec

from cotenant.core.units import parse_bytes, parse_duration
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.agent.mps.layout import folders_of
from cotenant.kube.certificates.distribution import AGENT_SECRET, CA_CONFIG_MAP, CA_KEY
from cotenant.kube.certificates.keeper import KeeperTimes, certificate_policy
from cotenant.kube.certificates.renewal import BUNDLE_KEY
from cotenant.kube.extender.serving import CHOOSE, WITHOUT_GPU
from cotenant.kube.settings import Settings
from cotenant.settings.loading import read_settings

ROOT = chart.CHART.parents[1]
DIALECTS = [
    {},
    {"aliyun": False},
    {"volcano": False},
    {"nvidia": True},
    {"aliyun": False, "volcano": False, "nvidia": False},
]


def rendered(dialects: dict[str, bool]) -> list[Object]:
    return render(**{f"settings__dialects__{name}__enabled": on for name, on in dialects.items()})


def settings_of(documents: list[Object]) -> Settings:
    text = named(documents, "ConfigMap", "cotenant-settings")["data"]["settings.toml"]
    return read_settings(Settings, tomllib.loads(text), {})


@pytest.fixture(scope="module")
def deploying() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploying", ROOT / "scripts" / "deploy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestInStep:
    def test_what_is_made_from_the_chart_is_what_would_be_made_now(self, deploying: ModuleType):
        helm("version")
        for path, text in deploying.written(places.helm()):
            assert path.read_text() == text, f"{path.relative_to(ROOT)}: `make deploy` writes it anew"

    @pytest.mark.parametrize("dialects", DIALECTS, ids=str)
    def test_the_webhook_is_asked_about_the_pods_that_the_program_says(self, dialects: dict[str, bool]):
        documents = rendered(dialects)
        settings = settings_of(documents)
        found = named(documents, "MutatingWebhookConfiguration", "cotenant")
        assert found["webhooks"] == webhook_configuration(settings, settings.dialects)["webhooks"]

    @pytest.mark.parametrize("dialects", DIALECTS, ids=str)
    def test_the_scheduler_asks_about_every_resource_of_the_dialects(self, dialects: dict[str, bool]):
        documents = rendered(dialects)
        configuration = yaml.safe_load(
            named(documents, "ConfigMap", "cotenant-scheduler")["data"]["scheduler.yaml"]
        )
        asked = {each["name"] for each in configuration["extenders"][0]["managedResources"]}
        assert asked == settings_of(documents).dialects.resources

    @pytest.mark.parametrize("dialects", DIALECTS, ids=str)
    def test_policies_guard_every_annotation_of_the_dialects(self, dialects: dict[str, bool]):
        documents = rendered(dialects)
        on = settings_of(documents).dialects
        grants = json.dumps(named(documents, "ValidatingAdmissionPolicy", "cotenant-grants"))
        known = {name for each in Dialects().on for name in each.pod_annotations}
        assert {name for name in known if name in grants} == {
            n for each in on.on for n in each.pod_annotations
        }
        nodes = json.dumps(named(documents, "ValidatingAdmissionPolicy", "cotenant-nodes"))
        others = [each.resources for each in (on.aliyun, on.volcano, on.nvidia)]
        assert all(name in nodes for resources in others for name in resources)

    def test_settings_are_read_back_as_they_were_given(self):
        given = {"webhook": {"port": 9443}, "line": {"patience": "90s"}, "agent": {"context_memory": "1Gi"}}
        schedulers = ["one", "two"]
        documents = render(
            settings__webhook=given["webhook"],
            settings__line=given["line"],
            settings__agent__context_memory="1Gi",
            settings__admission__replaced_schedulers=schedulers,
            settings__log_level="debug",
        )
        expected = {**given, "log_level": "debug", "admission": {"replaced_schedulers": schedulers}}
        assert settings_of(documents) == read_settings(Settings, expected, {})
        server = named(documents, "Deployment", "cotenant-server")
        ports = server["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert {each["name"]: each["containerPort"] for each in ports} == {"webhook": 9443, "extender": 8444}

    def test_without_values_the_settings_are_the_programs_defaults(self):
        assert settings_of(render()) == Settings()

    def test_other_settings_are_a_new_start(self):
        def checksums(**values: Any) -> list[str]:
            documents = render(**values)
            parts = [("Deployment", "cotenant-server"), ("DaemonSet", "cotenant-agent")]
            return [
                named(documents, *part)["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
                for part in parts
            ]

        assert checksums() == checksums()
        assert all(a != b for a, b in zip(checksums(), checksums(settings__log_level="debug"), strict=True))


class TestDescription:
    @pytest.fixture
    def about(self) -> Object:
        about: Object = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
        return about

    def test_the_icon_is_the_picture_in_the_docs(self, about: Object):
        kind, _, content = about["icon"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(content) == (ROOT / "docs" / "icon.svg").read_bytes()

    def test_it_names_the_images_that_it_installs(self, about: Object):
        listed = yaml.safe_load(about["annotations"]["artifacthub.io/images"])
        text = (ROOT / "deploy" / "cotenant.yaml").read_text()
        pods = [
            each["spec"]["template"]["spec"]
            for each in yaml.safe_load_all(text)
            if each["kind"] in {"Deployment", "DaemonSet"}
        ]
        used = {container["image"] for pod in pods for container in pod["containers"]}
        assert {each["image"] for each in listed} == used

    def test_what_changed_is_of_kinds_that_are_known(self, about: Object):
        """As Keep a Changelog has them."""
        changes = yaml.safe_load(about["annotations"]["artifacthub.io/changes"])
        known = {"added", "changed", "deprecated", "removed", "fixed", "security"}
        assert {each["kind"] for each in changes} <= known
        assert all(each["description"] for each in changes)


class TestValues:
    def test_helm_finds_nothing_to_say(self):
        helm("lint", "--strict", str(chart.CHART))

    @pytest.mark.parametrize(
        ("values", "said"),
        [
            ({"sever__replicas": 3}, "sever"),
            ({"server__replicas": 0}, "server/replicas"),
            ({"server__replicas": "two"}, "server/replicas"),
            ({"settings__line": {"patienc": "9s"}}, "patienc"),
            ({"settings__agent__mode": "shout"}, "settings/agent/mode"),
            ({"settings__webhook": {"port": 70000}}, "settings/webhook/port"),
            ({"settings__namespace": "other"}, "namespace"),
            ({"settings__dialects__aliyun__unit": "KiB"}, "settings/dialects/aliyun/unit"),
            ({"settings__limits__evict_after": "soon"}, "settings/limits/evict_after"),
            ({"settings__limits__evict_after": "30"}, "settings/limits/evict_after"),
            ({"settings__limits__evict_over_limit": True}, "settings/limits/evict_over_limit"),
            ({"settings__agent__slots_size": "lots"}, "settings/agent/slots_size"),
            ({"settings__mps__pinned_memory": "1.5G"}, "settings/mps/pinned_memory"),
            ({"settings__mps__pinned_memory": "30%"}, "settings/mps/pinned_memory"),
            ({"image__digest": "latest"}, "image/digest"),
            ({"agent__maxUnavailable": "many"}, "agent/maxUnavailable"),
            ({"scheduler__extenderUrl": "http://plain"}, "scheduler/extenderUrl"),
            ({"prometheus__interval": "often"}, "prometheus/interval"),
            ({"prometheus__labels": {"release": 1}}, "prometheus/labels/release"),
            ({"prometheus__rules": {"enable": True}}, "prometheus/rules"),
            ({"prometheus__rules": {"runbooks": ""}}, "prometheus/rules/runbooks"),
            ({"prometheus__rules": {"runbooks": "our wiki: alerts"}}, "prometheus/rules/runbooks"),
            ({"prometheus__dashboards": {"namespace": "No Name"}}, "prometheus/dashboards/namespace"),
            (
                {"prometheus__dashboards": {"labels": {"grafana_dashboard": 1}}},
                "prometheus/dashboards/labels",
            ),
            ({"settings__agent__certificate": "/tmp"}, "certificate"),
        ],
        ids=str,
    )
    def test_a_value_that_makes_no_sense_is_named(self, values: dict[str, Any], said: str):
        with pytest.raises(AssertionError, match=said):
            render(**values)

    @pytest.mark.parametrize("duration", ["500ms", "1h30m", "1.5h", "10d"])
    @pytest.mark.parametrize("size", ["0", "1073741824", "1.5Gi", "2G", "1GiB", "1e9"])
    def test_durations_and_sizes_that_programs_read_are_in_the_schema(self, duration: str, size: str):
        found = settings_of(render(settings__limits__evict_after=duration, settings__agent__slots_size=size))
        assert found.limits.evict_after == parse_duration(duration, "")
        assert found.agent.slots_size == (0 if size == "0" else parse_bytes(size, ""))

    def test_every_value_is_in_the_schema_and_explained_or_plain(self):
        values = yaml.safe_load((chart.CHART / "values.yaml").read_text())
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        assert set(schema["properties"]) - {"global"} == set(values)

    @pytest.mark.parametrize(
        ("line", "may"), [({}, True), ({"evict": True}, True), ({"evict": False}, False)]
    )
    def test_the_server_may_evict_only_if_it_is_to(self, line: dict[str, bool], may: bool):
        documents = render(settings__line=line)
        rules = named(documents, "ClusterRole", "cotenant-server")["rules"]
        assert ("pods/eviction" in {each for rule in rules for each in rule["resources"]}) is may
        assert settings_of(documents).line.evict is may

    @pytest.mark.parametrize(("evicts", "may"), [("off", False), ("dry-run", False), ("on", True)])
    def test_pods_over_their_limit_are_evicted_by_a_server_that_evicts_nobody_else(
        self, evicts: str, may: bool
    ):
        documents = render(settings__line={"evict": False}, settings__limits__evict_over_limit=evicts)
        rules = named(documents, "ClusterRole", "cotenant-server")["rules"]
        assert ("pods/eviction" in {each for rule in rules for each in rule["resources"]}) is may
        assert settings_of(documents).limits.evict_over_limit == evicts

    @pytest.mark.parametrize(
        ("enforcer", "cgroups", "added"),
        [("auto", True, []), ("driver", True, ["SYS_ADMIN"]), ("shim", False, []), ("watch", False, [])],
    )
    def test_the_agent_has_what_its_enforcer_needs_and_no_more(
        self, enforcer: str, cgroups: bool, added: list[str]
    ):
        documents = render(settings__agent__enforcer=enforcer)
        assert settings_of(documents).agent.enforcer == enforcer
        spec = named(documents, "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]
        (agent,) = spec["containers"]
        mounted = [each for each in agent["volumeMounts"] if each["mountPath"] == "/sys/fs/cgroup"]
        hosts = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
        assert bool(mounted) is cgroups
        assert all(hosts[each["name"]] == "/sys/fs/cgroup" for each in mounted)
        assert ("/sys/fs/cgroup" in hosts.values()) is cgroups
        rights = agent["securityContext"]["capabilities"]
        assert rights["drop"] == ["ALL"]
        assert rights.get("add", []) == added
        assert "privileged" not in agent["securityContext"]

    def test_pods_without_gpu_are_ranked_only_where_that_is_asked_for(self):
        def extenders(**values: Any) -> list[Object]:
            documents = render(**values)
            text = named(documents, "ConfigMap", "cotenant-scheduler")["data"]["scheduler.yaml"]
            found: list[Object] = yaml.safe_load(text)["extenders"]
            return found

        (usual,) = extenders()
        assert usual["filterVerb"] == CHOOSE, "nobody else filters, and the weight decides the rest"
        first, second = extenders(settings__extender__pods_without_gpu=True)
        assert first == usual
        assert {key: value for key, value in second.items() if key.endswith("Verb")} == {
            "prioritizeVerb": WITHOUT_GPU
        }
        assert second["ignorable"], "such pods are placed also while no server answers"
        assert "managedResources" not in second
        assert (second["urlPrefix"], second["tlsConfig"]) == (usual["urlPrefix"], usual["tlsConfig"])
        assert settings_of(render(settings__extender__pods_without_gpu=True)).extender.pods_without_gpu

    def test_a_scheduler_of_ones_own_takes_the_place_of_ours(self):
        documents = render(scheduler__enabled=False, settings__admission__scheduler="default-scheduler")
        assert not [each for each in documents if each["metadata"]["labels"][chart.COMPONENT] == "scheduler"]

    def test_monitors_verify_every_pod_by_the_authority_that_the_server_publishes(self):
        documents = render(
            prometheus__enabled=True, prometheus__interval="15s", prometheus__labels={"release": "mine"}
        )
        for component, kind, port, service in (
            ("server", "Deployment", "webhook", "cotenant-webhook"),
            ("agent", "DaemonSet", "metrics", "cotenant-agent"),
        ):
            monitor = named(documents, "PodMonitor", f"cotenant-{component}")
            assert monitor["metadata"]["labels"]["release"] == "mine"
            assert monitor["metadata"]["namespace"] == NAMESPACE, "where the ConfigMap is"
            template = named(documents, kind, f"cotenant-{component}")["spec"]["template"]
            chosen = monitor["spec"]["selector"]["matchLabels"]
            assert chosen.items() <= template["metadata"]["labels"].items()
            assert port in {each["name"] for each in template["spec"]["containers"][0]["ports"]}
            (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
            assert (endpoint["port"], endpoint["scheme"], endpoint["interval"]) == (port, "https", "15s")
            assert endpoint["honorLabels"] is True
            assert endpoint["tlsConfig"] == {
                "serverName": f"{service}.{NAMESPACE}.svc",
                "ca": {"configMap": {"name": CA_CONFIG_MAP, "key": CA_KEY}},
            }
            policy = certificate_policy(settings_of(documents), KeeperTimes())
            assert endpoint["tlsConfig"]["serverName"] in {*policy.names, *policy.agent_names}

    def test_rules_are_the_file_with_the_runbooks_that_were_given(self):
        assert not [each for each in render(prometheus__enabled=True) if each["kind"] == "PrometheusRule"]
        documents = render(
            prometheus__labels={"release": "mine"},
            prometheus__rules={
                "enabled": True,
                "namespace": "monitoring",
                "labels": {"role": "alerts"},
                "runbooks": "https://example.com/runbook",
            },
        )
        made = named(documents, "PrometheusRule", "cotenant")
        assert made["metadata"]["namespace"] == "monitoring"
        assert {"release": "mine", "role": "alerts"}.items() <= made["metadata"]["labels"].items()
        given = yaml.safe_load((chart.CHART / "monitoring" / "rules.yaml").read_text())
        for group, expected in zip(made["spec"]["groups"], given["groups"], strict=True):
            for rule, source in zip(group["rules"], expected["rules"], strict=True):
                anchor = f"#{rule['alert'].lower()}"
                assert rule["annotations"].pop("runbook_url") == f"https://example.com/runbook{anchor}"
                assert source["annotations"].pop("runbook_url") == f"docs/alerts.md{anchor}"
                assert rule == source, "braces in it are Prometheus' own"

    def test_dashboards_are_config_maps_that_the_sidecar_loads(self):
        label = "grafana_dashboard"
        assert not [each for each in render() if label in each["metadata"]["labels"]]
        documents = render(
            prometheus__dashboards={
                "enabled": True,
                "namespace": "g",
                "annotations": {"grafana_folder": "GPUs"},
            }
        )
        made = [each for each in documents if label in each["metadata"]["labels"]]
        files = {path.name: path for path in (chart.CHART / "monitoring" / "dashboards").glob("*.json")}
        assert len(made) == len(files) == 3
        for each in made:
            meta, ((name, text),) = each["metadata"], each["data"].items()
            assert (each["kind"], meta["namespace"], meta["labels"][label]) == ("ConfigMap", "g", "1")
            assert meta["annotations"] == {"grafana_folder": "GPUs"}
            assert json.loads(text) == json.loads(files[name].read_text())

    def test_without_the_operator_there_are_no_monitors(self):
        assert not [each for each in render() if each["apiVersion"].startswith("monitoring.coreos.com")]
        scraped = render(prometheus__enabled=True, prometheus__interval="")
        endpoint = named(scraped, "PodMonitor", "cotenant-agent")["spec"]["podMetricsEndpoints"][0]
        assert "interval" not in endpoint

    def test_agents_mount_their_certificate_where_they_look_for_it_and_no_other_secret(self):
        documents = render()
        spec = named(documents, "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]
        (volume,) = [each for each in spec["volumes"] if "secret" in each]
        assert volume["secret"] == {"secretName": AGENT_SECRET, "optional": True, "defaultMode": 0o400}
        (mount,) = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]
        assert (mount["mountPath"], mount["readOnly"]) == (settings_of(documents).agent.certificate, True)

    def test_kube_scheduler_mounts_every_file_that_it_is_given_and_trusts_the_next_authority_too(self):
        """`ca.crt` has the present authority alone: a scheduler that started with it would refuse the next one."""
        documents = render()
        text = named(documents, "ConfigMap", "cotenant-scheduler")["data"]["scheduler.yaml"]
        (extender,) = yaml.safe_load(text)["extenders"]
        files = {Path(extender["tlsConfig"][key]).name for key in ("caFile", "certFile", "keyFile")}
        assert files == {BUNDLE_KEY, "scheduler.crt", "scheduler.key"}
        spec = named(documents, "Deployment", "cotenant-scheduler")["spec"]["template"]["spec"]
        (secret,) = [each["secret"] for each in spec["volumes"] if "secret" in each]
        assert {(each["key"], each["path"]) for each in secret["items"]} == {(name, name) for name in files}
        guide = (ROOT / "docs" / "install.md").read_text()
        assert all(f"/etc/cotenant-certificates/{name}" in guide for name in files)

    def test_slots_get_a_tmpfs_of_their_own_before_the_agent_starts(self):
        documents = render(settings__agent__slots="/var/gpu/slots")
        spec = named(documents, "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]
        (first,) = spec["initContainers"]
        assert first["command"] == ["cotenant", "agent", "--mount-slots", "/host/slots"]
        (mount,) = [each for each in first["volumeMounts"] if each.get("mountPropagation")]
        assert (mount["mountPath"], mount["mountPropagation"]) == ("/host", "Bidirectional")
        (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
        assert volume["hostPath"]["path"] == "/var/gpu"
        none = named(render(settings__agent__slots_size="0"), "DaemonSet", "cotenant-agent")["spec"][
            "template"
        ]
        assert "initContainers" not in none["spec"]
        assert not any(each["name"] == mount["name"] for each in none["spec"]["volumes"])

    def test_mps_has_a_container_of_its_own_which_shares_its_memory_with_gpu_containers(self):
        off = named(render(), "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]
        assert [each["name"] for each in off["containers"]] == ["agent"]
        documents = render(settings__mps__daemons="card", settings__agent__slots_size="0")
        spec = named(documents, "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]
        agent, mps = spec["containers"]
        assert mps["command"] == ["cotenant", "agent", "--supervise-mps"]
        assert mps["securityContext"]["capabilities"] == {
            "drop": ["ALL"],
            "add": ["SETUID", "SETGID", "KILL"],
        }
        assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"name": "COTENANT__MPS__SUPERVISE", "value": "false"} in agent["env"]
        settings = settings_of(documents)
        shared = folders_of(settings.mps, settings.agent.slots).shared_memory
        (mount,) = [each for each in mps["volumeMounts"] if each["mountPath"] == "/dev/shm"]
        (volume,) = [each for each in spec["volumes"] if each["name"] == mount["name"]]
        assert volume["hostPath"]["path"] == str(shared)
        assert spec["initContainers"], "its tmpfs is mounted also where slots have none"

    def test_the_agent_has_the_selinux_options_that_were_given(self):
        agent = named(render(agent__seLinuxOptions__type="spc_t"), "DaemonSet", "cotenant-agent")
        context = agent["spec"]["template"]["spec"]["securityContext"]
        assert context["seLinuxOptions"] == {"type": "spc_t"}

    def test_the_image_by_its_digest(self):
        digest = "sha256:" + "0" * 64
        server = named(render(image__digest=digest), "Deployment", "cotenant-server")
        assert server["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f"@{digest}")

    def test_the_agent_has_the_runtime_class_of_gpu_pods(self):
        agent = named(render(settings__admission__runtime_class="nvidia"), "DaemonSet", "cotenant-agent")
        assert agent["spec"]["template"]["spec"]["runtimeClassName"] == "nvidia"


class TestOnTheApiServer:
    @pytest.fixture(autouse=True)
    def _namespace(self, api: Api) -> None:
        chart.make_namespace(api)

    @pytest.fixture
    def kubeconfig(self, control_plane: ControlPlane) -> Path:
        return control_plane.kubeconfig()

    @pytest.fixture
    def _taken_away(self, control_plane: ControlPlane, api: Api) -> Iterator[None]:
        """Before, what other tests have defined; after, also after a failure: they must not meet our policies."""
        control_plane.kubectl("delete", "crd", SCALERS, "--ignore-not-found", "--timeout=60s")
        api.until_gone("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.cotenant.dev")
        yield
        manifest = str(ROOT / "deploy" / "cotenant.yaml")
        control_plane.kubectl("delete", "--ignore-not-found", "-f", manifest, "--timeout=60s")

    def test_server_and_scheduler_keep_within_restricted_pod_security(self, api: Api, namespace: str):
        label = {"pod-security.kubernetes.io/enforce": "restricted"}
        api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": label}})
        documents = render()
        for name in ("cotenant-server", "cotenant-scheduler"):
            spec = named(documents, "Deployment", name)["spec"]["template"]["spec"]
            pod = {"metadata": {"name": name}, "spec": {**spec, "serviceAccountName": "default"}}
            api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        agent = named(documents, "DaemonSet", "cotenant-agent")["spec"]["template"]["spec"]
        body = {"metadata": {"name": "agent"}, "spec": {**agent, "serviceAccountName": "default"}}
        with pytest.raises(Refused, match="violates PodSecurity"):
            api.create(f"/api/v1/namespaces/{namespace}/pods", body)

    def test_the_real_scheduler_reads_its_configuration(self, kubeconfig: Path, tmp_path: Path):
        text = named(render(), "ConfigMap", "cotenant-scheduler")["data"]["scheduler.yaml"]
        configuration = yaml.safe_load(text)
        configuration["clientConnection"] = {"kubeconfig": str(kubeconfig)}
        tls = configuration["extenders"][0]["tlsConfig"]
        for key, file in (("caFile", "ca.crt"), ("certFile", "admin.crt"), ("keyFile", "admin.key")):
            tls[key] = str(kubeconfig.parent / "certificates" / file)
        (tmp_path / "scheduler.yaml").write_text(yaml.safe_dump(configuration))
        written = tmp_path / "written.yaml"
        done = subprocess.run(
            [
                places.binary("kube-scheduler"),
                f"--config={tmp_path / 'scheduler.yaml'}",
                f"--write-config-to={written}",
                "--secure-port=10299",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert written.exists(), done.stderr[-2000:]
        read = yaml.safe_load(written.read_text())
        assert read["percentageOfNodesToScore"] == 100
        assert read["profiles"][0]["schedulerName"] == "cotenant"
        assert read["extenders"][0]["weight"] == 1000

    @pytest.mark.usefixtures("_taken_away")
    def test_kubectl_applies_it_twice_and_takes_it_away(self, control_plane: ControlPlane, api: Api):
        before = everything(api)
        manifest = str(ROOT / "deploy" / "cotenant.yaml")
        control_plane.kubectl("apply", "-f", manifest)
        assert "unchanged" in control_plane.kubectl("apply", "-f", manifest)
        control_plane.kubectl("delete", "-f", manifest, "--timeout=60s")
        chart.make_namespace(api)
        until_only(api, before)

    def test_one_part_is_applied_by_its_label(self, control_plane: ControlPlane):
        manifest = str(ROOT / "deploy" / "cotenant.yaml")
        label = f"{chart.COMPONENT}=policy"
        said = control_plane.kubectl("apply", "--dry-run=server", "-l", label, "-f", manifest)
        assert said
        assert all("validatingadmissionpolicy" in line for line in said.splitlines())

    def test_where_there_is_no_operator_helm_says_what_is_missing(self, kubeconfig: Path):
        access = (f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}")
        with pytest.raises(AssertionError, match='no matches for kind "PodMonitor"'):
            helm("install", "cotenant", str(chart.CHART), "--set=prometheus.enabled=true", *access)

    @pytest.mark.usefixtures("_taken_away")
    def test_helm_installs_upgrades_and_uninstalls_it(self, api: Api, kubeconfig: Path):
        before = everything(api)
        access = (f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}")
        helm("install", "cotenant", str(chart.CHART), *access)
        webhook = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/cotenant"
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cotenant-server"
        bundle = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}
        api.patch(webhook, [bundle], kind="json")
        api.patch(lease, {"spec": {"holderIdentity": "a-server", "leaseDurationSeconds": 10}})
        helm("upgrade", "cotenant", str(chart.CHART), "--set=server.replicas=3", *access)
        assert (
            api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/cotenant-server")["spec"]["replicas"]
            == 3
        )
        assert api.get(webhook)["webhooks"][0]["clientConfig"]["caBundle"] == "eA=="
        assert api.get(lease)["spec"]["holderIdentity"] == "a-server"
        uninstall = ("uninstall", "cotenant", "--no-hooks", "--wait", "--timeout=60s", *access)
        helm(*uninstall)  # without hooks, since no node runs a Job here
        kept = {
            f"/apis/apiextensions.k8s.io/v1//customresourcedefinitions/{SCALERS}",
            "/apis/apiregistration.k8s.io/v1//apiservices/v1alpha1.cotenant.dev",
        }
        until_only(api, before | kept)
        api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{SCALERS}")
        until_only(api, before)

    @pytest.mark.usefixtures("_taken_away")
    def test_gpuscalers_outlive_an_installation_and_belong_to_the_next(
        self, api: Api, kubeconfig: Path, namespace: str
    ):
        access = (f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}")
        helm("install", "cotenant", str(chart.CHART), *access)
        path = f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"
        api.until(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{SCALERS}", is_established)
        api.create(path, {**KIND, "metadata": {"name": "room-scene"}, "spec": spec()})
        helm("uninstall", "cotenant", "--no-hooks", "--wait", "--timeout=60s", *access)
        assert [each["metadata"]["name"] for each in api.items(path)] == ["room-scene"]
        helm("install", "cotenant", str(chart.CHART), *access)
        assert [each["metadata"]["name"] for each in api.items(path)] == ["room-scene"]
        helm("uninstall", "cotenant", "--no-hooks", "--wait", "--timeout=60s", *access)


SCALERS = "gpuscalers.cotenant.dev"
KIND = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "GpuScaler"}


def is_established(definition: Object) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def until_only(api: Api, expected: set[str]) -> None:
    """The API server forgets a definition's group a moment after the definition."""
    end = time.monotonic() + 30
    while (found := everything(api)) != expected and time.monotonic() < end:
        time.sleep(0.2)
    assert found == expected


def everything(api: Api) -> set[str]:
    """All there is that an installation could have brought, by where it lies; not what other tests leave to vanish,
    nor what Kubernetes' own controllers create when they have just started.
    """
    found = set()
    of_every_namespace = {"kube-root-ca.crt", "default"}
    groups = [group["preferredVersion"]["groupVersion"] for group in api.get("/apis")["groups"]]
    for root in ("/api/v1", *(f"/apis/{group}" for group in groups)):
        for kind in served(api, root):
            if (
                "/" in kind["name"]
                or "list" not in kind["verbs"]
                or kind["name"] in {"events", "componentstatuses", "clustertrustbundles"}
            ):
                continue
            for each in listed(api, f"{root}/{kind['name']}"):
                meta = each["metadata"]
                where = f"{root}/{meta.get('namespace', '')}/{kind['name']}/{meta['name']}"
                passing = "/test-" in where or where.startswith("/api/v1/kube-system/serviceaccounts/")
                if meta["name"] not in of_every_namespace and not passing:
                    found.add(where)
    return found


def served(api: Api, root: str) -> list[Object]:
    """The kinds of a group; none of one that is going."""
    try:
        kinds: list[Object] = api.get(root)["resources"]
    except Refused as refused:
        if refused.code not in {404, 503}:
            raise
        return []
    return kinds


def listed(api: Api, path: str) -> list[Object]:
    try:
        return api.items(path)
    except Refused as refused:
        if refused.code not in {404, 429, 503}:  # 429: its storage is not ready yet
            raise
        return []
