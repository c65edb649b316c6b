"""Faults that hide, things that only look like faults, and the words of strangers, which must not blind the doctor."""

from dataclasses import replace

import msgspec
import pytest
from kube.operating.clusters import GI, NOW, card_of, node, pod, uid_of
from kube.operating.well import (
    DATA,
    EXTENDER,
    KEPT,
    LEADS,
    SCHEDULER,
    WANTED,
    WELL,
    WHERE,
    found,
    image,
    kinds,
    own,
    with_pod,
)

from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.api.objects import Generic, Meta, OwnerReference
from cotenant.kube.certificates import renewal
from cotenant.kube.certificates.renewal import NOTHING, CertificateSet
from cotenant.kube.operating.doctor.facts import ImagePod
from cotenant.kube.operating.doctor.scheduler_maps import configurations
from cotenant.kube.operating.installed import Installed
from cotenant.kube.pods.demand import MIRROR
from cotenant.kube.settings import Settings
from cotenant.observe.state import AgentState


class TestGrants:
    def test_compute_beyond_the_whole_of_a_card(self):
        def half(name: str, percent: int):
            uid = uid_of(f"team/{name}")
            share = Share(card_of("n1", 1), GI, percent)
            grant = write_grant(PodGrant(uid, (SlotGrant("main", (share,)),)))
            return pod(name, GI, on="n1", cards=(1,), annotations={names.GRANT: grant})

        assert kinds(**with_pod(half("b", 50), half("c", 50))) == []
        (finding,) = found(**with_pod(half("b", 50), half("c", 60)))
        assert finding.kind == "over-granted"
        assert "110% of the compute" in finding.found

    def test_the_youngest_pod_is_named_as_one_that_could_go(self):
        (finding,) = found(**with_pod(pod("b", 75 * GI, on="n1", age=1)))
        assert finding.do.endswith("kubectl delete pod -n team b")

    def test_one_byte_too_much_is_too_much_and_a_full_card_is_not(self):
        assert kinds(**with_pod(pod("b", 72 * GI, on="n1"))) == []
        assert kinds(**with_pod(pod("b", 72 * GI + 1, on="n1"))) == ["over-granted"]

    def test_a_static_pod_that_brought_a_grant_along(self):
        grant = pod("a", 8 * GI, on="n1").metadata.annotations[names.GRANT]
        static = pod("s", GI, on="n1", annotations={names.GRANT: grant, MIRROR: "file"})
        (finding,) = found(**with_pod(static))
        assert finding.kind == "no-grant"
        assert "a static pod" in finding.found

    def test_a_demand_that_makes_no_sense_and_was_bound_all_the_same(self):
        assert kinds(**with_pod(pod("p", on="n1", asks={names.GPU_MEMORY: "much"}))) == ["no-grant"]
        assert kinds(**with_pod(pod("p", asks={"aliyun.com/gpu-mem": "-1"}))) == ["not-admitted"]
        assert kinds(**with_pod(pod("p", on="n1", asks={"cpu": "much"}))) == []


