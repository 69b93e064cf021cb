"""The output of `tidemill up` and `tidemill server`: one line for each event, for people, or as JSON for programs.

Events of roles come by the methods of `Narrator`. Warnings, errors and requests of any room come by Python's logging.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final

from tidemill.alerts.alerts import AlertEvent
from tidemill.alerts.outbox import DueDelivery
from tidemill.alerts.subscribers import is_about_subscriber
from tidemill.alerts.targets import Target
from tidemill.durations import format_duration
from tidemill.epoch import show_time
from tidemill.json_specs import read_text
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.discovery import Discovered
from tidemill.lake.inbox.inbox import Inbox
from tidemill.run.processes.monitoring import Followed
from tidemill.run.processes.runner import RunEvent, RunEventKind
from tidemill.run.records.runs import Cause, RunState
from tidemill.schedule.checker import Launch
from tidemill.sizes import format_bytes
from tidemill.world import World

_MOST_NAMED: Final = 3


class Narrator:
    """Prints the events of all roles of a process as whole lines, in the order of their reports."""

    def __init__(self, world: World, echo: Callable[[str], None], *, as_json: bool) -> None:
        self._world = world
        self._echo = echo
        self._as_json = as_json
        self._lock = Lock()
        self._ignored: dict[str, str] = {}

    def tell(self, event: str, subject: str, text: str, **fields: object) -> None:
        """Print one event: `text` for people, the rest for programs."""
        now = self._world.clock.now()
        if self._as_json:
            line = json.dumps({"at": show_time(now), "event": event, "subject": subject, **fields})
        else:
            line = f"{_short_time(now)} {event:<7} {subject}   {text}".rstrip()
        # A full disk or a reader that has gone takes the line, and ends no role.
        with self._lock, suppress(OSError):
            self._echo(line)

    def discovered(self, inbox: Inbox, found: Discovered) -> None:
        """New files of an inbox, and what is left out there and has not been named yet; hidden files never are."""
        ignored = {
            name: pattern
            for name, pattern in found.ignored
            if not name.rpartition("/")[2].startswith(".") and self._ignored.get(name) != pattern
        } | {one.name: one.why for one in found.unusable if self._ignored.get(one.name) != one.why}
        self._ignored = {**self._ignored, **ignored}
        if (warning := found.warning(inbox)) is not None:
            late = found.longest // timedelta(milliseconds=1)
            self.tell("late", inbox.dataset.name, warning, missed=found.missed, late_ms=late)
        for folder, count in found.away:
            kept = format_duration(inbox.spec.forget_after)
            text = f"folder {folder} is away: its {_count(count, 'file')} stay known for {kept}"
            self.tell("away", inbox.dataset.name, text, folder=folder, files=count)
        if not found.new and not ignored:
            return
        size = sum(file.bytes for file in found.new)
        parts = [f"+{_count(len(found.new), 'file')} {format_bytes(size)}"] if found.new else []
        if ignored:
            parts.append("ignored " + _some([f"{name} ({pattern})" for name, pattern in ignored.items()]))
        names = [file.name for file in found.new]
        self.tell("inbox", inbox.dataset.name, "   ".join(parts), files=names, bytes=size, ignored=ignored)

    def followed(self, table: Fileset, found: Followed) -> None:
        """Changed partitions of a monitored table, and directories that are refused and have not been named yet."""
        subject = table.dataset.name
        now_refused = {f"{subject} {one.directory}": one.why for one in found.refused}
        refused = {name: why for name, why in now_refused.items() if self._ignored.get(name) != why}
        self._ignored = {**self._ignored, **refused}
        counts = {"added": found.added, "changed": found.changed, "dropped": found.dropped, "complete": found.complete}
        parts = [f"{number} {word}" for word, number in counts.items() if number]
        if found.rows:
            parts.append(_count(found.rows, "row"))
        if refused:
            parts.append("refused " + _some([f"{name.partition(' ')[2]} ({why})" for name, why in refused.items()]))
        if parts:
            self.tell("table", subject, "   ".join(parts), **counts, rows=found.rows, refused=refused)

    def launched(self, launch: Launch) -> None:
        """A job that has become a run."""
        text = f"{launch.why}   -> {launch.run_id}"
        ids = {"schedule": launch.schedule, "job_id": launch.job_id, "run_id": launch.run_id}
        self.tell("job", launch.schedule, text, **ids, why=launch.why)

    def ran(self, event: RunEvent) -> None:
        """An attempt that waits for a driver, was started, or is over."""
        run, program = event.run, event.program
        subject = run.run_id
        ids = {"run_id": run.run_id, "job_id": run.job_id, "schedule": run.triggered_by.get("schedule")}
        known = {name: value for name, value in ids.items() if value is not None}

        def tell(word: str, about: str, text: str, **fields: object) -> None:
            self.tell(word, about, text, **{**known, **fields})

        if event.kind is RunEventKind.STARTED:
            text = f"{program.app}.{program.name}   attempt {run.epoch}"
            tell("start", subject, text, program=program.qualified_name, attempt=run.epoch)
        elif event.kind is RunEventKind.WAITING:
            text = f"{program.app}.{program.name}   {event.detail}"
            tell("waits", subject, text, program=program.qualified_name, why=event.detail)
            return
        elif run.state is RunState.COMPLETED and not run.facts.get("outputs"):
            reason = run.exit_reason or ""
            text = f"{program.app}.{program.name}   {reason}".rstrip()
            tell("done", subject, text, program=program.qualified_name, reason=reason)
        elif run.state is RunState.COMPLETED:
            tell("commit", subject, _committed(event), program=program.qualified_name, facts=dict(run.facts))
        elif run.exit_cause in {Cause.UNLOADED, Cause.LACKING} and run.state is RunState.PENDING:
            wanted = "can load its code" if run.exit_cause is Cause.UNLOADED else "has the Spark that it needs"
            why = f"until a node {wanted}: {run.exit_reason}"
            text = f"{program.app}.{program.name}   {why}"
            tell("waits", subject, text, program=program.qualified_name, why=why)
        else:
            again = ""
            if run.state is RunState.PENDING:
                at = run.not_before
                again = "   will be tried again" if at is None else f"   next try {_short_time(at)}"
            text = f"{program.app}.{program.name}   {run.state}: {run.exit_reason or ''}{again}"
            fields = {"state": run.state, "reason": run.exit_reason, "attempt": run.epoch}
            text += "" if again else f"   (tidemill why {subject})"
            tell("retry" if again else "failed", subject, text, program=program.qualified_name, **fields)
        for file in _listed(run.facts, "files"):
            text = (
                f"{file.get('status')}: {file.get('error') or ''}   (tidemill why {shlex.quote(str(file.get('name')))})"
            )
            tell("file", str(file.get("name")), text, **file)

    def alerted(self, one: AlertEvent) -> None:
        """An alert that was opened or resolved."""
        alert = one.alert
        text = f"{one.event}: {alert.why}   (tidemill alert show {alert.alert_id})"
        known = {"alert_id": alert.alert_id, "about": alert.subject, "change": one.event, "why": alert.why}
        self.tell("alert", alert.rule, text, **known)

    def gave_up(self, delivery: DueDelivery, error: str) -> None:
        """A delivery that has failed for good: a notice of an alert, or a message that a subscriber has given up."""
        target = str(read_text(Target, delivery.target))
        text = f"{target} was not notified ({delivery.event}): {error}   (tidemill alert retry {delivery.delivery_id})"
        known = {"delivery_id": delivery.delivery_id, "change": "dead", "target": target, "error": error}
        if is_about_subscriber(delivery.about):
            self.tell("alert", delivery.about, text, **known)
        else:
            rule = str(json.loads(delivery.body)["data"]["rule"])
            self.tell("alert", rule, text, alert_id=delivery.about, **known)


EVENT: Final = "event"
"""The attribute of a log record that is an event: its word. `subject` and `fields` stand beside it."""


@contextmanager
def log_to(narrator: Narrator, *, as_json: bool) -> Iterator[None]:
    """Have a narrator print what the rooms of Tidemill log, in a block.

    For people, warnings and errors go to standard error, as they do without this.
    """
    logger = logging.getLogger("tidemill")
    lines, level = _LogLines(narrator, as_json=as_json), logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(lines)


class _LogLines(logging.Handler):
    def __init__(self, narrator: Narrator, *, as_json: bool) -> None:
        super().__init__()
        self._narrator = narrator
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        fields = dict(getattr(record, "fields", {}))
        event = getattr(record, EVENT, "")
        if record.levelno >= logging.WARNING and not self._as_json:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        if record.levelno < logging.WARNING and not event:
            return
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        subject = getattr(record, "subject", record.name)
        text = record.getMessage()
        self._narrator.tell(event or record.levelname.lower(), subject, text, message=text, **fields)


def _short_time(moment: datetime) -> str:
    """Return the time of the day in UTC, as tables and logs have it."""
    return f"{moment.astimezone(UTC):%H:%M:%SZ}"


def _committed(event: RunEvent) -> str:
    run, facts = event.run, event.run.facts
    inputs = [_input(fact) for fact in _listed(facts, "inputs") if fact.get("count")]
    outputs = [_output(fact) for fact in _listed(facts, "outputs")]
    seconds = facts.get("seconds")
    took = f"{seconds if isinstance(seconds, int | float) else 0:.1f} s"
    return "   ".join([f"tx {run.write_pointer}", ", ".join(inputs), ", ".join(outputs), took])


def _input(fact: Mapping[str, object]) -> str:
    counted = f"{_count(_number(fact.get('count')), str(fact.get('of')))} of {_short(fact)}"
    rows = fact.get("rows")
    return counted if rows is None else f"{counted}, {_count(_number(rows), 'row')}"


def _output(fact: Mapping[str, object]) -> str:
    return f"{_short(fact)}[{_some(_texts(fact.get('partitions')))}] {_count(_number(fact.get('rows')), 'row')}"


def _short(fact: Mapping[str, object]) -> str:
    return str(fact.get("dataset", "")).rpartition(".")[2]


def _listed(facts: Mapping[str, object], name: str) -> Sequence[dict[str, object]]:
    listed = facts.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _texts(value: object) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
