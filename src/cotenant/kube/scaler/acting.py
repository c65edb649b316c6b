"""Carries out what was decided about a GpuScaler: its status first, then the target's scale, then events.

A leader that is killed in between has at worst announced what the next one decides again. What cannot be
written is not carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cotenant.core.errors import CotenantError
from cotenant.core.refusal import ordinal
from cotenant.core.scaling import Decision, State
from cotenant.core.units import format_duration
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.patches import Guard
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.scaler.by_hand import ByHand
from cotenant.kube.scaler.considered import Considered
from cotenant.kube.scaler.demand import WaitingLine
from cotenant.kube.scaler.release import tell_pods
from cotenant.kube.scaler.removal import costs, write_costs
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.scaler.scaled import Scaled
from cotenant.kube.scaler.status import Shown, shows, status_json
from cotenant.kube.scaler.targets import ScaleChanged, Targets

log = get_logger(__name__)

WITHIN = 4.0
"""Seconds for one write; the lease must hold at least as long when it is sent."""
_SOONEST, _LATEST = 10.0, 40.0
"""Seconds between two writes that only inform; the more scalers, the longer."""
_PER_SECOND = 25.0
"""Writes a second that only inform, of all scalers."""
_IDLE_PART, _IDLE_MOST = 0.05, 60.0
"""Idleness is then written once it has lasted for this part of the threshold, at most so many seconds."""
_OLD = 2.0
"""Polls. Nothing is taken away by older figures."""
_CALM = 300.0
"""Seconds after which work that came back no longer delays the next write."""


async def _unseen(_: Considered) -> bool:
    return True


@dataclass
class Acting:
    client: Client
    targets: Targets
    line: WaitingLine
    recorder: EventRecorder
    must_lead: Callable[[float], None]
    """Raises unless no other server can lead for this many seconds."""
    clock: Callable[[], float]
    """Unix time that does not jump."""
    scalers: Callable[[], int] = lambda: 1
    """How many GpuScalers there are."""
    still_idle: Callable[[Considered], Awaitable[bool]] = field(default=_unseen)
    """Looks once more at a workload that is about to be released."""

    async def carry_out(self, each: Considered, now: float) -> None:
        """Writes what was decided, then scales."""
        one, found, decision = each.one, each.found, each.decision
        acts = one.spec is not None and one.spec.mode == "act"
        desired = decision.replicas
        by_hand = self._by_hand(each, now) if acts else ""
        if one.by_hand is not None:
            desired = found.replicas
        one.decided(decision)
        one.expected = found.replicas
        if acts and desired != found.replicas:
            one.sent = found.replicas, desired, now
        shown = Shown(
            one.scaler.metadata.generation,
            found.replicas,
            desired,
            min(len(each.replicas.ready), found.replicas),
            decision.backlog_seconds,
            decision.state,
            self._message(each, by_hand),
            signal=each.failed,
            differs=each.differs,
            by_hand=by_hand,
            acts=acts,
            idle=_is_idle(one, decision, now),
        )
        if not await self._write(one, shown, now):
            one.sent = None
            return
        if one.sent is not None:
            await self._scale(each, desired, shown.message)

    def _by_hand(self, each: Considered, now: float) -> str:
        """Notices that somebody has scaled the target, and says so while that is respected."""
        one, found = each.one, each.found
        if one.expected is not None and found.replicas != one.expected:
            one.by_hand = ByHand.seen(found.replicas, now, each.decision, each.sample)
            text = f"somebody scaled it from {one.expected} to {found.replicas}"
            log.info("scaled by hand", **_keys(one), before=one.expected, replicas=found.replicas)
            self.recorder.record(one.scaler, "ScaledByHand", text, GPU_SCALERS, normal=True, each=True)
        if one.by_hand is not None and not one.by_hand.holds(each.decision, each.sample, now):
            one.by_hand = None
        if one.by_hand is None:
            return ""
        return f"scaled by hand to {found.replicas} replicas: respected until the load changes"

    def _message(self, each: Considered, by_hand: str) -> str:
        text = each.decision.reason
        failed = each.failed
        if failed is not None and each.held is None:
            text = f"{text}: {failed[1]}"
        if each.decision.state in (State.WAITING_FOR_GPU, State.WAKING) and each.replicas.waiting:
            places = [self.line.place_of(replica.uid) for replica in each.replicas.waiting]
            place = min((place for place in places if place is not None), default=None)
            if place is not None:
                text = f"{text}; {ordinal(place)} in line"
        if each.wanted_by is not None and each.decision.replicas < each.found.replicas:
            meta = each.wanted_by.metadata
            text = f"{text}; pod {meta.namespace}/{meta.name} waits in line and can then start"
        return f"{by_hand}; {text}" if by_hand else text

    async def _scale(self, each: Considered, replicas: int, message: str) -> None:
        one, found = each.one, each.found
        before = found.replicas
        try:
            if replicas < before and found.removes_by_cost:
                changes = costs(each.replicas, len(each.replicas.all) - replicas)
                if changes:
                    self.must_lead(WITHIN)
                    await write_costs(self.client, each.replicas, changes)
            if replicas < before and (self._is_old(each) or not await self._still_idle(each)):
                one.sent = None  # work may have come meanwhile: it is decided again in the next round
                return
            await self.targets.scale(found, replicas)
        except (ScaleChanged, Conflict):
            one.sent = None  # what is true now is looked at in the next round
            return
        except NotFound:
            one.sent = None
            return
        except CotenantError as error:
            log.warning("target not scaled", **_keys(one), replicas=replicas, error=error)
            if not (isinstance(error, KubeError) and error.uncertain):
                one.sent = None
            text = f"cannot scale from {before} to {replicas}: {error}"
            self.recorder.record(one.scaler, "ScaleFailed", text, GPU_SCALERS)
            return
        one.scaled_at = self.clock()
        log.info("target scaled", **_keys(one), before=before, replicas=replicas)
        self._tell(each, before, replicas, message)

    async def _still_idle(self, each: Considered) -> bool:
        return each.decision.state is not State.IDLE or await self.still_idle(each)

    def _is_old(self, each: Considered) -> bool:
        """Whether the figures were read so long ago that nothing is taken away by them: writes take time
        where the API server is slow, or many come at once.
        """
        read = each.sample.at
        return read is not None and self.clock() - read > _OLD * each.policy.poll

    def _tell(self, each: Considered, before: int, replicas: int, message: str) -> None:
        reason = "ScaledUp" if replicas > before else "ScaledDown"
        if each.decision.state is State.IDLE and replicas < before:
            reason = "Released"
            idle = format_duration(round(each.decision.idle_for))
            meta = each.one.scaler.metadata
            what = f"{each.found.resource.kind} {meta.namespace}/{each.found.name}"
            tell_pods(self.recorder, what, each.replicas, idle, each.wanted_by)
        text = f"scaled from {before} to {replicas}: {message}"
        self.recorder.record(each.one.scaler, reason, text, GPU_SCALERS, normal=True, each=True)

    async def cannot(self, one: Scaled, reason: str, why: str, replicas: int | None = None) -> None:
        """Says why nothing can be decided. What is remembered stays."""
        now = self.clock()
        shown = Shown(
            one.scaler.metadata.generation,
            replicas,
            replicas,
            0,
            None,
            "",
            why,
            trouble=(reason, why),
            idle=not one.was_busy if one.restored else one.written is not None and one.written.idle,
        )
        news = one.written is None or one.written.trouble != shown.trouble
        if await self._write(one, shown, now) and news:
            self.recorder.record(one.scaler, reason, why, GPU_SCALERS, each=True)

    async def _write(self, one: Scaled, shown: Shown, now: float) -> bool:
        """Writes the status if that is due; reports whether what was decided may be carried out."""
        one.shown = shown
        return not self._is_due(one, shown, now) or await self._put(one, shown, now)

    async def _put(self, one: Scaled, shown: Shown, now: float) -> bool:
        meta = one.scaler.metadata
        body = {"status": status_json(shown, one.scaler, one.to_json(idle=shown.idle), now)}
        try:
            self.must_lead(WITHIN)
            written = await self.client.merge_patch(
                GPU_SCALERS,
                meta.name,
                body,
                meta.namespace,
                guard=Guard(meta.uid, one.version),
                subresource="status",
                retry=False,
                within=WITHIN,
            )
        except (NotFound, Conflict):
            return False  # it was edited or deleted: the watch reports that
        except CotenantError as error:
            log.warning("status not written", **_keys(one), error=error)
            return False
        if one.written is not None and one.written.idle and not shown.idle:
            one.resumed = now
        one.take(written)
        one.written, one.written_at = shown, now
        return True

    def _is_due(self, one: Scaled, shown: Shown, now: float) -> bool:
        if one.sent is not None:
            return True
        if one.written is None and shows(one.scaler, shown):
            one.written, one.written_at = shown, now
        if one.written is None or one.written.essence != shown.essence:
            return True
        pause = min(_LATEST, max(_SOONEST, self.scalers() / _PER_SECOND))
        return not shown.idle and shown != one.written and now - one.written_at >= pause

    async def flush(self, one: Scaled) -> None:
        """Writes what was learned since the last write, at the end of a term."""
        shown = one.written
        if shown is None or shown.idle or shown.trouble is not None:
            return
        await self._put(one, shown, self.clock())


def _is_idle(one: Scaled, decision: Decision, now: float) -> bool:
    """Reports whether idleness is worth a write: at once, but if work came back soon after the last time,
    only once it has lasted for a part of the threshold.
    """
    if decision.idle_threshold is None or decision.idle_for <= 0:
        return False
    idle = now - one.resumed >= _CALM or decision.idle_for > min(
        _IDLE_MOST, _IDLE_PART * decision.idle_threshold
    )
    if one.written is not None and one.written.idle and not idle:
        return True  # that is written already
    return idle


def _keys(one: Scaled) -> dict[str, str]:
    return {"namespace": one.scaler.metadata.namespace, "name": one.scaler.metadata.name}
