"""What can go wrong between us and an API server.

Callers decide by type and by `uncertain`, never by text or by anything of the HTTP library. No message
carries a token, a key or a header.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from cotenant.core.errors import BadInput, CotenantError


class BadKubeconfig(BadInput):
    """How to reach the cluster is not said, or said wrongly; the message names the file and the field."""


class KubeError(CotenantError):
    """The API server refused, failed or did not answer."""

    said: ClassVar[str] = "refused"

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        uncertain: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.uncertain = uncertain
        """Whether a write may have happened, or may still happen, all the same: read before you undo."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait before the next try."""


class NoCredential(KubeError):
    """What the kubeconfig points to (a file, a plugin) gives no credential now; later it may."""

    said = "no credential"


class Unauthorized(KubeError):
    said = "not authenticated"


class Forbidden(KubeError):
    said = "not allowed"


class NotFound(KubeError):
    said = "not found"


class Conflict(KubeError):
    """The object is no longer the one that was meant: its uid or resourceVersion differs."""

    said = "conflict"


class AlreadyExists(Conflict):
    said = "already there"


class Gone(KubeError):
    """The asked resourceVersion is too old: list anew."""

    said = "too old"


class Invalid(KubeError):
    """The server understood the request and will never accept it as it is."""

    said = "invalid"


class TooManyRequests(KubeError):
    said = "overloaded"


class ServerFailed(KubeError):
    said = "server failed"


class Unreachable(KubeError):
    said = "no answer"


class Untrusted(Unreachable):
    """The server's certificate is not what the kubeconfig promises; trying again does not help."""

    said = "not trusted"


class ProxyDenied(Unreachable):
    """The proxy refuses to connect us, such as for a wrong password; trying again does not help."""


class Silent(Unreachable):
    """A watch said nothing for so long that its connection may be dead. Or there was nothing to say."""

    said = "silent"


class Undecodable(KubeError):
    """An answer that is not what this API version is known to say."""

    said = "not understood"


_BY_CODE: dict[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
}


class StatusCause(msgspec.Struct, frozen=True):
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[StatusCause, ...] = ()


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """meta/v1 Status: how an API server explains a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


def failure(asked: str, status: Status, retry_after: float | None = None) -> KubeError:
    """`asked` is what we wanted, as shown to people: `get pods web/front`."""
    kind = _BY_CODE.get(status.code, ServerFailed if status.code >= 500 else KubeError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    elif status.reason == "Expired":
        kind = Gone
    elif kind is Invalid and status.details and any(c.field == "metadata.uid" for c in status.details.causes):
        kind = Conflict  # how servers call it when a patch guarded by uid meets another object
    if retry_after is None and status.details is not None and status.details.retry_after_seconds > 0:
        retry_after = float(status.details.retry_after_seconds)
    why = status.message or status.reason or f"HTTP {status.code}"
    return kind(
        f"{asked}: {kind.said}: {why}",
        code=status.code,
        reason=status.reason,
        uncertain=status.code >= 500,
        retry_after=retry_after,
    )


def failure_from_body(asked: str, code: int, body: bytes, retry_after: str | None) -> KubeError:
    """From an HTTP answer, whose body is a Status unless a proxy or the authentication filter wrote it."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = body[:200].decode("utf-8", "replace").strip()
        status = Status(message=" ".join(text.split()))
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    return failure(asked, msgspec.structs.replace(status, code=code), seconds)