class TestSecondPlugin:
    @pytest.mark.parametrize(
        "image_",
        [
            "mirror.example/cache/k8s-device-plugin:v0.17",
            "gcr.example/nvidia-gpu-device-plugin@sha256:abc",
            "nvcr.io/nvidia/k8s-dra-driver-gpu:v25",
            "acs/gpushare-device-plugin",
            "projecthami/hami:v2.5",
            "mirror.example/hami:v2.5",
            "volcanosh/volcano-vgpu-device-plugin:v1",
        ],
    )
    def test_it_is_known_by_its_image_wherever_that_was_copied_to(self, image_):
        assert kinds(images=(image("plugin", image_),)) == ["second-plugin"]

    @pytest.mark.parametrize("image_", ["rocm/k8s-device-plugin", "hamilton:1", "team/hamish:2", "app"])
    def test_others_are_none(self, image_):
        assert kinds(images=(image("other", image_),)) == []

    def test_one_that_has_ended_serves_nothing(self):
        ended = pod("plugin", on="n1", namespace="kube-system", phase="Failed")
        assert kinds(images=(image("plugin", "nvidia/k8s-device-plugin"),), **with_pod(ended)) == []

    @pytest.mark.parametrize(
        "resource",
        ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "volcano.sh/vgpu-number"],
    )
    def test_it_is_known_by_what_the_node_shows(self, resource):
        shows = node("n1", [80 * GI] * 2, agent="1.0", capacity={resource: "2"})
        assert kinds(nodes=(shows,)) == ["second-plugin"]
        left = node("n1", [80 * GI] * 2, agent="1.0", capacity={resource: "0"})
        assert kinds(nodes=(left,)) == [], "the kubelet remembers a plugin that is gone"

    def test_what_our_own_agent_shows_in_other_spellings_is_ours(self):
        assert any("aliyun" in name for name in WELL.nodes[0].status.capacity)
        assert kinds() == []

    def test_what_makes_it_is_named(self):
        plugin = image("plugin-x7", "nvidia/k8s-device-plugin")
        owner = {"kind": "DaemonSet", "name": "plugin", "controller": True}
        meta = msgspec.structs.replace(plugin.metadata, owner_references=(OwnerReference(**owner),))
        (finding,) = found(images=(msgspec.structs.replace(plugin, metadata=meta),))
        assert finding.do.endswith("kubectl edit daemonset -n kube-system plugin")


def seeing(**spec) -> ImagePod:
    meta = {"name": "peeks", "namespace": "kube-system", "uid": uid_of("kube-system/peeks")}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": "n1", **spec}}, ImagePod)


ALL = {"env": [{"name": names.VISIBLE_DEVICES, "value": "all"}]}


class TestCardsWithoutAsking:
    @pytest.mark.parametrize(
        "spec",
        [
            {"containers": [ALL]},
            {"initContainers": [ALL]},
            {"ephemeralContainers": [ALL]},
            {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "value": "0"}]}]},
            {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "value": " all "}]}]},
            {"volumes": [{"hostPath": {"path": "/dev/nvidia0"}}]},
        ],
    )
    def test_any_container_of_a_pod_and_the_devices_themselves(self, spec):
        assert kinds(images=(seeing(**spec),)) == ["sees-cards"]

    @pytest.mark.parametrize(
        "spec",
        [
            {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "value": "void"}]}]},
            {"containers": [{"env": [{"name": names.VISIBLE_DEVICES}]}]},
            {"volumes": [{"hostPath": {"path": "/dev/shm"}}, {"emptyDir": {}}]},
            {"runtimeClassName": "nvidia"},
        ],
    )
    def test_pods_that_see_none(self, spec):
        assert kinds(images=(seeing(**spec),)) == []

    def test_a_runtime_class_that_shows_cards(self):
        settings = Settings(admission=AdmissionSettings(runtime_class="nvidia"))
        installed = Installed("cotenant-system", settings, WELL.installed.webhook, settings_known=True)
        assert kinds(images=(seeing(runtimeClassName="nvidia"),), installed=installed) == ["sees-cards"]
        assert kinds(images=(seeing(runtimeClassName="gvisor"),), installed=installed) == []

    def test_a_pod_that_was_granted_a_card_and_names_them_all(self):
        meta = {"name": "a", "namespace": "team", "uid": uid_of("team/a")}
        body = {"metadata": meta, "spec": {"nodeName": "n1", "containers": [ALL]}}
        (finding,) = found(images=(msgspec.convert(body, ImagePod),))
        assert "team/a was granted its cards and says NVIDIA_VISIBLE_DEVICES=all" in finding.found

    def test_what_is_said_cannot_move_the_terminals_cursor(self):
        wild = {"env": [{"name": names.VISIBLE_DEVICES, "value": "\x1b[2Jall"}]}
        (finding,) = found(images=(seeing(containers=[wild]),))
        assert "\x1b" not in finding.found


