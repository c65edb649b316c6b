"""Errors of calls to an API server.

Callers decide by the type and by `uncertain`, never by the text or by an error of the HTTP library. No
message contains a token, a key or a header.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from cotenant.core.errors import BadInput, CotenantError


class BadKubeconfig(BadInput):
    """How to reach the cluster is missing or not valid; the message names the file and the field."""


class KubeError(CotenantError):
    """The API server rejected the call, failed or did not answer."""

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
        """Whether the write may have been carried out, or may still be: read before you undo."""
        self.retry_after = retry_after
        """Seconds to wait before the next try, from the server's Retry-After."""


class NoCredential(KubeError):
    """The file or exec plugin in the kubeconfig gives no credential now; later it may."""

    said = "no credential"


class Unauthorized(KubeError):
    said = "not authenticated"


class Forbidden(KubeError):
    said = "not allowed"


class NotFound(KubeError):
    said = "not found"


class Conflict(KubeError):
    """The object's uid or resourceVersion is not the expected one: it was changed or replaced."""

    said = "conflict"


class AlreadyExists(Conflict):
    said = "already there"


class Gone(KubeError):
    """The requested resourceVersion is too old: list again."""

    said = "too old"


class Invalid(KubeError):
    """The server will never accept this request as it is."""

    said = "invalid"


class TooManyRequests(KubeError):
    said = "overloaded"


class ServerFailed(KubeError):
    said = "server failed"


class Unreachable(KubeError):
    said = "no answer"


class Untrusted(Unreachable):
    """The server's certificate cannot be verified with the kubeconfig's authority; a retry does not help."""

    said = "not trusted"


class ProxyDenied(Unreachable):
    """The proxy refuses to connect us, for example because of a wrong password; a retry does not help."""


class Silent(Unreachable):
    """A watch has received nothing for so long that its connection may be dead; or nothing has changed."""

    said = "silent"


class Undecodable(KubeError):
    """The response does not have the form that this API version defines."""

    said = "not understood"


class TooLong(Undecodable):
    """The response is longer than the caller reads. It was not read to its end."""


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
    """meta/v1 Status: an API server's description of a failure."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


def failure(asked: str, status: Status, retry_after: float | None = None) -> KubeError:
    """Makes the error for a Status. `asked` describes the call for people: `get pods web/front`."""
    kind = _BY_CODE.get(status.code, ServerFailed if status.code >= 500 else KubeError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    elif status.reason == "Expired":
        kind = Gone
    elif kind is Invalid and status.details and any(c.field == "metadata.uid" for c in status.details.causes):
        kind = Conflict  # what servers reply when a patch guarded by uid meets another object
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
    """Makes the error for an HTTP response. Its body is a Status, unless a proxy or the authentication filter
    wrote it.
    """
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        text = body[:200].decode("utf-8", "replace").strip()
        status = Status(message=" ".join(text.split()))
    seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
    return failure(asked, msgspec.structs.replace(status, code=code), seconds)
