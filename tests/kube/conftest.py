"""A real API server for those tests that ask for one."""

import contextlib
import signal
from collections.abc import Iterator

import needs
import pytest
import pytest_asyncio
from kube import apiserver

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NAMESPACES, NODES, PODS


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs.mark(items, __file__, "api_server", fixture="control_plane")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory) -> Iterator[apiserver.ControlPlane]:
    if reason := apiserver.missing():
        pytest.skip(reason)
    plane = apiserver.ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.etcd.start()
        plane.etcd.wait()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def first(control_plane):
    """The API server that every test may use, and its address."""
    process, url = control_plane.add_server()
    process.wait()
    return process, url


@pytest.fixture(scope="session")
def second(control_plane):
    """Another one of the same cluster, which no test hurts: it shows what is true while the first is down."""
    process, url = control_plane.add_server()
    process.wait()
    return process, url


@pytest.fixture
def hurt(first):
    """The first API server, to be killed or stopped; whole again at the end."""
    process, _ = first
    yield process
    if process.process.poll() is not None:
        process.start()
    process.signal(signal.SIGCONT)
    process.wait()


@pytest_asyncio.fixture
async def client(control_plane, first):
    async with Client(kubeconfig.find({}, path=control_plane.kubeconfig(first[1]))) as client:
        yield client


@pytest_asyncio.fixture
async def other(control_plane, second):
    """The same administrator, through the second API server."""
    async with Client(kubeconfig.find({}, path=control_plane.kubeconfig(second[1]))) as client:
        yield client


@pytest_asyncio.fixture
async def namespace(client, request):
    """One for each test; nothing runs that would delete it or what is in it."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**9}"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    for pod in (await client.list(PODS)).items:
        if pod.metadata.namespace == name:
            await client.delete(PODS, pod.metadata.name, name, grace_seconds=0)


@pytest_asyncio.fixture
async def node(client):
    name = "n1"
    made = await client.create(NODES, {"metadata": {"name": name}})
    yield made
    with contextlib.suppress(NotFound):
        await client.delete(NODES, name, guard=Guard(made.metadata.uid))
