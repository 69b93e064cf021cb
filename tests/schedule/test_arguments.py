"""Arguments that a schedule takes from what started the run (`tm.From`), on both databases."""

from __future__ import annotations

import json

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.epoch import from_ms, show_time

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int", "shop": "string"}, format="text")
users = app.fileset("users", keys={"hour": "int"}, format="text")


@app.python(reads=[clicks, users], arguments={"day": "never", "hour": 0, "share": 0.0, "dry": False})
def report(run):
    pass
"""
TRIGGER = tm.NewPartitions("clicks") | tm.Every("1h")


RUNS = """

@app.python(arguments={"region": "eu", "level": 3})
def load(run):
    pass


@app.python(arguments={"region": "", "level": "", "cause": ""})
def follow(run):
    pass
"""


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """The project, deployed, at the time of its clock."""
    monkeypatch.chdir(tmp_path)
    clock = ManualClock()
    with staged(tmp_path, catalog_url, APP, clock) as entered:
        entered.clock = clock
        yield entered


def create(stage, trigger=TRIGGER, **arguments):
    """Create a schedule of the program with these arguments."""
    return stage.mill.schedules.create("shop.report", "shop.report", trigger=trigger, arguments=arguments)


def arguments(stage):
    """Return the arguments of the newest run of the program."""
    stage.schedule()
    return stage.mill.runs.list(program="shop.report")[0].arguments


def test_an_argument_is_a_field_of_the_last_partition(stage):
    """A daily report gets its day, in the type of the argument."""
    create(stage, day=tm.From("clicks.partition.day"), hour=tm.From("default.clicks.partition.hour"))
    stage.publish("clicks", "day=2026-01-01/hour=4/shop=a", "day=2026-01-02/hour=5/shop=b")

    assert arguments(stage) == {"day": "2026-01-02", "hour": 5, "share": 0.0, "dry": False}


def test_text_with_spaces_and_quotes_comes_as_it_is(stage):
    """Messages show such a key in quotes."""
    create(stage, day=tm.From("clicks.partition.shop"))
    with stage.transaction("clicks") as tx:
        tx.fileset("default.clicks").append({"day=2026-01-01/hour=4/shop=a %22b%22 c": "x\n"})

    assert arguments(stage)["day"] == 'a "b" c'


def test_a_number_is_text_or_a_float_where_the_program_wants_that(stage):
    """`hour=5` is also the text 5."""
    create(stage, day=tm.From("clicks.partition.hour"), share=tm.From("clicks.partition.hour"))
    stage.publish("clicks", "day=2026-01-01/hour=5/shop=a")

    assert (arguments(stage)["day"], arguments(stage)["share"]) == ("5", 5.0)


def test_only_partitions_that_the_program_gets_are_sources(stage):
    """A message may announce partitions that the program's filter excludes."""
    stage.declare(
        APP.split("\n", 3)[3].replace("reads=[clicks, users]", "reads=[tm.Reads(clicks, where={'shop': 'a'})]")
    )
    create(stage, day=tm.From("clicks.partition.day"))
    stage.publish("clicks", "day=2026-01-01/hour=4/shop=a", "day=2026-01-02/hour=5/shop=b")

    assert arguments(stage)["day"] == "2026-01-01"


def test_the_logical_time_is_text_in_utc(stage):
    """A program names its output by it."""
    create(stage, tm.Every("1h"), day=tm.From("logical_time"))
    stage.clock.move("1h")

    given = arguments(stage)["day"]

    (run,) = stage.mill.runs.list(program="shop.report")
    assert given == show_time(from_ms(run.triggered_by["logical_time"]))


def test_a_missing_source_takes_its_default(stage):
    """The hour has passed without data; the default of the source goes before that of the program."""
    create(stage, day=tm.From("clicks.partition.day", default="none"))
    stage.clock.move("1h")

    assert arguments(stage)["day"] == "none"


def test_a_missing_source_without_default_ends_the_job_with_that_reason(stage):
    """A run with a wrong day is worse than none. What waits stays for the next run."""
    create(stage, day=tm.From("clicks.partition.day"))
    stage.clock.move("1h")
    stage.schedule()

    assert list(stage.mill.runs.list(program="shop.report")) == []
    (ended,) = stage.mill.jobs.history("shop.report")
    assert ended.outcome == "missing_source"
    assert "argument 'day' has no value: no partition of default.clicks fed the job" in ended.detail["why"]
    assert stage.mill.why(ended.job_id).because[0].code == "job_refused"