class TestVersions:
    def test_this_program_is_of_another_version_than_the_cluster(self):
        (finding,) = found(version="2.0")
        assert (finding.kind, finding.target) == ("versions-differ", "cotenant")
        assert "this program is of version 2.0, and the cluster runs 1.0" in finding.found

    def test_agents_differ_among_each_other_where_no_server_is_seen(self):
        nodes = tuple(
            node(f"n{at}", [80 * GI] * 2, agent=its) for at, its in enumerate(("1.0", "1.0", "0.9"))
        )
        agents = tuple(own(f"cotenant-agent-{at}", "agent", on=f"n{at}") for at in range(3))
        told = [each for each in found(nodes=nodes, own=agents) if each.kind == "versions-differ"]
        assert [each.found for each in told] == ["agents of version 0.9 on n2, and most others are 1.0"]

    def test_servers_of_two_versions_and_an_agent_of_neither(self):
        servers = tuple(own(f"cotenant-server-{its}", "server", version=its) for its in ("1.0", "1.1"))
        told = found(
            own=(*WELL.own[:1], *servers), nodes=(node("n1", [80 * GI] * 2, agent="0.9"),), lease=None
        )
        targets = [each.target for each in told if each.kind == "versions-differ"]
        assert targets == ["server", "agent 0.9"]

    def test_a_version_that_nobody_tells_is_none(self):
        assert kinds(version="", nodes=(node("n1", [80 * GI] * 2),)) == []


class TestSchedulers:
    @pytest.mark.parametrize(
        "change",
        [
            {"percentageOfNodesToScore": "100"},
            {"percentageOfNodesToScore": 99},
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "percentageOfNodesToScore": 0}]},
        ],
    )
    def test_a_sample_in_any_profile(self, change):
        assert kinds(schedulers={WHERE: {**SCHEDULER, **change}}) == ["scheduler-samples"]

    def test_a_profile_of_its_own_word_overrules_the_rest(self):
        whole = {"profiles": [{"percentageOfNodesToScore": 100}], "percentageOfNodesToScore": 5}
        assert kinds(schedulers={WHERE: {**SCHEDULER, **whole}}) == []

    @pytest.mark.parametrize(
        "change",
        [
            {"bindVerb": "bnid"},
            {"filterVerb": "filter2"},
            {"managedResources": [{"name": names.GPU_MEMORY}]},
            {"preemptVerb": None, "ignorable": True},
        ],
    )
    def test_an_extender_that_is_not_asked_as_it_should_be(self, change):
        wrong = {**SCHEDULER, "extenders": [{"urlPrefix": "https://elsewhere"}, {**EXTENDER, **change}]}
        assert kinds(schedulers={WHERE: wrong}) == ["scheduler-extender"]

    @pytest.mark.parametrize(
        "managed", [[], [{"name": names.GPU_SLOT}], [{"name": names.GPU_MEMORY}, {"name": names.GPU}]]
    )
    def test_every_way_to_be_asked_about_all_gpu_pods_is_good(self, managed):
        right = {**SCHEDULER, "extenders": [{**EXTENDER, "managedResources": managed}]}
        assert kinds(schedulers={WHERE: right}) == []

    @pytest.mark.parametrize(
        "nonsense",
        [
            {"extenders": None},
            {"extenders": "cotenant-extender"},
            {"extenders": [None, 7, "x", ["y"]]},
            {"extenders": [{"urlPrefix": 7, "tlsConfig": "x", "managedResources": {"name": "y"}}]},
            {"extenders": [EXTENDER], "profiles": 3},
            {"extenders": [EXTENDER], "profiles": [None, "x"]},
        ],
    )
    def test_what_strangers_write_there_blinds_nobody(self, nonsense):
        kinds(schedulers={WHERE: {**SCHEDULER, **nonsense}})

    @pytest.mark.parametrize(
        "text",
        [
            "kind: KubeSchedulerConfiguration # cotenant\na: [",
            "kind: KubeSchedulerConfiguration # cotenant\na: 2026-99-99",
            "kind: KubeSchedulerConfiguration # cotenant\na: " + "[" * 20000,
            "kind: KubeSchedulerConfiguration # cotenant\na: !!python/object:os.system x",
            "kind: KubeSchedulerConfiguration # cotenant\n" + "a: b\n" * 50000,
            "kind: KubeSchedulerConfiguration # cotenant\n? {a: b}\n: c",
        ],
    )
    def test_what_cannot_be_read_is_told(self, text):
        unread = []
        maps = [Generic(Meta(name="m", namespace="team"), data={"k": text})]
        assert list(configurations(maps, unread.append)) == []
        assert unread[0].startswith("configmap team/m: k: ")
        unread.clear()
        maps = [Generic(Meta(name="m", namespace="team"), data={"k": text.replace("cotenant", "other")})]
        assert list(configurations(maps, unread.append)) == []
        assert unread == [], "what does not name us is none of our business"

    def test_its_name_cannot_move_the_terminals_cursor(self):
        wild = {**SCHEDULER, "percentageOfNodesToScore": 1, "profiles": [{"schedulerName": "\x1b[2J"}]}
        (finding,) = found(schedulers={WHERE: wild})
        assert "\x1b" not in finding.found


