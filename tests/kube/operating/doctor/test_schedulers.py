"""Schedulers that do not call the extender as they should; ours is corrected, and no other."""

import pytest
import yaml
from kube.operating.clusters import NOW
from kube.operating.doctor.wellapi import OURS, SPACE, examine, found_on, mended, scheduler_map
from kube.operating.well import EXTENDER, SCHEDULER, WHERE, found, kinds

from cotenant.dialects import names
from cotenant.kube.api.objects import Generic, Meta
from cotenant.kube.api.resources import CONFIG_MAPS
from cotenant.kube.extender.serving import CHOOSE, WITHOUT_GPU
from cotenant.kube.operating.doctor.rollout import DEPLOYMENTS
from cotenant.kube.operating.doctor.scheduler_configmaps import configurations


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"percentageOfNodesToScore": None}, "scheduler-samples"),
        ({"percentageOfNodesToScore": 0}, "scheduler-samples"),
        ({"profiles": [{"schedulerName": "x", "percentageOfNodesToScore": 20}]}, "scheduler-samples"),
        ({"extenders": [{**EXTENDER, "ignorable": True}]}, "scheduler-extender"),
        ({"extenders": [{**EXTENDER, "bindVerb": ""}]}, "scheduler-extender"),
    ],
)
def test_a_scheduler_that_does_not_ask_as_it_should(change, kind):
    assert kinds(schedulers={WHERE: {**SCHEDULER, **change}}) == [kind]


def test_schedulers_without_our_extender_are_none_of_our_business():
    assert kinds(schedulers={WHERE: {"kind": "KubeSchedulerConfiguration"}}) == []


def test_an_extender_that_only_ranks_nodes_for_pods_without_gpu_is_as_it_should_be():
    ranks = {"urlPrefix": EXTENDER["urlPrefix"], "prioritizeVerb": WITHOUT_GPU, "ignorable": True}
    assert kinds(schedulers={WHERE: {**SCHEDULER, "extenders": [EXTENDER, ranks]}}) == []


CHOOSES = {**EXTENDER, "filterVerb": CHOOSE}
OTHER = {"urlPrefix": "https://elsewhere", "filterVerb": "filter"}


@pytest.mark.parametrize(
    "extenders", [[CHOOSES], [OTHER, CHOOSES], [CHOOSES, {**OTHER, "filterVerb": ""}], [EXTENDER, OTHER]]
)
def test_choose_is_right_where_nobody_filters_after_it(extenders):
    assert kinds(schedulers={WHERE: {**SCHEDULER, "extenders": extenders}}) == []


def test_an_extender_that_filters_after_choose_may_refuse_the_only_node():
    wrong = {**SCHEDULER, "extenders": [CHOOSES, OTHER]}
    (finding,) = found(schedulers={WHERE: wrong})
    assert finding.kind == "scheduler-extender"
    assert "another extender filters after choose" in finding.found


@pytest.mark.parametrize(
    ("extenders", "verbs"),
    [([CHOOSES, OTHER], ["filter", "filter"]), ([{**CHOOSES, "ignorable": True}], [CHOOSE])],
)
def test_choose_is_kept_unless_it_is_what_is_wrong(api, extenders, verbs):
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, "extenders": extenders}), SPACE)
    mended(api)
    text = api.raw(CONFIG_MAPS, "cotenant-scheduler", SPACE)["data"]["scheduler.yaml"]
    assert [each["filterVerb"] for each in yaml.safe_load(text)["extenders"]] == verbs


@pytest.mark.parametrize(
    "change",
    [
        {"percentageOfNodesToScore": "100"},
        {"percentageOfNodesToScore": 99},
        {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "percentageOfNodesToScore": 0}]},
    ],
)
def test_a_sample_in_any_profile(change):
    assert kinds(schedulers={WHERE: {**SCHEDULER, **change}}) == ["scheduler-samples"]


def test_a_profile_of_its_own_word_overrules_the_rest():
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
def test_an_extender_that_is_not_asked_as_it_should_be(change):
    wrong = {**SCHEDULER, "extenders": [{"urlPrefix": "https://elsewhere"}, {**EXTENDER, **change}]}
    assert kinds(schedulers={WHERE: wrong}) == ["scheduler-extender"]


