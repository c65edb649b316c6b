"""The webhook's configuration: missing, changed, or without the right authority; it is restored."""

import base64
from dataclasses import replace

import pytest
from kube.operating.doctor.wellapi import OURS, SPACE, examine, found_on, mended
from kube.operating.well import DATA, WEBHOOK, WELL, found

from cotenant.kube.admission.configuration import NAME
from cotenant.kube.api.resources import CONFIG_MAPS
from cotenant.kube.operating.installed import RAW_WEBHOOKS


def test_the_webhook_trusts_somebody_else():
    (own_webhook,) = WEBHOOK["webhooks"]
    client = {**own_webhook["clientConfig"], "caBundle": base64.b64encode(b"other").decode()}
    changed = {**WEBHOOK, "webhooks": [{**own_webhook, "clientConfig": client}]}
    (finding,) = found(installed=replace(WELL.installed, webhook=changed))
    assert (finding.kind, finding.repair) == ("ca-bundle", "ca-bundle")


@pytest.mark.parametrize(
    ("key", "value"),
    [("failurePolicy", "Ignore"), ("objectSelector", {"matchLabels": {"a": "b"}}), ("matchConditions", [])],
)
def test_a_webhook_that_was_altered(key, value):
    (own_webhook,) = WEBHOOK["webhooks"]
    changed = {**WEBHOOK, "webhooks": [{**own_webhook, key: value}]}
    (finding,) = found(installed=replace(WELL.installed, webhook=changed))
    assert (finding.kind, finding.repair) == ("webhook-altered", "webhook")
    assert key in finding.found


def test_a_webhook_that_is_missing_is_made_anew_only_with_known_settings():
    (finding,) = found(installed=replace(WELL.installed, webhook=None))
    assert (finding.kind, finding.repair) == ("webhook-missing", "webhook")
    (finding,) = found(installed=replace(WELL.installed, webhook=None, settings_known=False))
    assert finding.repair is None
    missing, differs = found(installed=replace(WELL.installed, webhook=None), version="2.0")
    assert (missing.repair, differs.kind) == (None, "versions-differ"), "another version made it"


def test_the_webhook_is_found_where_its_configuration_points_elsewhere(api):
    webhook = api.raw(RAW_WEBHOOKS, NAME)["webhooks"][0]
    webhook["clientConfig"]["service"]["namespace"] = "nowhere"
    assert mended(api) == "restored clientConfig.service.namespace"
    webhook = api.raw(RAW_WEBHOOKS, NAME)["webhooks"][0]
    assert webhook["clientConfig"]["service"]["namespace"] == SPACE
    assert webhook["clientConfig"]["caBundle"] == DATA["bundle.crt"]


def test_settings_in_a_namespace_of_somebody_else_are_not_believed(api):
    """Whoever has a namespace could otherwise have the webhook asked about fewer pods."""
    del api.objects[("configmaps", SPACE, "cotenant-settings")]
    forged = '[dialects.aliyun]\nenabled = false\n[webhook]\nservice = "mine"\n'
    api.put(
        CONFIG_MAPS,
        {"metadata": {"name": "cotenant-settings", "labels": OURS}, "data": {"settings.toml": forged}},
        "team",
    )
    assert found_on(api) == []
    api.raw(RAW_WEBHOOKS, NAME)["webhooks"].append({"name": "another", "clientConfig": {}})
    (outcome,) = [each for each in examine(api, fix=True) if each.finding.kind == "webhook-altered"]
    assert outcome.finding.repair is None, "without its settings nobody knows what was installed"
