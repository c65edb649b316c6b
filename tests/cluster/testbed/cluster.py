"""What tests hold in their hands: a control plane with a real node, and the images that its pods run."""

from pathlib import Path

from . import places, pythonimage
from .controlplane import ControlPlane
from .node import Node

PYTHON = "localhost/python:local"
"""This machine's Python, a shell, and Cotenant with what it requires."""


class Cluster:
    def __init__(self, control_plane: ControlPlane) -> None:
        self.control_plane = control_plane
        self.api = control_plane.api
        self.kubectl = control_plane.kubectl
        self.node = Node(control_plane)
        self._images: set[str] = set()

    def start(self) -> None:
        self.node.start()

    def stop(self) -> None:
        self.node.stop()

    def python_image(self, *packages: str) -> str:
        """Its name; made when it is first asked for, with these installed packages beside Cotenant."""
        name = PYTHON if not packages else f"localhost/python-{'-'.join(sorted(packages)).lower()}:local"
        if name not in self._images:
            archive = places.STATE / "python.tar"
            self.node.add_image(pythonimage.write(Path(archive), name, ["cotenant", *packages]))
            self._images.add(name)
        return name
