"""Properties of tables in Hive follow the statements here, also those that could not be written at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.stage import EMPTY, Stage, open_stage
from tests.thrift_metastore import TablesOfHive, serving_metastore
from tidemill.lake.hive_notes import Note, follow
from tidemill.mill.statements import Done
from tidemill.names import CommitSeq
from tidemill.roles.janitor import Janitor

ADD = "ALTER TABLE t ADD WATERMARK FOR ts AS SOURCE_WATERMARK"
OTHERS = {"owner": "sales", "partition.time-interval": "1h"}
"""Properties of the table before Tidemill knows it."""


class KilledError(Exception):
    """The process ends here."""


@dataclass
class Site:
    """A project whose metastore is in this process, with the table `t`."""

    hive: TablesOfHive
    stage: Stage

    def sql(self, text: str) -> list[Done]:
        """Carry out statements."""
        return self.stage.mill.sql(text)

    def sweep(self) -> None:
        """Let the janitor do what is left."""
        Janitor.of(self.stage.mill.project.catalog, self.stage.mill.project.config).step()

    @property
    def waiting(self) -> list[Any]:
        """Return the tables of Hive whose properties are to follow."""
        return self.stage.sql("SELECT table_name FROM hive_note ORDER BY table_name")


@pytest.fixture
def site(catalog_url: str, tmp_path: Path) -> Iterator[Site]:
    """A project beside a metastore."""
    with serving_metastore() as (hive, address):
        hive.create("t", f"file:{tmp_path}/t", **OTHERS)
        environ = {**os.environ, "TIDEMILL_HIVE_METASTORE": address}
        stage = open_stage(Stage, tmp_path / "project", catalog_url, EMPTY, environ=environ)
        yield Site(hive, stage)
        stage.mill.close()


@pytest.mark.parametrize(
    ("there", "declared", "wanted"),
    [
        ({"a": "1", "b": "2"}, {}, {"b": "2"}),
        ({"a": "2"}, None, {}),
        ({"a": "9"}, None, {"a": "9"}),
        ({"a": "9", "b": "2"}, {"a": "3"}, {"a": "3", "b": "2"}),
        ({"c": "1"}, {}, {}),
        ({"c": "1"}, None, {"c": "0"}),
        ({"c": "9"}, None, {"c": "9"}),
        ({}, None, {}),
    ],
)
def test_only_values_of_tidemill_go(there, declared, wanted):
    """A value that another program has set since is not Tidemill's to remove."""
    note = Note({"a": ["1", "2"], "c": ["1"]}, {"c": "0"}, CommitSeq(1))

    assert follow(there, note, declared) == wanted
    assert follow(wanted, note, declared) == wanted


def test_a_dropped_table_has_the_properties_of_before_in_hive(site):
    """The table of Hive stays, and no reader takes it for one with a watermark."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.time-interval'='30min', 'partition.row-lag'='5min')")
    declared = site.hive.properties("t")
    site.hive.tables["t"].parameters["comment"] = "of others"
    (dropped,) = site.sql("DROP TABLE t")

    assert declared == {
        **OTHERS,
        "tidemill.watermark": "ts",
        "partition.time-interval": "30min",
        "partition.row-lag": "5min",
    }
    assert site.hive.properties("t") == {**OTHERS, "comment": "of others"}
    assert not any("Hive" in one for one in dropped.notices)
    assert site.waiting == []


def test_a_table_that_is_dropped_while_the_metastore_is_away_loses_its_properties_later(site):
    """Also the values of before a change that Hive has not seen."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.row-lag'='5min')")
    site.hive.away = True
    set_, dropped = site.sql("ALTER TABLE t SET ('partition.row-lag'='6min'); DROP TABLE t")
    site.sweep()
    waiting = site.waiting
    site.hive.away = False
    site.sweep()

    assert [set_.notices[-1], dropped.notices[-1]] == [set_.notices[-1]] * 2
    assert (
        "no answer today: `tidemill up` brings the properties of the table in Hive up to date later"
        in (dropped.notices[-1])
    )
    assert waiting == [("t",)]
    assert site.hive.properties("t") == OTHERS
    assert site.waiting == []


