"""`tidemill`: the entry point. A noun's module is loaded only when the noun is called, so that `--help` stays fast."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from typing import Final

import click

from tidemill.cli.output import DEFAULT_TOKEN, report
from tidemill.errors import TidemillError, Unavailable
from tidemill.mill.written import BadOption
from tidemill.texts import printable

_COMMANDS: Final = {
    "init": ("tidemill.cli.init", "Write a small project that runs as it is."),
    "up": ("tidemill.cli.up", "Run scheduler, runner, inbox listing, janitor and server until Ctrl-C."),
    "server": ("tidemill.cli.server", "Serve pages and REST alone, until Ctrl-C."),
    "scheduler": ("tidemill.cli.role:scheduler", "Make runs and list inboxes, until Ctrl-C: the role scheduler alone."),
    "runner": ("tidemill.cli.role:runner", "Work on runs until Ctrl-C: the role runner alone."),
    "janitor": ("tidemill.cli.role:janitor", "Delete what is old or unused, until Ctrl-C: the role janitor alone."),
    "drain": ("tidemill.cli.node:drain", "Have a node end when its runs have ended; it takes no more runs."),
    "node": ("tidemill.cli.node", "Nodes: the processes that share the work."),
    "open": ("tidemill.cli.open", "Open the pages of the project in a browser."),
    "demo": ("tidemill.cli.demo", "Process real flights and weather, from arriving files to a checked report."),
    "deploy": ("tidemill.cli.deploy", "Register what the app file declares."),
    "plan": ("tidemill.cli.plan", "Show what a deployment would change."),
    "metrics": ("tidemill.cli.metrics", "Metrics: what waits, runs and is late, as numbers."),
    "overview": ("tidemill.cli.overview", "The project at a glance: needs, feeds, runs, jobs."),
    "doctor": ("tidemill.cli.doctor", "Show the settings, and check Java, Spark, catalog and folders."),
    "run": ("tidemill.cli.run", "Runs of programs."),
    "tx": ("tidemill.cli.tx", "Transactions, by write pointer."),
    "dataset": ("tidemill.cli.dataset", "Data sets: file sets, inboxes and snapshots."),
    "snapshot": ("tidemill.cli.snapshot", "Snapshots: mirrors of sources, in versions."),
    "hook": ("tidemill.cli.hook", "Hooks: signals from outside that start programs."),
    "inbox": ("tidemill.cli.inbox", "Inboxes: files that arrived, and their states."),
    "consumer": ("tidemill.cli.consumer", "Consumers of file sets, and their waiting partitions."),
    "watermark": ("tidemill.cli.watermark", "Watermarks of file sets, and the windows computed by them."),
    "sql": ("tidemill.cli.sql", "Declare tables and watermarks by SQL statements."),
    "backfill": ("tidemill.cli.backfill", "Backfills: runs of a program over parts of the past."),
    "schedule": ("tidemill.cli.schedule", "Schedules: the triggers and constraints that start programs."),
    "job": ("tidemill.cli.job", "Jobs: launches of schedules that wait to become runs."),
    "alert": ("tidemill.cli.alert", "Alerts: what is wrong for too long, the rules about it, and what was sent."),
    "token": ("tidemill.cli.token", "Tokens: secrets by which programs use the server."),
    "subscriber": (
        "tidemill.cli.subscriber",
        "Subscribers: named positions in topics, of readers and receivers outside.",
    ),
    "topic": ("tidemill.cli.topic", "Topics: messages of commits, and messages of users."),
    "app": ("tidemill.cli.app", "Deployed apps."),
    "why": ("tidemill.cli.why", "Explain why a file, partition, message, window, job, run or data set waits."),
    "search": ("tidemill.cli.search", "Find things by the beginning of a name, id, file or partition."),
    "flow": ("tidemill.cli.flow", "Show all that is declared as one graph: data sets, programs, schedules."),
    "audit": (
        "tidemill.cli.audit",
        "Check that each change came through once, and list the changes that callers asked for.",
    ),
    "catalog": ("tidemill.cli.catalog", "The catalog: backup, restore, checks and migration."),
}
_BESIDE_THE_CATALOG: Final = frozenset(
    {"init", "up", "server", "scheduler", "runner", "janitor", "open", "demo", "doctor"}
)
"""Commands that a server does not carry out."""
_INTERRUPTED: Final = 130


class _LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name or "command")
        assert isinstance(command, click.Command)  # noqa: S101  # each place of _COMMANDS has one
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="tidemill", prog_name="tidemill")
@click.option("--project", metavar="DIR", default=".", help="The project's folder, where tidemill.toml is.")
@click.option("--catalog", metavar="URL", help="The URL of the catalog, instead of the configured URL.")
@click.option("--server", metavar="URL", help="Use a server of the project, instead of its catalog.")
@click.option(
    "--token",
    default=DEFAULT_TOKEN,
    show_default=True,
    metavar="PLACE",
    help="With --server: the place of the token's secret, env:NAME or file:PATH.",
)
@click.pass_context
def cli(ctx: click.Context, /, **options: str | None) -> None:
    """Run PySpark programs when their data has arrived, each run one transaction.

    Exit codes: 0 done, 1 failed, 2 wrong input, 3 conflict, 4 not found, 5 unavailable, 6 findings (audit, fsck,
    adopt, plan --check).
    """
    if options["server"] and ctx.invoked_subcommand in _BESIDE_THE_CATALOG:
        raise BadOption("--server", str(options["server"]), f"`{ctx.invoked_subcommand}` works beside the catalog only")
    if options["server"] and options["catalog"]:
        raise BadOption("--catalog", str(options["catalog"]), "a server has a catalog of its own; leave one option out")
    ctx.obj = options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; an error of ours is one line on standard error, never a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The JSON of a user may have half of a surrogate pair, which cannot be printed.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for argument in given:
            _refuse_unprintable(argument)
        code = cli.main(given, prog_name="tidemill", standalone_mode=False)
    except TidemillError as error:
        report(error, as_json="--json" in given)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        sys.exit(_INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) has enough: nothing is wrong, and nothing can be printed.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        report(_OutOfReach(error), as_json="--json" in given)
        sys.exit(_OutOfReach.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _refuse_unprintable(argument: str) -> None:
    """Raise `BadOption` for an argument that is not UTF-8, or has a NUL: no name, path or text of Tidemill may."""
    if printable(argument) != argument:
        raise BadOption("argument", printable(argument), "it is not UTF-8, or has a NUL; write the argument in UTF-8")


class _OutOfReach(Unavailable):
    """A file or folder of this machine that the command needs and cannot use."""

    code = "file_unavailable"
    hint = "name a file or folder that is there, and that this user can read and write"

    def __init__(self, error: OSError) -> None:
        self.path = str(error.filename or "")
        self.why = error.strerror or str(error)
        super().__init__(f"{self.path or 'a file'} cannot be used: {self.why}")
