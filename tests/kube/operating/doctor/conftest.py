"""The API server of a cluster that is well, and no waiting."""

import pytest
from kube.fakeapi import FakeApi
from kube.operating.doctor.wellapi import well_api

from cotenant.kube.operating.doctor import rollout


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(rollout, "_LOOK", 0.0)


@pytest.fixture
def api() -> FakeApi:
    return well_api()
