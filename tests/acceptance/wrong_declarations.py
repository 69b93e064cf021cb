"""Wrong declarations of triggers, constraints and schedules: in Python, in JSON, and the words that the error has."""

from __future__ import annotations

from typing import NamedTuple

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text")
clicks = app.fileset("clicks", keys={"n": "int"})

@app.python(reads=[raw, clicks], arguments={"level": 0})
def ingest(run):
    pass

@app.python(reads=[clicks])
def join(run):
    pass

app.schedule("sound", join, trigger=tm.NewPartitions(clicks))
"""
"""A sound app, to which a wrong schedule is added."""


class Wrong(NamedTuple):
    """A declaration that is refused: as an app file and as JSON have it, and words of the error."""

    python: str
    json: object
    words: tuple[str, ...]


def _every(duration: str) -> dict[str, str]:
    return {"type": "every", "duration": duration}


def _files(**more: object) -> dict[str, object]:
    return {"type": "new_files", "inbox": "raw", **more}


def _clicks(**more: object) -> dict[str, object]:
    return {"type": "new_partitions", "fileset": "clicks", **more}


TRIGGERS = [
    Wrong("tm.AllOf()", {"type": "all_of", "triggers": []}, ("AllOf", "at least one trigger")),
    Wrong("tm.AnyOf()", {"type": "any_of", "triggers": []}, ("AnyOf", "at least one trigger")),
    Wrong("tm.AtLeast(1)", {"type": "at_least", "k": 1, "triggers": []}, ("AtLeast", "at least one trigger")),
    Wrong(
        "tm.AtLeast(0, tm.Every('1h'))",
        {"type": "at_least", "k": 0, "triggers": [_every("1h")]},
        ("k must be a whole number from 1 to 1",),
    ),
    Wrong(
        "tm.AtLeast(2, tm.Every('1h'))",
        {"type": "at_least", "k": 2, "triggers": [_every("1h")]},
        ("k must be a whole number from 1 to 1",),
    ),
    Wrong(
        "tm.AllOf(tm.NewFiles(raw), patience='0s')",
        {"type": "all_of", "triggers": [_files()], "patience": "0s"},
        ("patience", "shorter than 1s"),
    ),
    Wrong(
        "tm.AllOf(tm.NewFiles(raw), patience='-1h')",
        {"type": "all_of", "triggers": [_files()], "patience": "-1h"},
        ("'-1h'", "use text with units"),
    ),
    Wrong(
        "tm.Silence(tm.NewFiles(raw), '0s')", {"type": "silence", "trigger": _files(), "duration": "0s"}, ("Silence",)
    ),
    Wrong(
        "tm.Silence(tm.Every('1h'), '10m')",
        {"type": "silence", "trigger": _every("1h"), "duration": "10m"},
        ("Silence", "give a trigger of data"),
    ),
    Wrong("tm.Every('0s')", _every("0s"), ("Every", "shorter than 1s")),
    Wrong("tm.Every('-1h')", _every("-1h"), ("'-1h'", "use text with units")),
    Wrong("tm.Every('soon')", _every("soon"), ("'soon'", "use text with units")),
    Wrong("tm.Cron('61 * * * *')", {"type": "cron", "expression": "61 * * * *"}, ("minute", "61")),
    Wrong("tm.Cron('* * *')", {"type": "cron", "expression": "* * *"}, ("five fields",)),
    Wrong(
        "tm.Cron('@daily', zone='Mars/Base')",
        {"type": "cron", "expression": "@daily", "zone": "Mars/Base"},
        ("zone", "Mars/Base"),
    ),
    Wrong("tm.Anytime('0s')", {"type": "anytime", "per": "0s"}, ("per", "shorter than 1s")),
    Wrong("tm.Anytime('fortnight')", {"type": "anytime", "per": "fortnight"}, ("per must be hour, day, week, month",)),
    Wrong("tm.Anytime('day', zone='Mars')", {"type": "anytime", "per": "day", "zone": "Mars"}, ("zone", "Mars")),
    Wrong("tm.NewFiles(raw, 0)", _files(n=0), ("NewFiles", "n must be a whole number of at least 1")),
    Wrong("tm.NewFiles(raw, -1)", _files(n=-1), ("NewFiles", "n must be a whole number of at least 1")),
    Wrong("tm.NewFiles(raw, 2, bytes='1 GB')", _files(n=2, bytes="1 GB"), ("either the number of files, or bytes",)),
    Wrong("tm.NewFiles(raw, bytes='0 B')", _files(bytes="0 B"), ("bytes must be at least 1",)),
    Wrong("tm.NewFiles(raw, bytes='-1 GB')", _files(bytes="-1 GB"), ("-1 GB",)),
    Wrong("tm.NewFiles('rwa')", {"type": "new_files", "inbox": "rwa"}, ("rwa", "raw")),
    Wrong("tm.NewFiles(clicks)", {"type": "new_files", "inbox": "clicks"}, ("data set of kind fileset",)),
    Wrong("tm.NewPartitions(clicks, 0)", _clicks(n=0), ("n must be a whole number of at least 1",)),
    Wrong("tm.NewPartitions('clcks')", {"type": "new_partitions", "fileset": "clcks"}, ("clcks", "clicks")),
    Wrong("tm.NewPartitions(clicks, where={'m': 1})", _clicks(where={"m": 1}), ("'m'",)),
    Wrong("tm.NewPartitions(clicks, where={'n': 'one'})", _clicks(where={"n": "one"}), ("'one'",)),
    Wrong("tm.NewPartitions(clicks, kinds=['old'])", _clicks(kinds=["old"]), ("old",)),
    Wrong("tm.NewPartitions(clicks, kinds=[])", _clicks(kinds=[]), ("kinds",)),
    Wrong("tm.NewData(clicks)", {"type": "new_data", "fileset": "clicks"}, ("either bytes", "or rows")),
    Wrong("tm.NewData(clicks, rows=0)", {"type": "new_data", "fileset": "clicks", "rows": 0}, ("rows must be",)),
    Wrong("tm.NewData(clicks, bytes='0 B')", {"type": "new_data", "fileset": "clicks", "bytes": "0 B"}, ("bytes",)),
    Wrong("tm.Refreshed(clicks)", {"type": "refreshed", "snapshot": "clicks"}, ("data set of kind fileset",)),
    Wrong(
        "tm.WatermarkPassed(clicks, every='0s')",
        {"type": "watermark_passed", "fileset": "clicks", "every": "0s"},
        ("every",),
    ),
    Wrong(
        "tm.WatermarkPassed(clicks, mode='some')",
        {"type": "watermark_passed", "fileset": "clicks", "mode": "some"},
        ("mode", "some"),
    ),
    Wrong("tm.WatermarkPassed('gone')", {"type": "watermark_passed", "fileset": "gone"}, ("gone",)),
    Wrong(
        "tm.WindowsRecomputed(ingest)", {"type": "windows_recomputed", "program": "shop.ingest"}, ("window program",)
    ),
    Wrong(
        "tm.WindowsRecomputed(ingest, 0)", {"type": "windows_recomputed", "program": "shop.ingest", "n": 0}, ("n must",)
    ),
    Wrong("tm.Missing('clcks')", {"type": "missing", "dataset": "clcks"}, ("clcks", "clicks")),
    Wrong("tm.Missing(clicks)", {"type": "missing", "dataset": "clicks"}, ("arrival expectation", "expect=")),
    Wrong("tm.RunEnded('shop.injest')", {"type": "run_ended", "program": "shop.injest"}, ("shop.injest", "ingest")),
    Wrong(
        "tm.RunEnded(ingest, 'DONE')",
        {"type": "run_ended", "program": "shop.ingest", "states": ["DONE"]},
        ("'DONE'", "COMPLETED"),
    ),
    Wrong(
        "tm.RunEnded(ingest, [])",
        {"type": "run_ended", "program": "shop.ingest", "states": []},
        ("at least one state",),
    ),
    Wrong("tm.RunEnded(ingest, n=0)", {"type": "run_ended", "program": "shop.ingest", "n": 0}, ("n must be",)),
    # A cycle of one program, without data in between. `join` is what the schedule starts.
    Wrong("tm.RunEnded(join)", {"type": "run_ended", "program": "shop.join"}, ("itself for ever", "trigger of data")),
    Wrong("tm.MessageOn('data')", {"type": "message_on", "topic": "data"}, ("Tidemill's own",)),
    Wrong("tm.MessageOn('a b')", {"type": "message_on", "topic": "a b"}, ("topic", "a b")),
    Wrong("tm.MessageOn('paid', n=0)", {"type": "message_on", "topic": "paid", "n": 0}, ("n must be",)),
    Wrong("tm.Hook('a b')", {"type": "hook", "name": "a b"}, ("a b",)),
    Wrong("tm.Hook('paid', 0)", {"type": "hook", "name": "paid", "n": 0}, ("n must be",)),
    Wrong(
        "tm.WatermarkStands(clicks, '0s')",
        {"type": "watermark_stands", "fileset": "clicks", "duration": "0s"},
        ("WatermarkStands", "shorter than 1s"),
    ),
    Wrong(
        "tm.WatermarkStands('gone', '1h')",
        {"type": "watermark_stands", "fileset": "gone", "duration": "1h"},
        ("gone",),
    ),
    Wrong("tm.MessageOn('paid', key='')", {"type": "message_on", "topic": "paid", "key": ""}, ("key must be",)),
]

CONSTRAINTS = [
    Wrong("[tm.Concurrency(0)]", [{"type": "concurrency", "n": 0}], ("Concurrency", "n must be")),
    Wrong("[tm.Concurrency(-1)]", [{"type": "concurrency", "n": -1}], ("Concurrency", "n must be")),
    Wrong(
        "[tm.Concurrency(1, on_limit='no')]",
        [{"type": "concurrency", "n": 1, "on_limit": "no"}],
        ("on_limit", "wait", "skip"),
    ),
    Wrong(
        "[tm.GroupConcurrency('crm', 0)]",
        [{"type": "group_concurrency", "group": "crm", "n": 0}],
        ("GroupConcurrency", "n must be"),
    ),
    Wrong("[tm.GroupConcurrency('', 1)]", [{"type": "group_concurrency", "group": "", "n": 1}], ("group",)),
    Wrong("[tm.Rate(0, per='1h')]", [{"type": "rate", "n": 0, "per": "1h"}], ("Rate", "n must be")),
    Wrong("[tm.Rate(1, per='0s')]", [{"type": "rate", "n": 1, "per": "0s"}], ("per must be at least 1s",)),
    Wrong("[tm.Delay('0s')]", [{"type": "delay", "duration": "0s"}], ("duration must be at least 1s",)),
    Wrong("[tm.Delay('-1m')]", [{"type": "delay", "duration": "-1m"}], ("duration", "'-1m'")),
    Wrong("[tm.Delay('25h')]", [{"type": "delay", "duration": "25h"}], ("timeout", "use a longer timeout")),
    Wrong("[tm.SinceLastRun('0s')]", [{"type": "since_last_run", "duration": "0s"}], ("at least 1s",)),
    Wrong(
        "[tm.SinceLastRun('5m', since='noon')]",
        [{"type": "since_last_run", "duration": "5m", "since": "noon"}],
        ("since", "end", "start"),
    ),
    Wrong(
        "[tm.TimeRange('22:00', '22:00')]",
        [{"type": "time_range", "start": "22:00", "end": "22:00"}],
        ("start and end are both 22:00", "leave the constraint out"),
    ),
    Wrong(
        "[tm.TimeRange('25:00', '06:00')]", [{"type": "time_range", "start": "25:00", "end": "06:00"}], ("start must",)
    ),
    Wrong("[tm.TimeRange('22:00', '6')]", [{"type": "time_range", "start": "22:00", "end": "6"}], ("end must",)),
    Wrong(
        "[tm.TimeRange('22:00', '06:00', zone='Mars')]",
        [{"type": "time_range", "start": "22:00", "end": "06:00", "zone": "Mars"}],
        ("zone", "Mars"),
    ),
    Wrong("[tm.Probe('load')]", [{"type": "probe", "name": "load"}], ("at_most", "at_least")),
    Wrong(
        "[tm.Probe('load', at_most=1, at_least=2)]",
        [{"type": "probe", "name": "load", "at_most": 1, "at_least": 2}],
        ("no number is both",),
    ),
    Wrong("['always']", ["always"], ("always",)),
    # Two of one kind. A time range leaves the time of the other, and one concurrency is the stricter one.
    Wrong(
        "[tm.TimeRange('08:00', '10:00'), tm.TimeRange('12:00', '14:00')]",
        [
            {"type": "time_range", "start": "08:00", "end": "10:00"},
            {"type": "time_range", "start": "12:00", "end": "14:00"},
        ],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.Concurrency(1), tm.Concurrency(2)]",
        [{"type": "concurrency", "n": 1}, {"type": "concurrency", "n": 2}],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.SinceLastRun('1h'), tm.SinceLastRun('2h')]",
        [{"type": "since_last_run", "duration": "1h"}, {"type": "since_last_run", "duration": "2h"}],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.Delay('1m'), tm.Delay('2m', debounce=True)]",
        [{"type": "delay", "duration": "1m"}, {"type": "delay", "duration": "2m", "debounce": True}],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.GroupConcurrency('crm', 1), tm.GroupConcurrency('crm', 2)]",
        [{"type": "group_concurrency", "group": "crm", "n": 1}, {"type": "group_concurrency", "group": "crm", "n": 2}],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.Rate(1, per='1h'), tm.Rate(2, per='1h')]",
        [{"type": "rate", "n": 1, "per": "1h"}, {"type": "rate", "n": 2, "per": "1h"}],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.Probe('load', at_most=1), tm.Probe('load', at_least=2)]",
        [{"type": "probe", "name": "load", "at_most": 1}, {"type": "probe", "name": "load", "at_least": 2}],
        ("both", "leave one of them out"),
    ),
    Wrong(
        "[tm.Concurrency(2), tm.SinceLastRun('1h')]",
        [{"type": "concurrency", "n": 2}, {"type": "since_last_run", "duration": "1h"}],
        ("allows no run beside another", "leave one of them out"),
    ),
]

FIELDS = [
    Wrong("timeout='0s'", {"timeout": "0s"}, ("timeout must be at least 1s",)),
    Wrong("timeout='-1h'", {"timeout": "-1h"}, ("timeout", "'-1h'")),
    Wrong("timeout=None", {"timeout": None}, ("timeout",)),
    Wrong("on_timeout='stop'", {"on_timeout": "stop"}, ("on_timeout", "cancel", "force")),
    Wrong("trigger_timeout='0s'", {"trigger_timeout": "0s"}, ("trigger_timeout must be at least 1s",)),
    Wrong("deadline='soon'", {"deadline": "soon"}, ("deadline", "'soon'")),
    Wrong("deadline='0s'", {"deadline": "0s"}, ("deadline must be at least 1s",)),
    Wrong("priority='high'", {"priority": "high"}, ("priority",)),
    Wrong("priority=10 ** 30", {"priority": 10**30}, ("priority", "use small numbers")),
    Wrong("misfire='never'", {"misfire": "never"}, ("misfire", "once", "all", "skip")),
    Wrong("misfire='all'", {"misfire": "all"}, ("misfire=all", "Cron and Anytime")),
    Wrong("grace='5m'", {"grace": "5m"}, ("grace does nothing without misfire='skip'",)),
    Wrong("arguments={'levle': 1}", {"arguments": {"levle": 1}}, ("levle", "level")),
    Wrong("arguments={'level': 'high'}", {"arguments": {"level": "high"}}, ("level",)),
    Wrong("arguments={'level': float('nan')}", {"arguments": {"level": "NaN"}}, ("argument",)),
    Wrong(
        "arguments={'level': tm.From('clicks.day')}",
        {"arguments": {"level": {"from": "clicks.day"}}},
        ("clicks.day", "clicks.partition.day"),
    ),
    Wrong(
        "arguments={'level': tm.From('clicks.partition.m')}",
        {"arguments": {"level": {"from": "clicks.partition.m"}}},
        ("clicks.partition.m",),
    ),
]