def test_a_job_without_its_source_is_not_forced(stage):
    """The error names the missing source, and the job stays."""
    create(stage, tm.Every("1h") & tm.NewPartitions("clicks"), day=tm.From("clicks.partition.day"))
    stage.clock.move("1h")
    stage.schedule()
    (job,) = stage.mill.jobs.list()

    with raises_code("bad_schedule", match="no partition of default.clicks fed the job"):
        stage.mill.jobs.force(job.job_id)

    assert [one.job_id for one in stage.mill.jobs.list()] == [job.job_id]


def follow(stage, trigger=None, **arguments):
    """Create a schedule that starts a program after another one, with these arguments."""
    stage.declare(APP.split("\n", 3)[3] + RUNS)
    trigger = trigger or tm.RunEnded("shop.load", ("COMPLETED", "KILLED"))
    return stage.mill.schedules.create("shop.follow", "shop.follow", trigger=trigger, arguments=arguments)


def test_arguments_come_from_the_last_run_that_triggered(stage):
    """A chain of programs for one region passes the region on."""
    follow(
        stage,
        region=tm.From("run.arguments.region"),
        level=tm.From("run.arguments.level"),
        cause=tm.From("run.run_id"),
    )
    stage.mill.runs.start("shop.load", {"region": "us"})
    stage.clock.move("1s")
    last = stage.mill.runs.start("shop.load", {"region": "asia"}).run_id
    stage.work()
    stage.schedule()

    (run,) = stage.mill.runs.list(program="shop.follow")

    assert run.arguments == {"region": "asia", "level": "3", "cause": last}


def test_state_and_program_of_the_run_are_sources(stage):
    """A report says how the other program ended."""
    follow(stage, region=tm.From("run.program"), cause=tm.From("run.state"))
    stage.mill.runs.kill(stage.mill.runs.start("shop.load").run_id)
    stage.schedule()

    (run,) = stage.mill.runs.list(program="shop.follow")

    assert (run.arguments["region"], run.arguments["cause"]) == ("default.shop.load", "KILLED")


def test_arguments_come_from_the_last_message_that_triggered(stage):
    """Also from below a field; what a message does not have is the default."""
    trigger = tm.MessageOn("orders", n=2)
    sources = {"region": "message.region", "level": "message.by.level"}
    given = {name: tm.From(path, default="none") for name, path in sources.items()}
    follow(stage, trigger, **given, cause=tm.From("message.nothing", default="none"))
    stage.mill.topics.publish("orders", {"region": "us"})
    stage.mill.topics.publish("orders", {"region": "asia", "by": {"level": 3}})
    stage.schedule()

    (run,) = stage.mill.runs.list(program="shop.follow")

    assert run.arguments == {"region": "asia", "level": "3", "cause": "none"}


@pytest.mark.parametrize(
    ("payload", "outcome", "why"),
    [({}, "missing_source", "no message with such a value fed the job"), ({"level": True}, "never", "level")],
)
def test_a_message_without_a_fitting_value_ends_the_job_with_the_reason(stage, payload, outcome, why):
    """Payloads of users are known only when they come."""
    follow(stage, tm.MessageOn("orders"), level=tm.From("message.level"))
    stage.mill.topics.publish("orders", payload)
    stage.schedule()

    (ended,) = stage.mill.jobs.history("shop.follow")

    assert ended.outcome == outcome
    assert why in ended.detail["why"]


def test_the_place_of_a_secret_goes_to_secrets_alone(stage):
    """A text argument would have the place as its text, and the program would use that as a password."""
    stage.declare(
        APP.split("\n", 3)[3] + RUNS.replace('"eu"', 'tm.Secret("env:EU")').replace('"cause": ""', '"to": tm.Secret')
    )

    def chain(**arguments):
        trigger = tm.RunEnded("shop.load")
        stage.mill.schedules.create("shop.follow", "shop.follow", trigger=trigger, arguments=arguments)

    with raises_code("bad_argument", match="is of type secret, but the argument of type string"):
        chain(region=tm.From("run.arguments.region"), to="env:TO")
    chain(to=tm.From("run.arguments.region"))
    stage.mill.runs.start("shop.load", {"region": "file:/dev/null"})
    stage.work()
    stage.schedule()
    (follows,) = stage.mill.runs.list(program="shop.follow")

    assert follows.arguments["to"] == "file:/dev/null"


