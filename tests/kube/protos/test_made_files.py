"""What `make protos` wrote is what it would write now."""

import importlib.util
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec = importlib.util.spec_from_file_location("making_protos", SCRIPTS / "protos.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(SCRIPTS))


def test_committed_files_follow_from_the_proto_files(script):
    made = dict(script.written())
    descriptors = script.PACKAGE / "descriptors.binpb"
    # Compared as messages: the order of fields on the wire is protoc's own affair.
    assert FileDescriptorSet.FromString(descriptors.read_bytes()) == FileDescriptorSet.FromString(
        made.pop(descriptors)
    )
    old = [path.name for path, content in made.items() if path.read_bytes() != content]
    assert not old, "run `make protos`"


def test_there_is_no_module_without_its_proto_file(script):
    stubs = {path.stem for path in script.PACKAGE.glob("*.pyi")}
    assert stubs == set(script.APIS)
    vendored = {str(path.relative_to(script.SOURCES)) for path in script.SOURCES.rglob("*.proto")}
    assert vendored == set(script.APIS.values())
