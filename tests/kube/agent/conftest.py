"""A kubelet's sockets and a folder of slots. Unix sockets want short paths, so theirs are not pytest's."""

import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio
from kube.agent.kubelet import Kubelet
from kube.agent.nodes import shimmed


@pytest.fixture
def short_folder():
    folder = Path(tempfile.mkdtemp(prefix="cot-"))
    yield folder
    shutil.rmtree(folder)


@pytest_asyncio.fixture
async def kubelet(short_folder):
    started = Kubelet(short_folder)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
def slots(tmp_path):
    return shimmed(tmp_path / "cotenant")
