"""Container images without Docker: an OCI layout in a tar, written from files of this machine."""

import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Files = Mapping[str, "Path | str | bytes"]
"""Path in the image to a file or folder of this machine, to bytes, or to the target of a symbolic link (a str)."""

EMPTY = {"tmp": 0o1777, "run": 0o755, "etc": 0o755, "proc": 0o555, "sys": 0o555, "dev": 0o755}
COMPILED = f".{sys.implementation.cache_tag}.pyc"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(
    archive: Path,
    name: str,
    files: Files,
    *,
    entrypoint: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Path:
    """One layer. Times are kept, since Python compares them with those in its compiled files."""
    layer = archive.with_suffix(".layer")
    _write_layer(layer, files)
    digest = _digest(layer)
    config: dict[str, Any] = {
        "architecture": ARCHITECTURES[os.uname().machine],
        "os": "linux",
        "config": {
            "Entrypoint": list(entrypoint),
            "Env": [f"{key}={value}" for key, value in (environment or {}).items()],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    blobs: dict[str, bytes] = {}
    layers = [_descriptor("image.layer.v1.tar", digest, layer.stat().st_size)]
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _blob(blobs, "image.config.v1+json", config),
        "layers": layers,
    }
    described = _blob(blobs, "image.manifest.v1+json", manifest)
    described["annotations"] = {"io.containerd.image.name": name}
    index = {"schemaVersion": 2, "manifests": [described]}
    with tarfile.open(archive, "w") as tar:
        _add_bytes(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add_bytes(tar, "index.json", json.dumps(index).encode())
        for key, content in blobs.items():
            _add_bytes(tar, f"blobs/sha256/{key}", content)
        tar.add(layer, f"blobs/sha256/{digest}", filter=_plain)
    layer.unlink()
    return archive


def _write_layer(layer: Path, files: Files) -> None:
    with tarfile.open(layer, "w") as tar:
        for folder, mode in EMPTY.items():
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
        for target in sorted(files):
            source, place = files[target], target.lstrip("/")
            if isinstance(source, Path):
                tar.add(source, place, filter=_plain)
            elif isinstance(source, bytes):
                _add_bytes(tar, place, source, mode=0o755)
            else:
                info = tarfile.TarInfo(place)
                info.type, info.linkname = tarfile.SYMTYPE, source
                tar.addfile(info)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Without what another Python or pytest compiled, and readable by everyone: pods run as other users too."""
    if info.name.endswith(".pyc") and not info.name.endswith(COMPILED):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode |= 0o555 if info.isdir() or info.mode & 0o100 else 0o444
    return info


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))


def _blob(blobs: dict[str, bytes], kind: str, content: Any) -> dict[str, Any]:
    encoded = json.dumps(content).encode()
    digest = hashlib.sha256(encoded).hexdigest()
    blobs[digest] = encoded
    return _descriptor(kind, digest, len(encoded))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.{kind}", "digest": f"sha256:{digest}", "size": size}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
