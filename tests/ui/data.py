"""A project with data in each state, for pages in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.lake import APP, fill_lake
from tests.stage import Stage, staged


@contextmanager
def lake(folder: Path) -> Iterator[Stage]:
    """Stage a project with data in each state: files too, a partition that was given up, and a window program."""
    with staged(folder, f"sqlite:///{folder / 'c.db'}", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        fill_lake(opened)
        opened.sql("UPDATE inbox_file SET status = 'QUARANTINED', run_id = NULL WHERE name LIKE '%bad%' RETURNING 1")
        opened.sql("UPDATE inbox_file SET status = 'SUCCESS', row_count = 7 WHERE name = 'a.csv' RETURNING 1")
        _give_up(opened)
        yield opened


def _give_up(stage: Stage) -> None:
    """Give up two partitions, and let windows be computed, stale and failing."""
    (consumer,) = stage.sql("SELECT consumer_id FROM consumer WHERE name = 'default.shop.sum_up'")
    stage.mill.consumers.peek("flights", "sum_up")
    for number in (5, 6):
        stage.sql(
            "INSERT INTO consumer_work "
            "(consumer_id, write_pointer, partition_key, commit_seq, state, failures, run_id, error) "
            f"SELECT '{consumer[0]}', write_pointer, partition_key, commit_seq, 'discarded', 3, 'run_1', '<b>no</b>' "
            f"FROM partition_change WHERE partition_key LIKE '2026-01-01!a{number}' AND true "
            "ON CONFLICT (consumer_id, write_pointer, partition_key) DO UPDATE SET state = 'discarded', failures = 3, "
            "run_id = 'run_1', error = excluded.error RETURNING 1"
        )
    (program,) = stage.sql("SELECT program_id FROM program WHERE name = 'seed'")
    (dataset,) = stage.sql("SELECT dataset_id FROM dataset WHERE name = 'flights'")
    hour, begin = 3_600_000_000, 1_767_225_600_000_000  # of 1 January 2026
    start, definition = begin + 4 * hour, '{"inputs": {}, "windows": [1, 2, 3]}'
    stage.sql(
        "INSERT INTO window_program (program_id, name, definition, computed, seen, revision) "
        f"VALUES ('{program[0]}', 'default.shop.seed', '{definition}', {start}, 1, 1) RETURNING 1"
    )
    stage.sql(
        "INSERT INTO window_input (program_id, dataset_id, late) "
        f"VALUES ('{program[0]}', '{dataset[0]}', 'recompute') RETURNING 1"
    )
    for number in range(4):
        start = begin + number * hour
        stage.sql(
            "INSERT INTO window_result (program_id, window_end, window_start, write_pointer, stale) "
            f"VALUES ('{program[0]}', {start + hour}, {start}, 1, {number % 2}) RETURNING 1"
        )
    stage.sql(
        "INSERT INTO window_failure (program_id, window_end, window_start, reason, partitions, since, tried_at) "
        f"VALUES ('{program[0]}', {begin + 5 * hour}, {begin + 4 * hour}, 'a row is wrong', '[]', 1, 2) RETURNING 1"
    )
