"""Pages of lists: one declaration each, of an operation, its columns and its filters. The URL holds what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.alerts.subscribers import Kind, State
from tidemill.json_specs import list_tags
from tidemill.lake.datasets import DatasetKind
from tidemill.mill.mill import Mill
from tidemill.mill.nodes import NodeView
from tidemill.mill.page import Page
from tidemill.mill.topics import TopicKind
from tidemill.run.records.nodes import NodeState
from tidemill.run.records.runs import RunState
from tidemill.schedule.backfill_records import BackfillState
from tidemill.schedule.jobs import JobState
from tidemill.schedule.specs import Status
from tidemill.schedule.triggers import Trigger
from tidemill.server.pages.columns import (
    BYTES,
    COMMITTED,
    CONSUMER,
    ERROR,
    FILES,
    PARTITION,
    PROGRAM,
    ROWS,
    RUN,
    STATE,
    WHY,
    Column,
)
from tidemill.server.pages.data_view import command_of, query
from tidemill.server.pages.render import link, may_visit, plain, render
from tidemill.server.pages.start_page import PLAN, START
from tidemill.server.pages.thing import Action, allowed

NOTHING_FITS: Final = "nothing fits; show all, or filter by something else"
"""Text of a table that is empty because of its filters."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of the operation: its name, its label, and its values where these are few."""

    name: str
    label: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page that shows what a list operation returns."""

    path: str
    title: str
    find: Callable[..., Page[Any]]
    columns: tuple[Column, ...]
    command: str
    empty: str
    filters: tuple[Filter, ...] = ()
    action: str = ""
    """The operation that the page shows; that of the command if empty."""
    order: str = ""
    """The order of the rows, in words."""
    links: tuple[tuple[str, str], ...] = ()
    """Pages that make a thing of the list, each with its label."""
    act: Callable[[Any], Iterable[Action]] | None = None
    """The actions on a row; None for a list without."""

    @property
    def operation(self) -> str:
        """The operation that the page shows."""
        return self.action or ".".join(self.command.split()[:2])

    def show(self, request: Request) -> HTMLResponse:
        """Return the page that the URL describes."""
        mill: Mill = request.state.mill
        given = request.query_params
        asked = {one.name: given[one.name] for one in self.filters if given.get(one.name)}
        after = given.get("after", "")
        page = self.find(mill, after=after, **asked)
        options = asked | ({"after": after} if after else {})
        return render(
            request,
            "list.html",
            title=self.title,
            sub=self.order,
            links=[(label, path) for label, path in self.links if may_visit(request, path)],
            rows=[{**plain(row), "actions": allowed(request, self.act(row)) if self.act else ()} for row in page],
            columns=self.columns,
            acts=self.act is not None,
            filters=[(one, asked.get(one.name, "")) for one in self.filters],
            filtered=bool(asked or after),
            empty=NOTHING_FITS if asked else self.empty,
            next=query(**asked, after=page.next) if page.next else None,
            command=command_of(*self.command.split(), **options),
        )


def _act_on_node(node: NodeView) -> Iterator[Action]:
    if node.state is NodeState.WORKING:
        ask = f"{node.node_id} takes no more runs, and ends when its runs have ended. No other node starts by itself."
        yield Action(
            "Drain", f"{link('/v1/nodes', node.node_id)}:drain", ask, "the node drains", whole=True, danger=True
        )


_RUN: Final = Column("run_id", "Run", "name", "/runs/{run_id}")
RUN_COLUMNS: Final = (
    _RUN,
    PROGRAM,
    STATE,
    Column("epoch", "Attempt", "number"),
    Column("created_at", "Created", "time"),
    Column("ended_at", "Ended", "time"),
    WHY,
)
JOB_COLUMNS: Final = (
    Column("job_id", "Job", "name", "/jobs/{job_id}"),
    Column("schedule", "Schedule", "text", "/schedules/{schedule}"),
    STATE,
    Column("created_at", "Since", "time"),
    Column("next_check_at", "Looked at next", "time"),
    WHY,
)
CONSUMER_COLUMNS: Final = (
    CONSUMER,
    Column("dataset", "File set", "text", "/datasets/{dataset}"),
    Column("waiting", "Waiting", "number"),
    BYTES,
    Column("oldest_at", "Oldest", "time"),
    Column("in_progress", "In progress", "number"),
    Column("discarded", "Discarded", "number"),
)
PARTITION_COLUMNS: Final = (
    PARTITION,
    Column("op", "Change"),
    FILES,
    ROWS,
    BYTES,
    COMMITTED,
    RUN,
)
MESSAGE_COLUMNS: Final = (
    Column("position", "Position", "name"),
    Column("published_at", "Published", "time"),
    Column("event_type", "Type"),
    Column("event_key", "Key", "long"),
    Column("payload", "Payload", "code"),
)
_DATASET: Final = (
    Column("name", "Data set", "name", "/datasets/{name}"),
    Column("kind", "Kind"),
    Column("app", "App", "text", "/apps/{app}"),
    Column("partitions", "Partitions", "number"),
    FILES,
    ROWS,
    BYTES,
)
_PAGE: Final = 50


LISTS: Final[tuple[ListPage, ...]] = (
    ListPage(
        "/datasets",
        "Data sets",
        lambda mill, **asked: mill.datasets.list(limit=_PAGE, **asked),
        _DATASET,
        "dataset list",
        "no data sets yet; declare one in the app and `tidemill deploy`",
        (Filter("kind", "Kind", tuple(DatasetKind)), Filter("app", "App")),
    ),
    ListPage(
        "/inboxes",
        "Inboxes",
        lambda mill, **asked: mill.inboxes.list(limit=_PAGE, **asked),
        (Column("name", "Inbox", "name", "/inboxes/{name}"), *_DATASET[2:3], *_DATASET[4:5], *_DATASET[6:]),
        "inbox list",
        "no inboxes yet; declare one: app.inbox(…)",
        (Filter("app", "App"),),
    ),
    ListPage(
        "/consumers",
        "Consumers",
        lambda mill, **asked: mill.consumers.list(limit=_PAGE, **asked),
        CONSUMER_COLUMNS,
        "consumer list",
        "no consumers yet; a program that reads a file set has one",
        (Filter("dataset", "File set"), Filter("program", "Program")),
    ),
    ListPage(
        "/watermarks",
        "Watermarks",
        lambda mill, **asked: mill.watermarks.list(limit=_PAGE, **asked),
        (Column("dataset", "File set", "name", "/watermarks/{dataset}"), Column("watermark", "Complete up to")),
        "watermark list",
        "no watermarks yet; give a file set one: watermark=tm.Watermark(…)",
        (Filter("app", "App"), Filter("behind", "Behind by more than")),
    ),
    ListPage(
        "/schedules",
        "Schedules",
        lambda mill, **asked: mill.schedules.list(limit=_PAGE, **asked),
        (
            Column("name", "Schedule", "name", "/schedules/{name}"),
            Column("status", "State", "state"),
            PROGRAM,
            Column("trigger", "Trigger", "long"),
            Column("constraints", "Constraints", "long"),
            Column("next_fire_at", "Next", "time"),
        ),
        "schedule list",
        "no schedules yet; declare one in the app and `tidemill deploy`",
        (
            Filter("app", "App"),
            Filter("program", "Program"),
            Filter("trigger", "Trigger", tuple(list_tags(Trigger))),
            Filter("status", "State", tuple(one.lower() for one in Status)),
        ),
        order="by name",
    ),
    ListPage(
        "/jobs",
        "Jobs",
        lambda mill, **asked: mill.jobs.list(limit=_PAGE, **asked),
        JOB_COLUMNS,
        "job list",
        "no job waits; a schedule makes one when something feeds its trigger",
        (Filter("schedule", "Schedule"), Filter("state", "State", tuple(one.lower() for one in JobState))),
        order="about oldest first",
    ),
    ListPage(
        "/runs",
        "Runs",
        lambda mill, **asked: mill.runs.list(limit=_PAGE, **asked),
        RUN_COLUMNS,
        "run list",
        "no runs yet; `tidemill run start APP.PROGRAM` starts one",
        (
            Filter("program", "Program"),
            Filter("schedule", "Schedule"),
            Filter("state", "State", tuple(one.lower() for one in RunState)),
        ),
        order="newest first",
        links=(("Start a run", START),),
    ),
    ListPage(
        "/backfills",
        "Backfills",
        lambda mill, **asked: mill.backfills.list(limit=_PAGE, **asked),
        (
            Column("backfill_id", "Backfill", "name", "/backfills/{backfill_id}"),
            PROGRAM,
            STATE,
            Column("items", "Items", "number"),
            Column("done", "Done", "number"),
            Column("failed", "Failed", "number"),
            Column("running", "Running", "number"),
            Column("waiting", "Waiting", "number"),
            Column("created_at", "Started", "time"),
            Column("reason", "Why", "long"),
        ),
        "backfill list",
        "no backfills yet; `tidemill backfill plan APP.PROGRAM` plans one",
        (Filter("program", "Program"), Filter("state", "State", tuple(one.lower() for one in BackfillState))),
        order="newest first",
        links=(("Plan a backfill", PLAN),),
    ),
    ListPage(
        "/apps",
        "Apps",
        lambda mill, **asked: mill.apps.list(limit=_PAGE, **asked),
        (
            Column("name", "App", "name", "/apps/{name}"),
            Column("version", "Version", "number"),
            Column("deployed_at", "Deployed", "time"),
            Column("programs", "Programs", "long"),
        ),
        "app list",
        "no apps yet; `tidemill deploy`",
        (Filter("namespace", "Namespace"),),
    ),
    ListPage(
        "/topics",
        "Topics",
        lambda mill, **asked: mill.topics.list(limit=_PAGE, **asked),
        (
            Column("topic", "Topic", "name", "/topics/{topic}"),
            Column("newest", "Newest"),
            Column("newest_at", "Published", "time"),
            Column("subscribers", "Subscribers at", "long"),
            Column("outside", "Outside at", "long"),
            Column("quarantined", "Quarantined", "number"),
        ),
        "topic list",
        "no topics yet; a commit makes one, and so does `tidemill topic publish`",
        (Filter("kind", "Kind", tuple(TopicKind)), Filter("prefix", "Name begins with")),
    ),
    ListPage(
        "/subscribers",
        "Subscribers",
        lambda mill, **asked: mill.subscribers.list(limit=_PAGE, **asked),
        (
            Column("name", "Subscriber", "name"),
            Column("topic", "Topic", "text", "/topics/{topic}"),
            Column("to", "Receiver", "long"),
            STATE,
            Column("position", "Position"),
            Column("waiting", "Waiting", "number"),
            Column("oldest_at", "Oldest", "time"),
            Column("failures", "Failures", "number"),
            ERROR,
        ),
        "subscriber list",
        "no subscribers yet; `tidemill subscriber create NAME TOPIC` creates one",
        (Filter("topic", "Topic"), Filter("kind", "Kind", tuple(Kind)), Filter("state", "State", tuple(State))),
    ),
    ListPage(
        "/nodes",
        "Nodes",
        lambda mill, **asked: mill.nodes.list(limit=_PAGE, **asked),
        (
            Column("node_id", "Node", "name"),
            Column("host", "Machine"),
            Column("roles", "Roles", "long"),
            STATE,
            Column("slots", "Slots", "number"),
            Column("started_at", "Started", "time"),
            Column("seen_at", "Seen", "time"),
        ),
        "node list",
        "no node works; `tidemill up` starts one",
        order="by their starts",
        act=_act_on_node,
    ),
    ListPage(
        "/audit",
        "Audit",
        lambda mill, **asked: mill.audit.log(limit=_PAGE, **asked),
        (
            Column("at", "When", "time"),
            Column("actor", "Who", "text", "/audit?actor={actor}"),
            Column("action", "What"),
            Column("subject", "On", "name", "/audit?subject={subject}"),
            Column("detail", "Details", "code"),
        ),
        "audit log",
        "no changes yet; each deployment, start and kill is one",
        (Filter("subject", "Subject"), Filter("actor", "Actor")),
        order="newest first",
    ),
)
"""All pages of lists."""


def section(
    title: str, page: Iterable[Any], columns: tuple[Column, ...], empty: str, sub: str = ""
) -> Mapping[str, Any]:
    """Return a table within a page."""
    return {
        "title": title,
        "sub": sub,
        "rows": [plain(row) for row in page],
        "columns": columns,
        "empty": empty,
        "next": None,
        "acts": False,
    }
