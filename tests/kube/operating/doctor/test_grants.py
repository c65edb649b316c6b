"""Grants that are beyond a GPU, not valid, missing, or of a GPU that is gone."""

from kube.operating.clusters import GI, card_of, pod, uid_of
from kube.operating.well import found, kinds, with_pod

from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.kube.pods.demand import MIRROR


def test_a_gpu_granted_beyond_its_size():
    (finding,) = found(**with_pod(pod("b", 75 * GI, on="n1")))
    assert finding.kind == "over-granted"
    assert finding.target == card_of("n1", 0)
    assert "GPU 0 of n1 has 80Gi, but 83Gi are granted: team/a 8Gi, team/b 75Gi" in finding.found
    assert finding.repair is None, "which pod has to go is for people to say"


def test_a_whole_gpu_that_is_shared():
    whole = pod("w", 80 * GI, on="n1", cards=(1,), whole=True)
    assert kinds(**with_pod(whole, pod("x", GI, on="n1", cards=(1,)))) == ["over-granted"]


def test_grants_that_are_forged_or_of_another_pod():
    copied = pod("a", 8 * GI, on="n1").metadata.annotations[names.GRANT]
    (finding,) = found(**with_pod(pod("thief", GI, on="n1", annotations={names.GRANT: copied})))
    assert finding.kind == "grant-unreadable"
    assert "it is of the pod with UID" in finding.found
    assert kinds(**with_pod(pod("early", GI, annotations={names.GRANT: copied}))) == ["grant-forged"]
    ended = pod("done", 80 * GI, on="n1", phase="Succeeded", annotations={names.GRANT: copied})
    assert kinds(**with_pod(ended)) == [], "one that has ended holds nothing"


def test_gpu_pods_past_the_scheduler_and_past_the_webhook():
    asks = {names.GPU_MEMORY: "4Gi", names.GPU_SLOT: "1"}
    assert kinds(**with_pod(pod("p", on="n1", asks=asks))) == ["no-grant"]
    assert kinds(**with_pod(pod("p", asks={names.GPU_MEMORY: "4Gi"}))) == ["not-admitted"]


def test_a_grant_of_a_gpu_that_is_gone():
    assert kinds(**with_pod(pod("p", GI, on="n1", cards=(5,)))) == ["card-gone"]


def test_compute_beyond_the_whole_of_a_gpu():
    def half(name: str, percent: int):
        uid = uid_of(f"team/{name}")
        share = Share(card_of("n1", 1), GI, percent)
        grant = write_grant(PodGrant(uid, (SlotGrant("main", (share,)),)))
        return pod(name, GI, on="n1", cards=(1,), annotations={names.GRANT: grant})

    assert kinds(**with_pod(half("b", 50), half("c", 50))) == []
    (finding,) = found(**with_pod(half("b", 50), half("c", 60)))
    assert finding.kind == "over-granted"
    assert "110% of the compute" in finding.found


def test_the_youngest_pod_is_named_as_one_that_could_go():
    (finding,) = found(**with_pod(pod("b", 75 * GI, on="n1", age=1)))
    assert finding.do.endswith("kubectl delete pod -n team b")


def test_one_byte_too_much_is_too_much_and_a_full_gpu_is_not():
    assert kinds(**with_pod(pod("b", 72 * GI, on="n1"))) == []
    assert kinds(**with_pod(pod("b", 72 * GI + 1, on="n1"))) == ["over-granted"]


def test_a_static_pod_that_brought_a_grant_along():
    grant = pod("a", 8 * GI, on="n1").metadata.annotations[names.GRANT]
    static = pod("s", GI, on="n1", annotations={names.GRANT: grant, MIRROR: "file"})
    (finding,) = found(**with_pod(static))
    assert finding.kind == "no-grant"
    assert "a static pod" in finding.found


def test_a_demand_that_makes_no_sense_and_was_bound_all_the_same():
    assert kinds(**with_pod(pod("p", on="n1", asks={names.GPU_MEMORY: "much"}))) == ["no-grant"]
    assert kinds(**with_pod(pod("p", asks={"aliyun.com/gpu-mem": "-1"}))) == ["not-admitted"]
    assert kinds(**with_pod(pod("p", on="n1", asks={"cpu": "much"}))) == []


def test_all_gpus_of_a_pod_that_are_gone_are_one_finding():
    (finding,) = found(**with_pod(pod("p", 2 * GI, on="n1", cards=(5, 6))))
    assert finding.kind == "card-gone"
    assert all(card_of("n1", gone) in finding.found for gone in (5, 6))
