"""What each command of the web process does: made into a stimulus, answered by the machine."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gridaware.control.instructions import Answer
from gridaware.control.loop import Loop, SteadyClock
from gridaware.control.preview import preview
from gridaware.control.requests import feed_spec_of, job_spec_of
from gridaware.control.site import ADMIN_FEED
from gridaware.control.stimuli import (
    EventCommanded,
    FeedAdded,
    FeedRemoved,
    FleetReleased,
    InputRefused,
    JobCommanded,
    JobSubmitted,
    NodeCommanded,
    SignalReceived,
    Stimulus,
)
from gridaware.domain.errors import GridawareError, InvalidInput, NotFound, Refused
from gridaware.domain.eventjson import event_from_mapping, event_to_json
from gridaware.domain.signal import Signal
from gridaware.feeds import check_settings
from gridaware.feeds.kind import Hears, Hooks, Listens, Polls
from gridaware.feeds.runner import FeedRunner
from gridaware.jobs.ray_runner import RayRunner
from gridaware.store.controller import ControllerStore
from gridaware.wiring.catalogue import check_exclusive
from gridaware.wiring.commands import Handler
from gridaware.wiring.effects import ControlEffects

__all__ = ["Handlers", "refusal_of"]

_NOT_FOUND = {"event-unknown", "job-unknown", "feed-unknown", "node-unknown"}
_INVALID = {"job-too-large", "event-over", "job-verb-unknown"}


def refusal_of(answer: Answer) -> GridawareError:
    """The error that a refusing answer stands for."""
    kind: type[GridawareError] = Refused
    if answer.code in _NOT_FOUND:
        kind = NotFound
    elif answer.code in _INVALID:
        kind = InvalidInput
    return kind(answer.code, answer.message, subject=answer.subject)


class Handlers:
    """Every command by its name."""

    def __init__(
        self,
        loop: Loop,
        store: ControllerStore,
        feeds: FeedRunner,
        runner: RayRunner,
        steady: SteadyClock,
        effects: ControlEffects,
    ) -> None:
        self._loop = loop
        self._store = store
        self._feeds = feeds
        self._runner = runner
        self._steady = steady
        self._effects = effects
        self._answered: GridawareError | None = None
        """The machine's own last refusal: that one is in the ledger already."""

    def by_name(self) -> dict[str, Handler]:
        """(args, actor) → result, by the command's name."""
        handlers: dict[str, Handler] = {
            "ping": self._ping,
            "controller.start": self._controller_start,
            "input.refused": self._input_refused,
            "feed.add": self._feed_add,
            "feed.remove": self._feed_remove,
            "feed.test": self._feed_test,
            "feed.advisories": self._feed_advisories,
            "event.send": self._event_send,
            "event.preview": self._event_preview,
            "job.submit": self._job_submit,
            "job.logs": self._job_logs,
            "fleet.release": self._fleet_release,
        }
        for verb in ("cancel", "opt_out"):
            handlers[f"event.{verb}"] = self._event_verb(verb)
        for verb in ("pause", "resume", "hold", "release", "stop"):
            handlers[f"job.{verb}"] = self._job_verb(verb)
        for verb in ("cordon", "uncordon"):
            handlers[f"node.{verb}"] = self._node_verb(verb)
        return {name: self._ledgering(name, handler) for name, handler in handlers.items()}

    def registered_at(self, feed_id: str) -> datetime:
        """When a feed was registered first: relative times of its signals count from there."""
        return self._loop.machine.state.registered.get(feed_id, self._steady.now().wall)

    def _ledgering(self, name: str, handler: Handler) -> Handler:
        """The same, with every refusal in the ledger: nothing that was asked is lost."""

        async def carry_out(args: Mapping[str, Any], actor: str) -> dict[str, Any]:
            try:
                return await handler(args, actor)
            except GridawareError as error:
                if not error.retryable and error is not self._answered:
                    raw = json.dumps(args, default=str)[:4096]
                    self._loop.post(InputRefused(f"{name}:{actor}", error.code, str(error), raw))
                raise

        return carry_out

    async def _tell(self, stimulus: Stimulus) -> dict[str, Any]:
        """Post a stimulus; its answer once it is durable."""
        made = self._loop.post(stimulus)
        self._effects.write_waiting()  # what people read is on the disk with the answer
        await self._store.ledger.durable(self._loop.last_seq)
        answer = next(i for i in made if isinstance(i, Answer))
        if answer.disposition == "refused":
            self._answered = refusal_of(answer)
            raise self._answered
        return {
            "id": answer.subject,
            "disposition": answer.disposition,
            "message": answer.message or None,
        }

    async def _ping(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        del args, actor
        state = self._loop.machine.state
        return {
            "controller_epoch": state.controller_epoch,
            "tick_lag_seconds": round(self._loop.tick_lag_seconds, 4),
            "ledger_seq": self._loop.last_seq,
        }

    async def _controller_start(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        """A second controller was started on this store, and says so with its refusal."""
        del actor
        raise Refused("store-locked", f"a second controller (pid {args.get('pid')}) was started")

    async def _input_refused(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        """The web process has refused a request before it could become a command."""
        code, message, door = (_text(args, key, 1000) for key in ("code", "message", "door"))
        raw = str(args.get("raw", ""))[:4096]
        self._loop.post(InputRefused(f"{door}:{actor}", code, message, raw))
        return {}

    async def _feed_add(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        spec = feed_spec_of(args)
        if spec.feed_id == ADMIN_FEED:
            raise InvalidInput("feed-id-reserved", f"{ADMIN_FEED!r} names events sent by people")
        self._check_programme(spec.programme_id)
        check_settings(spec.kind, spec.settings_json)
        await asyncio.to_thread(check_exclusive, self._served(spec.programme_id))
        known = self._loop.machine.state.feeds.get(spec.feed_id)
        if known is not None and known != spec:
            raise Refused("feed-exists", f"there is a feed {spec.feed_id!r} with other settings")
        if known is None:
            self._feeds.add(spec, self._steady.now().wall)
        return await self._tell(FeedAdded(spec, actor))

    def _check_programme(self, programme_id: str) -> None:
        """A site without programmes has plain ones of any name; a mistyped one is no contract."""
        site = self._loop.machine.state.site
        declared = [p.programme_id for p in site.programmes_at(self._steady.now().wall)]
        if declared and programme_id not in declared:
            known = ", ".join(declared)
            raise NotFound(
                "programme-unknown", f"there is no programme {programme_id!r}; known: {known}"
            )

    def _served(self, programme_id: str) -> list[str]:
        """Ids under which the catalogue may know what the site serves, one programme more."""
        state = self._loop.machine.state
        entry_of = {p.programme_id: p.catalogue for p in state.site.programmes if p.catalogue}
        spoken_for = [spec.programme_id for spec in state.feeds.values()]
        declared = [p.programme_id for p in state.site.programmes]
        return [entry_of.get(name, name) for name in (programme_id, *declared, *spoken_for)]

    async def _feed_remove(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        feed_id = _text(args, "feed_id")
        result = await self._tell(FeedRemoved(feed_id, actor))
        self._feeds.remove(feed_id, forget=True)
        return result

    async def _feed_test(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        del actor
        running = self._feeds.get(_text(args, "feed_id"))
        feed, heard = running.feed, list[Signal]()
        if isinstance(feed, Polls):
            heard = list(await asyncio.to_thread(feed.poll))
        elif isinstance(feed, Listens):
            heard = list(feed.standing())
        now = self._steady.now()
        return {
            "feed_id": running.spec.feed_id,
            "kind": running.spec.kind,
            "hears_pushes": isinstance(feed, (Hears, Hooks)),
            "health": running.health.now(),
            "signals": [
                {
                    "event": event_to_json(signal),
                    "preview": preview(self._loop.machine, signal, now),
                }
                for signal in heard[:20]
            ],
            "signals_heard": len(heard),
            "advisories": len(running.advisories()),
        }

    async def _feed_advisories(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        """What a feed heard that only informs, the newest first."""
        del actor
        running = self._feeds.get(_text(args, "feed_id"))
        newest = sorted(running.advisories(), key=lambda a: (a.start, a.quantity), reverse=True)
        return {"feed_id": running.spec.feed_id, "advisories": newest}

    def _signal(self, args: Mapping[str, Any]) -> Signal:
        now = self._steady.now()
        return event_from_mapping(
            args,
            feed_id=ADMIN_FEED,
            received_at=now.wall,
            received_seconds=now.seconds,
            raw=json.dumps(args, sort_keys=True),
        )

    async def _event_send(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        del actor
        return await self._tell(SignalReceived(self._signal(args)))

    async def _event_preview(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        del actor
        return preview(self._loop.machine, self._signal(args), self._steady.now())

    def _event_verb(self, verb: str) -> Handler:
        async def command(args: Mapping[str, Any], actor: str) -> dict[str, Any]:
            event_id = _text(args, "event_id")
            who = f"{actor}: {args['reason']}" if args.get("reason") else actor
            return await self._tell(EventCommanded(event_id, verb, who[:500]))

        return command

    async def _job_submit(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        return await self._tell(JobSubmitted(job_spec_of(args), actor))

    async def _job_logs(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        del actor
        job_id = _text(args, "job_id")
        track = self._loop.machine.state.jobs.get(job_id)
        if track is None:
            raise NotFound("job-unknown", f"no job is called {job_id!r}")
        attempts = range(1, track.job.attempt + 1)
        logs = await asyncio.to_thread(self._runner.logs_of_attempts, job_id, attempts)
        return {"job_id": job_id, "attempts": track.job.attempt, "logs": logs}

    def _job_verb(self, verb: str) -> Handler:
        async def command(args: Mapping[str, Any], actor: str) -> dict[str, Any]:
            return await self._tell(JobCommanded(_text(args, "job_id"), verb, actor))

        return command

    def _node_verb(self, verb: str) -> Handler:
        async def command(args: Mapping[str, Any], actor: str) -> dict[str, Any]:
            return await self._tell(NodeCommanded(_text(args, "node_id"), verb, actor))

        return command

    async def _fleet_release(self, args: Mapping[str, Any], actor: str) -> dict[str, Any]:
        """Opt out of every acting event, and give all limits back: by the ramp, or at once."""
        events = self._loop.machine.state.events.values()
        acting = [t.event.event_id for t in events if t.event.state.acting]
        at_once = args.get("at_once") is True
        if (acting or at_once) and args.get("confirm") != "opt out":
            haste = " faster than the ramp allows" if at_once else ""
            raise Refused(
                "release-unconfirmed",
                f"a release{haste} opts out of the {len(acting)} events that act",
                events=len(acting),
            )
        reason = _text(args, "reason") if args.get("reason") else ""
        await self._tell(FleetReleased(actor, reason, at_once))
        return {"opted_out": acting, "at_once": at_once}


def _text(args: Mapping[str, Any], key: str, at_most: int = 200) -> str:
    value = args.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= at_most:
        raise InvalidInput("command-field", f"{key} must be a text of 1 to {at_most} characters")
    return value
