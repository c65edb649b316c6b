"""The table that people of gpushare know."""

from kube.operating.clusters import GI, node, pod

from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.registry import Dialects
from cotenant.kube.operating.status.inspect_table import details, limits, summary
from cotenant.kube.operating.status.snapshot import node_json, snapshot

MIB = 2**20
IN_MIB = Dialects(aliyun=Aliyun(unit="MiB"))

GUIDE = """\
NAME           IPADDRESS     GPU0(Allocated MiB/Total MiB)  GPU Memory
i-2ze0gl97vw1  192.168.0.72  7606/7606                      7606/7606
i-2ze0gl97vw2  192.168.0.73  3803/7606                      3803/7606
i-2ze0gl97vw3  192.168.0.71  7606/7606                      7606/7606
---------------------------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
19015/22818 (83%)
"""


def test_the_guides_cluster_gives_the_guides_table():
    addresses = {
        "i-2ze0gl97vw1": "192.168.0.72",
        "i-2ze0gl97vw2": "192.168.0.73",
        "i-2ze0gl97vw3": "192.168.0.71",
    }
    nodes = [node(name, [7606 * MIB], address=each, dialects=IN_MIB) for name, each in addresses.items()]
    pods = [
        pod(f"binpack-{number}", 3803 * MIB, on=name)
        for number, name in enumerate(
            ("i-2ze0gl97vw1", "i-2ze0gl97vw1", "i-2ze0gl97vw2", "i-2ze0gl97vw3", "i-2ze0gl97vw3")
        )
    ]
    assert summary(snapshot(nodes, pods).nodes) == GUIDE


def test_gib_is_shown_as_the_tool_prints_it_today():
    nodes = [node("cn-shanghai.192.168.0.4", [7 * GI, 7 * GI], address="192.168.0.4")]
    assert summary(snapshot(nodes, []).nodes) == (
        "NAME                     IPADDRESS    GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory(GiB)\n"
        "cn-shanghai.192.168.0.4  192.168.0.4  0/7                    0/7                    0/14\n"
        + "-" * 69
        + "\nAllocated/Total GPU Memory In Cluster:\n0/14 (0%)\n"
    )


def test_nodes_with_1_2_and_8_cards_stay_aligned():
    nodes = [
        node("one", [80 * GI], address="10.0.0.1"),
        node("two-with-a-long-name", [80 * GI] * 2, address="10.0.0.22"),
        node("eight", [24 * GI] * 8, address="10.0.0.3"),
    ]
    lines = summary(
        snapshot(nodes, [pod("a", 10 * GI, on="two-with-a-long-name", cards=(1,))]).nodes
    ).splitlines()
    head, rows = lines[0], lines[1:4]
    assert [row.split()[0] for row in rows] == ["eight", "one", "two-with-a-long-name"]
    for at in range(8):
        column = head.index(f"GPU{at}(")
        assert all(row[column - 1] == " " and row[column] != " " for row in rows)
    assert rows[2].split()[2:] == ["0/80", "10/80", *["0/0"] * 6, "10/160"]
    assert rows[0].split()[-1] == "0/192"


def test_only_nodes_with_cards_are_shown_and_ended_pods_hold_nothing():
    nodes = [node("with", [16 * GI]), node("without", [])]
    text = summary(snapshot(nodes, [pod("done", 4 * GI, on="with", phase="Succeeded")]).nodes)
    assert "without" not in text
    assert text.endswith("0/16 (0%)\n")


def test_a_card_that_is_full_shows_as_full_though_its_size_is_no_whole_number():
    nodes = [node("n", [7 * GI + 500 * MIB])]
    assert "7/7" in summary(snapshot(nodes, [pod("all", 7 * GI + 500 * MIB, on="n", whole=True)]).nodes)