@pytest.mark.parametrize(
    "managed", [[], [{"name": names.GPU_SLOT}], [{"name": names.GPU_MEMORY}, {"name": names.GPU}]]
)
def test_every_way_to_be_asked_about_all_gpu_pods_is_good(managed):
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
def test_what_strangers_write_there_blinds_nobody(nonsense):
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
def test_what_cannot_be_read_is_told(text):
    unread = []
    maps = [Generic(Meta(name="m", namespace="team"), data={"k": text})]
    assert list(configurations(maps, unread.append)) == []
    assert unread[0].startswith("configmap team/m: k: ")
    unread.clear()
    maps = [Generic(Meta(name="m", namespace="team"), data={"k": text.replace("cotenant", "other")})]
    assert list(configurations(maps, unread.append)) == []
    assert unread == [], "what does not name us is none of our business"


def test_its_name_cannot_move_the_terminals_cursor():
    wild = {**SCHEDULER, "percentageOfNodesToScore": 1, "profiles": [{"schedulerName": "\x1b[2J"}]}
    (finding,) = found(schedulers={WHERE: wild})
    assert "\x1b" not in finding.found


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"percentageOfNodesToScore": 50}, "scheduler-samples"),
        ({"profiles": [{"schedulerName": "x", "percentageOfNodesToScore": 5}]}, "scheduler-samples"),
        ({"extenders": [{**EXTENDER, "ignorable": True}]}, "scheduler-extender"),
        ({"extenders": [{**EXTENDER, "preemptVerb": ""}]}, "scheduler-extender"),
        ({"extenders": [{**EXTENDER, "bindVerb": "bnid"}]}, "scheduler-extender"),
        (
            {"extenders": [{**EXTENDER, "managedResources": [{"name": "aliyun.com/gpu-mem"}]}]},
            "scheduler-extender",
        ),
    ],
)
def test_our_schedulers_configuration(api, change, kind):
    kept = {"podMaxBackoffSeconds": 2, "leaderElection": {"leaderElect": True}}
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, **kept, **change}), SPACE)
    assert found_on(api) == [kind]
    assert "restarted the Deployment cotenant-system/cotenant-scheduler" in mended(api)
    text = api.raw(CONFIG_MAPS, "cotenant-scheduler", SPACE)["data"]["scheduler.yaml"]
    after = yaml.safe_load(text)
    assert kept.items() <= after.items()
    template = api.raw(DEPLOYMENTS, "cotenant-scheduler", SPACE)["spec"]["template"]
    assert template["metadata"]["annotations"] == {"kubectl.kubernetes.io/restartedAt": NOW.isoformat()}
    assert "restartedAt" not in str(api.raw(DEPLOYMENTS, "cotenant-server", SPACE)), "only who reads it"


def test_two_faults_of_one_configuration_are_one_change(api):
    wrong = {**SCHEDULER, "percentageOfNodesToScore": 1, "extenders": [{**EXTENDER, "filterVerb": None}]}
    api.put(CONFIG_MAPS, scheduler_map(wrong), SPACE)
    first, second = examine(api, fix=True)
    assert not first.left
    assert not second.left
    assert second.done == "nothing was left to do: it is right"
    assert api.writes == ["patch configmaps cotenant-scheduler", "patch deployments cotenant-scheduler"]


@pytest.mark.parametrize(
    ("labels", "space"), [({}, SPACE), ({"app.kubernetes.io/name": "other"}, SPACE), (OURS, "team")]
)
def test_a_scheduler_of_somebody_else_is_theirs_to_change(api, labels, space):
    del api.objects[("configmaps", SPACE, "cotenant-scheduler")]
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, "percentageOfNodesToScore": 50}, labels), space)
    (outcome,) = examine(api, fix=True)
    assert outcome.left
    assert outcome.finding.do.endswith(
        f"restart that scheduler: kubectl edit configmap -n {space} cotenant-scheduler"
    )
    assert api.writes == []


def test_without_our_deployment_it_is_said_that_the_scheduler_must_be_restarted(api):
    del api.objects[("deployments", SPACE, "cotenant-scheduler")]
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, "percentageOfNodesToScore": 50}), SPACE)
    assert mended(api) == "corrected it; restart that scheduler, which reads it when it starts"