def test_without_a_run_the_default_counts(stage):
    """The hour has passed, and no run has ended."""
    trigger = tm.RunEnded("shop.load") | tm.Every("1h")
    follow(stage, trigger, region=tm.From("run.arguments.region", default="none"), cause=tm.From("run.run_id"))
    stage.clock.move("1h")
    stage.schedule()
    (ended,) = stage.mill.jobs.history("shop.follow")
    stage.mill.schedules.update(
        "shop.follow", arguments={"region": {"from": "run.arguments.region", "default": "none"}}
    )
    stage.clock.move("1h")
    stage.schedule()

    (run,) = stage.mill.runs.list(program="shop.follow")

    assert ended.outcome == "missing_source"
    assert "no run with such a value fed the job" in ended.detail["why"]
    assert run.arguments["region"] == "none"


def test_a_source_that_the_other_program_does_not_have_is_refused(stage):
    """The next step is named."""
    for given, match in (
        (tm.From("run.arguments.regoin"), "did you mean 'region'"),
        (tm.From("clicks.partition.day"), "add NewPartitions"),
    ):
        with raises_code("bad_argument_source", match=match):
            follow(stage, region=given)
    with raises_code("bad_argument_source", match="add RunEnded"):
        follow(stage, tm.NewPartitions("clicks"), region=tm.From("run.run_id"))
    with raises_code("bad_argument_source", match="add MessageOn"):
        follow(stage, tm.NewPartitions("clicks"), region=tm.From("message.region"))
    for path in ("run.owner", "message", "message..region"):
        with raises_code("bad_argument_source", match="write it as"):
            tm.From(path)


@pytest.mark.parametrize(
    ("code", "match", "arguments"),
    [
        ("bad_argument_source", "write it as", {"day": {"from": "clicks.day"}}),
        ("bad_argument_source", "write it as", {"day": {"from": ""}}),
        ("bad_argument_source", "did you mean 'day'", {"day": {"from": "clicks.partition.dya"}}),
        ("bad_argument_source", "name one of default.clicks", {"hour": {"from": "users.partition.hour"}}),
        ("bad_argument", "declare another type", {"hour": {"from": "clicks.partition.day"}}),
        ("bad_argument", "declare another type", {"dry": {"from": "clicks.partition.hour"}}),
        ("bad_argument", "must be of type int", {"hour": {"from": "clicks.partition.hour", "default": "x"}}),
        ("bad_argument", "did you mean 'hour'", {"hours": {"from": "clicks.partition.day"}}),
        ("bad_json", "did you mean 'default'", {"day": {"from": "clicks.partition.day", "defalt": "x"}}),
        ("bad_json", "text", {"day": {"from": 3}}),
    ],
)
def test_a_source_that_cannot_be_is_refused_when_given(stage, code, match, arguments):
    """Nothing is stored, by `create` and by `update`."""
    with raises_code(code, match=match):
        create(stage, **arguments)
    assert list(stage.mill.schedules.list()) == []

    create(stage, day=tm.From("clicks.partition.day"))
    with raises_code(code, match=match):
        stage.mill.schedules.update("shop.report", arguments=arguments)
    assert stage.mill.schedules.show("shop.report").generation == 1


def test_a_logical_time_wants_a_trigger_with_times(stage):
    """Partitions alone have none."""
    with raises_code("bad_argument_source", match="add Cron, Every or WatermarkPassed"):
        create(stage, tm.NewPartitions("clicks"), day=tm.From("logical_time"))


def test_a_deployment_checks_sources_and_keeps_an_equal_schedule(stage):
    """An app that is deployed twice leaves its schedule, and the jobs that wait, as they are."""
    body = APP.split("\n", 3)[3]
    schedule = 'app.schedule("s", report, trigger=tm.NewPartitions(clicks), arguments={"day": tm.From("%s")})\n'
    with raises_code("bad_argument_source", match="no key field 'days'"):
        stage.declare(body + schedule % "clicks.partition.days")

    first = stage.declare(body + schedule % "clicks.partition.day")
    second = stage.declare(body + schedule % "clicks.partition.day")

    assert (first.schedules_added, second.schedules_kept) == (("s",), ("s",))


def test_the_command_line_takes_and_shows_sources(stage, tmp_path, capsys):
    """In the JSON form."""
    source = {"from": "clicks.partition.day", "default": "none"}
    commands = [
        *(("schedule", "create", "shop.mine", "shop.report"), ("schedule", "update", "shop.mine")),
        ("schedule", "show", "shop.mine"),
    ]
    trigger = ("--trigger", '{"type": "new_partitions", "fileset": "clicks"}', "--arg", f"day={json.dumps(source)}")
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *command, *(trigger if command[1] != "show" else ()), "--json"])
        assert ended.value.code == 0
        printed = capsys.readouterr().out

    assert json.loads(printed)["arguments"] == {"day": source}
