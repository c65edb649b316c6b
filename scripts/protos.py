"""Writes the descriptor set, modules and stubs of `cotenant.kube.protos` from the `.proto` files in protos/.

    python scripts/protos.py            what `make protos` runs
    python scripts/protos.py --fetch    copy the `.proto` files of RELEASES first; needs Go

For a new release change RELEASES, for another API add a line to APIS; then run with --fetch and read what git
shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from proto_modules import module, stub

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "protos"
PACKAGE = ROOT / "src" / "cotenant" / "kube" / "protos"

RELEASES = {"k8s.io/kubelet": "v0.37.1", "github.com/kedacore/keda/v2": "v2.21.0"}
"""Go modules and the versions whose `.proto` files are in protos/."""

_KUBELET = "k8s.io/kubelet/pkg/apis"
APIS = {
    "device_plugin_v1beta1": f"{_KUBELET}/deviceplugin/v1beta1/api.proto",
    "dra_health_v1": f"{_KUBELET}/dra-health/v1/api.proto",
    "dra_health_v1alpha1": f"{_KUBELET}/dra-health/v1alpha1/api.proto",
    "dra_v1": f"{_KUBELET}/dra/v1/api.proto",
    "dra_v1beta1": f"{_KUBELET}/dra/v1beta1/api.proto",
    "keda_external_scaler": "github.com/kedacore/keda/v2/pkg/scalers/externalscaler/externalscaler.proto",
    "plugin_registration_v1": f"{_KUBELET}/pluginregistration/v1/api.proto",
    "pod_resources_v1": f"{_KUBELET}/podresources/v1/api.proto",
}
"""Python modules and their `.proto` files. A file's path in protos/ begins with its Go module."""


def fetch() -> None:
    """Copies the files as they are, from the modules that Go downloads and verifies."""
    for go_module, version in RELEASES.items():
        command = ["go", "mod", "download", "-json", f"{go_module}@{version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tempfile.gettempdir())
        folder = Path(json.loads(done.stdout)["Dir"])
        for proto in APIS.values():
            if proto.startswith(f"{go_module}/"):
                target = SOURCES / proto
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((folder / proto.removeprefix(f"{go_module}/")).read_bytes())


def compiled(proto: str) -> FileDescriptorProto:
    """Describes one file. Each is compiled alone: several of the kubelet's packages are just called `v1`."""
    with tempfile.NamedTemporaryFile() as out:
        arguments = ["protoc", f"-I{SOURCES}", f"--descriptor_set_out={out.name}", proto]
        if protoc.main(arguments):
            raise SystemExit(f"protoc cannot compile {proto}")
        (file,) = FileDescriptorSet.FromString(Path(out.name).read_bytes()).file
    return file


def written() -> Iterator[tuple[Path, bytes]]:
    """Yields every generated file with its content."""
    files = {name: compiled(proto) for name, proto in APIS.items()}
    whole = FileDescriptorSet(file=files.values())
    yield PACKAGE / "descriptors.binpb", whole.SerializeToString(deterministic=True)
    for name, file in files.items():
        yield PACKAGE / f"{name}.py", module(file).encode()
        yield PACKAGE / f"{name}.pyi", stub(file).encode()


def main() -> None:
    if sys.argv[1:] == ["--fetch"]:
        fetch()
    for path, content in written():
        path.write_bytes(content)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