def test_details_list_the_pods_of_each_card_as_the_tool_does():
    nodes = [node("node5", [7 * GI], address="10.202.115.1")]
    pods = [
        pod("tf-jupyter-954ffbbf8-lztc9", 3 * GI, on="node5", namespace="default"),
        pod("tf-jupyter2-69b6f97566-j4f4w", 3 * GI, on="node5", namespace="default"),
    ]
    assert details(snapshot(nodes, pods).nodes) == (
        "\n"
        "NAME:       node5\n"
        "IPADDRESS:  10.202.115.1\n"
        "\n"
        "NAME                          NAMESPACE  GPU0(Allocated)\n"
        "tf-jupyter-954ffbbf8-lztc9    default    3\n"
        "tf-jupyter2-69b6f97566-j4f4w  default    3\n"
        "Allocated :                   6 (85%)\n"
        "Total :                       7\n"
        "----------------------------------------------------------------------------------------\n"
        "\n"
        "\n"
        "Allocated/Total GPU Memory In Cluster:  6/7 (85%)\n"
    )


def test_sick_and_drained_cards_are_marked_in_details_only():
    nodes = [node("n", [16 * GI] * 2, problems={0: "XID 79: fell off the bus"}, drained=(1,))]
    seen = snapshot(nodes, []).nodes
    assert "drained" not in summary(seen)
    text = details(seen)
    assert "GPU0 is sick and takes no new grant: XID 79: fell off the bus" in text
    assert "GPU1 is drained and takes no new grant" in text


def test_a_card_that_shares_the_hosts_memory_is_marked_in_details():
    seen = snapshot([node("n", [119 * GI], shared=True)], []).nodes
    assert "GPU0 has no memory of its own: it shares the host's" in details(seen)


def test_a_pod_over_two_cards_has_a_part_on_each():
    text = details(snapshot([node("n", [16 * GI] * 2)], [pod("both", 8 * GI, on="n", cards=(0, 1))]).nodes)
    assert "both         team       4                4" in text


def test_of_one_namespace_only_its_pods_are_listed_and_all_are_counted():
    pods = [pod("a", 4 * GI, on="n", namespace="one"), pod("b", 4 * GI, on="n", namespace="two")]
    text = details(snapshot([node("n", [16 * GI])], pods).nodes, "one")
    assert "a " in text
    assert "two" not in text
    assert "8 (50%)" in text


def test_pods_that_do_not_use_their_gpu_are_named_below_it():
    nodes = [node("n1", [80 * GI] * 2)]
    pods = [
        pod("short", GI, on="n1", idle=60),
        pod("long", 2 * GI, on="n1", cards=(0, 1), idle=7200),
        pod("works", GI, on="n1"),
        pod("other", GI, on="n1", namespace="two", idle=30),
    ]
    lines = details(snapshot(nodes, pods).nodes, "team").splitlines()
    idle = [line.split(" since ")[0] for line in lines if "idle" in line]
    assert idle == ["team/long has been idle", "team/short has been idle"]
    (seen,) = snapshot(nodes, pods[:1]).nodes
    assert "idleSince" in node_json(seen)["gpus"][0]["pods"][0]


HELD = ("True", "Driver", "asked driver, holds driver: container main: limit of 4Gi on GPU 0 held by driver")
OVER = ("False", "OverLimit", "asked driver, holds watch: container main holds 5Gi on GPU 0, 1Gi more")


def test_what_was_asked_to_hold_a_pod_and_what_does_are_two_columns():
    nodes = [node("n1", [80 * GI]), node("n2", [80 * GI])]
    pods = [
        pod("fine", 4 * GI, on="n1", held=HELD),
        pod("over", 4 * GI, on="n2", held=OVER, namespace="two"),
        pod("new", 4 * GI, on="n2"),
    ]
    seen = snapshot(nodes, pods).nodes
    assert limits(seen).splitlines() == [
        "",
        "POD   NAMESPACE  NODE  ASKED   HOLDS",
        "fine  team       n1    driver  driver",
        "over  two        n2    driver  watch   OverLimit",
    ]
    assert "over" not in limits(seen, "team")
    assert limits(snapshot(nodes, pods[2:]).nodes) == "", "nothing was reported"
    assert details(seen) == details(
        snapshot(
            nodes, [pod("fine", 4 * GI, on="n1"), pod("over", 4 * GI, on="n2", namespace="two"), pods[2]]
        ).nodes
    )
    (shown,) = node_json(seen[1])["gpus"]
    by_name = {each["pod"]: each for each in shown["pods"]}
    assert by_name["over"]["enforcerAsked"] == "driver"
    assert (by_name["over"]["enforcer"], by_name["over"]["limitProblem"]) == ("watch", "OverLimit")
    assert "enforcer" not in by_name["new"]