def test_an_option_that_is_reset_while_the_metastore_is_away_goes_later(site):
    """No listing mends that: a table without `streaming-source.enable` is not listed."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.row-lag'='5min')")
    site.hive.away = True
    site.sql("ALTER TABLE t RESET ('partition.row-lag'); ALTER TABLE t DROP WATERMARK")
    site.hive.away = False
    before = site.hive.properties("t")
    site.sweep()

    assert before == {**OTHERS, "tidemill.watermark": "ts", "partition.row-lag": "5min"}
    assert site.hive.properties("t") == OTHERS
    assert site.waiting == []


@pytest.mark.parametrize("statement", ["DROP TABLE t", "ALTER TABLE t RESET ('partition.row-lag')"])
def test_a_process_that_dies_after_the_properties_leaves_the_rest_to_the_janitor(site, statement):
    """A value that another program sets in between stays."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.row-lag'='5min')")

    def die() -> None:
        raise KilledError

    site.stage.at["hive.properties_written"] = die
    with pytest.raises(KilledError):
        site.sql(statement)
    waiting = site.waiting
    site.hive.tables["t"].parameters["partition.row-lag"] = "7min"
    wanted = site.hive.properties("t")
    site.sweep()

    assert waiting == [("t",)]
    assert site.hive.properties("t") == wanted
    assert site.waiting == []


def test_of_two_processes_the_newest_declaration_is_written_last(site):
    """The slower one has read an older declaration, and writes over the newer one."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.row-lag'='5min')")
    site.hive.before_alter.append(lambda: site.sql("ALTER TABLE t RESET ('partition.row-lag')"))
    site.sql("ALTER TABLE t SET ('partition.row-lag'='6min')")

    assert site.hive.properties("t") == {**OTHERS, "tidemill.watermark": "ts"}
    assert site.waiting == []


def test_a_table_that_is_dropped_meanwhile_has_the_properties_of_before(site):
    """The janitor is slower, and writes what it has read of the declaration before."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.time-interval'='2h')")
    site.hive.away = True
    site.sql("ALTER TABLE t SET ('partition.time-interval'='3h')")
    site.hive.away = False
    site.hive.before_alter.append(lambda: site.sql("DROP TABLE t"))
    site.sweep()

    assert site.hive.properties("t") == OTHERS
    assert site.waiting == []


def test_a_name_that_flink_gives_an_option_stays_in_hive(site):
    """Tidemill writes the option under its own name, and removes that one alone."""
    of_flink = {"streaming-source.consume-order": "partition-name", "sink.partition-commit.policy.kind": "metastore"}
    site.hive.tables["t"].parameters |= of_flink
    site.sql(ADD)
    declared = site.hive.properties("t")
    site.sql("DROP TABLE t")

    assert declared["streaming-source.partition-order"] == "partition-name"
    assert site.hive.properties("t") == OTHERS | of_flink


def test_a_table_that_is_declared_again_has_no_options_of_the_dropped_one(site):
    """The options in Hive that are Tidemill's own go first."""
    site.sql(f"{ADD}; ALTER TABLE t SET ('partition.row-lag'='5min')")
    site.hive.away = True
    site.sql("DROP TABLE t")
    site.hive.away = False
    site.sql(ADD)
    site.sweep()

    (spec,) = site.stage.mill.datasets.list().items
    assert spec.spec["options"] == {"partition.time-interval": "1h"}
    assert site.hive.properties("t") == {**OTHERS, "tidemill.watermark": "ts"}


def test_a_table_that_hive_refuses_to_change_holds_up_no_other(site, tmp_path):
    """Each has a row of its own."""
    site.hive.create("a", f"file:{tmp_path}/a")
    site.sql(f"{ADD}; {ADD.replace(' t ', ' a ')}")
    site.hive.away = True
    site.sql("DROP TABLE a; DROP TABLE t")
    site.hive.away = False
    site.hive.broken.add("a")
    site.sweep()
    waiting = site.waiting
    del site.hive.tables["a"]  # what Hive has no longer needs no properties
    site.hive.broken.clear()
    site.sweep()

    assert site.hive.properties("t") == OTHERS
    assert waiting == [("a",)]
    assert site.waiting == []


def test_a_metastore_that_does_not_answer_is_asked_once_for_all_tables(site, tmp_path):
    """Each time-out takes 20 seconds, in which the janitor does nothing else and does not end."""
    site.hive.create("a", f"file:{tmp_path}/a")
    site.sql(f"{ADD}; {ADD.replace(' t ', ' a ')}")
    site.hive.away = True
    site.sql("DROP TABLE a; DROP TABLE t")
    site.hive.away, site.hive.silent = False, True
    site.sweep()
    asked, waiting = site.hive.unanswered, site.waiting
    site.hive.silent = False
    site.sweep()

    assert asked == 1
    assert waiting == [("a",), ("t",)]
    assert site.waiting == []


def test_a_statement_that_changes_nothing_in_hive_writes_nothing_there(site):
    """An ALTER of Hive locks the table, and counts as a change for other programs."""
    site.sql(ADD)
    before = site.hive.alters
    site.sql("ALTER TABLE t MODIFY WATERMARK FOR ts AS SOURCE_WATERMARK")

    assert site.hive.alters == before
