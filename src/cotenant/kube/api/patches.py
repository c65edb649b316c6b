"""Makes patches, and guards writes by an object's uid and resourceVersion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.kube.api.objects import HasMeta

Operation = Mapping[str, Any]
"""One operation of a JSON patch (RFC 6902)."""


@dataclass(frozen=True)
class Guard:
    """Restricts a write to one object: a write to another object of the same name, or to a later version if
    `resource_version` is set, is a Conflict. Empty fields guard nothing.
    """

    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, object: HasMeta) -> Guard:
        """Guards by this object in exactly this version."""
        return cls(object.metadata.uid, object.metadata.resource_version)

    def fields(self) -> dict[str, str]:
        """Returns the fields for metadata; the server compares them with its own."""
        both = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {name: value for name, value in both.items() if value}

    def into(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the body with the guard in its metadata."""
        return (
            {**body, "metadata": {**body.get("metadata", {}), **self.fields()}}
            if self.fields()
            else dict(body)
        )

    def before(self, operations: Sequence[Operation]) -> list[Operation]:
        """Returns the operations with the guard in front. Not as `test` operations: servers report a failed
        one as an invalid request, which looks the same as a mistake of ours.
        """
        guard = [
            {"op": "replace", "path": pointer("metadata", name), "value": value}
            for name, value in self.fields().items()
        ]
        return [*guard, *operations]


def pointer(*keys: str) -> str:
    """Makes a JSON pointer (RFC 6901): `pointer("metadata", "annotations", "a/b")`."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
