"""Advice as patches of workloads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from advice.reports import gathered, report
from core.rightsizing.made import GIB, track

from cotenant.advice.patches import Spelling, patches
from cotenant.core.errors import BadInput
from cotenant.core.rightsizing.groups import Owner, by_column


def documents(text: str) -> list[dict]:
    return [each for each in yaml.safe_load_all(text) if each]


def test_a_document_for_each_workload_that_can_be_patched() -> None:
    text = patches(report().advice)
    (found,) = documents(text)
    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "Deployment")
    assert found["metadata"] == {"name": "web", "namespace": "team"}
    amounts = {"cotenant.dev/gpu-memory": "18Gi"}
    assert found["spec"]["template"]["spec"]["containers"] == [
        {"name": "server", "resources": {"requests": amounts, "limits": amounts}}
    ]
    assert "# kubectl patch -n team deployment web --patch-file FILE" in text
    assert "# server: 24Gi -> 18Gi, peak 8Gi of web-1, confidence medium" in text
    assert "# team/pod/notebook: has no template that can be changed: left out" in text


def test_what_asks_for_the_advice_already_is_left_out() -> None:
    assert documents(patches(report(gathered(10 * GIB)).advice)) == []


def test_a_cron_job_has_its_template_deeper() -> None:
    (found,) = documents(patches(report(gathered(web="team/cronjob/web")).advice))
    assert found["apiVersion"] == "batch/v1"
    assert found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["name"] == "server"


def test_other_spellings_are_kept_and_whole_gpus_replaced() -> None:
    key = "team/deployment/web", "server"
    (found,) = documents(patches(report().advice, {key: Spelling("aliyun.com/gpu-mem", GIB)}))
    limits = found["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"aliyun.com/gpu-mem": "18"}
    (found,) = documents(patches(report().advice, {key: Spelling(removed=("nvidia.com/gpu",))}))
    limits = found["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cotenant.dev/gpu-memory": "18Gi", "nvidia.com/gpu": None}


def test_workloads_without_a_kind_cannot_be_patched() -> None:
    with pytest.raises(BadInput, match="NAMESPACE/KIND/NAME, such as team/deployment/web"):
        patches(report(gathered(web="web", other="other")).advice)


@pytest.mark.parametrize("peaks", [(8, 8), (2, 8)])
def test_running_containers_are_not_patched_as_if_they_were_names(peaks: tuple[int, int]) -> None:
    """Whether they share a figure or not, kubectl would take an id for one container more."""
    rows = {
        Owner("team/deployment/llm", "", f"0123456789{at:02d}"): [track([size * GIB] * 300)]
        for at, size in enumerate(peaks)
    }
    groups, _ = by_column(rows)
    nameless = replace(gathered(), groups=tuple(groups))
    with pytest.raises(BadInput, match="'team/deployment/llm' do not say what its container is called"):
        patches(report(nameless).advice)
    both = replace(gathered(), groups=(*gathered().groups, *groups))
    text = patches(report(both).advice)
    assert [each["metadata"]["name"] for each in documents(text)] == ["web"]
    assert text.count("# team/deployment/llm: its container's name is not known: left out") == 1


def test_names_of_others_stay_within_their_quotes_and_comments() -> None:
    wicked = 'team/deployment/x"\nkind: Secret #\x1b[31m'
    (found,) = documents(patches(report(gathered(web=wicked)).advice))
    assert found["kind"] == "Deployment"
    assert found["metadata"]["name"] == 'x"\nkind: Secret #\x1b[31m'
    assert "\x1b" not in patches(report(gathered(web=wicked)).advice)
