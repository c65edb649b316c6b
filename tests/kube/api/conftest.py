"""The same tests over both HTTP transports."""

import pytest
from kube import replay


@pytest.fixture(params=[replay.DIRECT, replay.PROXIED])
def route(request, monkeypatch):
    """How clients of `replaying` servers reach them."""
    monkeypatch.setattr(replay, "route", request.param)
    return request.param