class TestStates:
    def test_without_the_pods_no_charge_and_no_slot_is_called_left(self):
        slot = {"device": "slot-0000", "uid": "x", "namespace": "team", "pod": "a", "container": "main"}
        told = msgspec.convert({"slots": [slot]}, AgentState)
        blind = {"pods": (), "unread": ("pods: not allowed",), "states": {"n1": told}, "ledgers": LEADS}
        assert kinds(**blind) == ["not-looked-at"]


class TestLeaders:
    def test_a_lease_in_the_future_is_held(self):
        ahead = msgspec.structs.replace(
            WELL.lease, spec=msgspec.structs.replace(WELL.lease.spec, renew_time=NOW.replace(hour=13))
        )
        assert kinds(lease=ahead) == []

    def test_a_server_whose_name_begins_like_the_leaders_is_another(self):
        others = (*WELL.own, own("cotenant-server-10", "server", ip="10.1.0.10"))
        assert kinds(own=others) == []


class TestCertificates:
    def test_a_certificate_beside_the_key_of_another(self):
        other = renewal.to_data(renewal.renewed(CertificateSet(), WANTED, NOW))
        (finding,) = found(certificates={**DATA, "tls.key": other["tls.key"]})
        assert "the serving certificate" in finding.found
        assert "does not belong to the key beside it" in finding.found

    def test_a_certificate_of_another_authority(self):
        other = renewal.to_data(renewal.renewed(CertificateSet(), WANTED, NOW))
        strange = {**DATA, "scheduler.crt": other["scheduler.crt"], "scheduler.key": other["scheduler.key"]}
        (finding,) = found(certificates=strange)
        assert "is not signed by the authority beside it" in finding.found

    def test_a_certificate_for_other_names(self):
        wanted = replace(WANTED, names=("elsewhere",))
        named = renewal.renewed(replace(KEPT, serving=NOTHING), wanted, NOW)
        (finding,) = found(certificates=renewal.to_data(named))
        assert "is not for cotenant-extender.cotenant-system.svc, cotenant-webhook" in finding.found

    @pytest.mark.parametrize("damage", ["", "AAAA", "not base64!", "LS0tLS0="])
    def test_whatever_stands_in_the_secret(self, damage):
        wrong = dict.fromkeys(DATA, damage)
        assert {"certificate", "ca-bundle"} == set(kinds(certificates=wrong))
