"""Images for what other systems' guides run."""

import shutil
from pathlib import Path

from cluster.testbed import images, places, pythonimage
from cluster.testbed.cluster import Cluster

PLAYER = "localhost/player:local"


def player(cluster: Cluster) -> str:
    """Sleeps if nothing else is asked of it, and has `sleep` and `env`, as any distribution's image."""
    made: set[str] = cluster.__dict__.setdefault("players", set())
    if PLAYER not in made:
        tools = {
            name: Path(shutil.which(name) or f"/bin/{name}").resolve() for name in ("sleep", "env", "sh")
        }
        files: dict[str, Path | str | bytes] = {f"/usr/bin/{name}": path for name, path in tools.items()}
        files["/bin"] = "usr/bin"
        files.update(pythonimage._shared_libraries(tools.values()))
        archive = images.write(
            places.STATE / "player.tar",
            PLAYER,
            files,
            entrypoint=["/usr/bin/sleep", "100000"],
            environment={"PATH": "/usr/bin"},
        )
        cluster.node.add_image(archive)
        made.add(PLAYER)
    return PLAYER
