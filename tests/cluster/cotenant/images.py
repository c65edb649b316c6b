"""Images for what other systems' guides run."""

import shutil
from pathlib import Path

from cluster.testbed import images, places, pythonimage
from cluster.testbed.cluster import Cluster

PLAYER = "localhost/player:local"
GLIBC = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6")
"""What comes with libc in every image that has glibc."""


def player(cluster: Cluster, name: str = PLAYER) -> str:
    """Sleeps if nothing else is asked of it, and has `sleep` and `env`, as any distribution's image. `name` is the one that
    a manifest gives it.
    """
    made: set[str] = cluster.__dict__.setdefault("players", set())
    if name not in made:
        tools = {
            name: Path(shutil.which(name) or f"/bin/{name}").resolve() for name in ("sleep", "env", "sh")
        }
        files: dict[str, Path | str | bytes] = {f"/usr/bin/{name}": path for name, path in tools.items()}
        files["/bin"] = "usr/bin"
        libraries = pythonimage._shared_libraries(tools.values())
        files.update(libraries)
        for folder in {Path(path).parent for path in libraries if "libc.so" in path}:
            files.update({str(folder / name): (folder / name).resolve() for name in GLIBC})
        archive = images.write(
            places.STATE / "player.tar",
            name,
            files,
            entrypoint=["/usr/bin/sleep", "100000"],
            environment={"PATH": "/usr/bin"},
        )
        cluster.node.add_image(archive)
        made.add(name)
    return name
