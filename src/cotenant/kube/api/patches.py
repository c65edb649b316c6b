"""Changes of an object, and what they are conditional on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.kube.api.objects import HasMeta

Operation = Mapping[str, Any]
"""One step of a JSON patch (RFC 6902)."""


@dataclass(frozen=True)
class Guard:
    """The object that is meant: a write to any other, or to a later state if `resource_version` is set, is a
    Conflict. Empty fields guard nothing.
    """

    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, object: HasMeta) -> Guard:
        """Exactly this object in exactly this state."""
        return cls(object.metadata.uid, object.metadata.resource_version)

    def fields(self) -> dict[str, str]:
        """As they stand in metadata; the server compares them with its own."""
        both = {"uid": self.uid, "resourceVersion": self.resource_version}
        return {name: value for name, value in both.items() if value}

    def into(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body with the guard in its metadata."""
        return (
            {**body, "metadata": {**body.get("metadata", {}), **self.fields()}}
            if self.fields()
            else dict(body)
        )

    def before(self, operations: Sequence[Operation]) -> list[Operation]:
        """The steps with the guard in front. Not `test` steps: a failed one is answered as an invalid
        request, which cannot be told from a mistake of ours.
        """
        guard = [
            {"op": "replace", "path": pointer("metadata", name), "value": value}
            for name, value in self.fields().items()
        ]
        return [*guard, *operations]


def pointer(*keys: str) -> str:
    """A JSON pointer (RFC 6901): `pointer("metadata", "annotations", "a/b")`."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
