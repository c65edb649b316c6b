"""Fixtures of the testbed. `pytest tests/cluster` moves itself into its namespaces; see README.md."""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import needs
import pytest
from cluster.testbed import abilities, hollow, namespaces, places
from cluster.testbed.api import Api, Object
from cluster.testbed.cluster import Cluster
from cluster.testbed.component import LOGS, Component
from cluster.testbed.controlplane import ControlPlane

if TYPE_CHECKING:
    from cluster.cotenant.installation import Installation

HERE = Path(__file__).parent
TIMES = pytest.StashKey[dict[str, float]]()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Runs the same pytest inside the namespaces of a testbed, if all it is asked for lies here."""
    asked = [Path(config.invocation_params.dir, each.split("::")[0]).resolve() for each in config.args]
    alone = all(each.is_relative_to(HERE) for each in asked)
    if places.inside() or not alone or config.option.collectonly:
        return None
    reasons = abilities.prepare()
    if places.CONTROL_PLANE in reasons:
        places.tell(reasons)
        return None
    command = [sys.executable, "-m", "pytest", *config.invocation_params.args]
    return namespaces.run(command, reasons, cwd=config.invocation_params.dir)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TIMES] = {}
    Component.forks_cotenant = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need a kubelet come last: until then there are no nodes but those that a test makes."""
    needs.mark(items, __file__, "control_plane")
    needs.mark(items, __file__, "kubelet", fixture="cluster")
    needs.mark(items, __file__, "keda", fixture="keda")
    needs.mark(items, __file__, "keda", fixture="prometheus_adapter")
    items.sort(key=lambda item: item.get_closest_marker("kubelet") is not None)


def _unless_it_cannot(part: str) -> None:
    reason = places.reasons().get(part)
    if not reason and not places.inside():
        reason = "it runs in namespaces of its own, ask for tests/cluster alone"
    if reason:
        pytest.skip(f"no {part}: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, seconds in config.stash[TIMES].items():
        terminalreporter.write_line(f"testbed: {name} after {seconds:.1f} s")
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        _keep_logs(terminalreporter)


def _keep_logs(terminalreporter: pytest.TerminalReporter) -> None:
    """They end with the testbed; after a failure somebody wants to read them."""
    if places.inside() and LOGS.exists():
        all_kept = places.cache() / "logs"
        for old in sorted(all_kept.glob("*"), key=lambda folder: folder.stat().st_mtime)[:-4]:
            shutil.rmtree(old, ignore_errors=True)
        kept = all_kept / (places.inside() or "")
        shutil.copytree(LOGS, kept, dirs_exist_ok=True)
        terminalreporter.write_line(f"testbed: logs of all components are in {kept}")


@pytest.fixture(scope="session")
def can_run_control_plane() -> None:
    """For tests that start one themselves."""
    _unless_it_cannot(places.CONTROL_PLANE)


@pytest.fixture(scope="session")
def can_run_kubelet() -> None:
    _unless_it_cannot(places.KUBELET)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, can_run_control_plane: None) -> Iterator[ControlPlane]:
    """etcd, API server, controller-manager and scheduler; no node but those that `hollow_nodes` makes."""
    started = ControlPlane()
    try:
        started.start()
        request.config.stash[TIMES].update(started.times)
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, can_run_kubelet: None, control_plane: ControlPlane
) -> Iterator[Cluster]:
    """The control plane with a real node: containerd and a kubelet."""
    started = Cluster(control_plane)
    try:
        started.start()
        request.config.stash[TIMES].update(started.node.times)
        yield started
    finally:
        started.stop()


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    """The API server as an administrator sees it."""
    return control_plane.api


@pytest.fixture
def namespace(api: Api, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for this test alone, ready for pods."""
    made = api.create("/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
    name: str = made["metadata"]["name"]
    api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
    yield name
    api.empty(name)


MakeNodes = Callable[[Iterable[Object]], None]
Start = Callable[..., "Installation"]


@pytest.fixture(scope="module")
def start_cotenant(control_plane: ControlPlane) -> Iterator[Start]:
    """Starts Cotenant (see cotenant/installation.py) for the tests of one file; they say how many servers and which settings."""
    # Where only the testbed itself is tried, nothing of the product needs to work.
    from cluster.cotenant.installation import Installation

    started: list[Installation] = []

    def start(**how: Any) -> Installation:
        started.append(Installation(control_plane, **how))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def commands(cotenant: Any, control_plane: ControlPlane) -> Any:
    """Our commands as an administrator types them, beside the `cotenant` of the file."""
    from cluster.cotenant.commands import Commands  # the same

    return Commands(control_plane)


@pytest.fixture(scope="session")
def _hollow_kubelet(control_plane: ControlPlane) -> Iterator[Component]:
    pair = control_plane.credentials("hollow-kubelet", ["system:masters"])
    trusted = control_plane.authority.pair.certificate
    module = [sys.executable, "-m", "cluster.testbed.hollowkubelet"]
    component = Component(
        "hollow-kubelet", [*module, control_plane.host, trusted, pair.certificate, pair.key]
    )
    component.ready = lambda: "following" in component.tail()
    component.start()
    component.wait()
    yield component
    component.stop()


@pytest.fixture
def hollow_nodes(api: Api, _hollow_kubelet: Component) -> Iterator[MakeNodes]:
    """Adds nodes (see testbed/hollow.py) whose pods run as soon as they are bound; they go with the test."""
    yield lambda nodes: hollow.add(api, nodes)
    hollow.clear(api)


def pytest_report_header() -> list[str]:
    name = places.inside()
    return [f"testbed: {name}, Kubernetes {places.version()}"] if name else []
