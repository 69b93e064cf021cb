"""Promises, whatever came before: judged from the rows of the catalog, and from the deliveries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from tests.explore.search import Broken, Tables

ENDED = {"COMPLETED", "FAILED", "KILLED", "REJECTED"}
REPLACING = {"overwrite", "drop"}
LIVE = {"STARTING", "RUNNING", "STOPPING"}


def must(held: object, what: str) -> None:
    """Complain unless it held."""
    if not held:
        raise Broken(what)


def all_of(*judges: Callable[[Tables], None]) -> Callable[[Tables], None]:
    """Ask each of `judges`."""

    def judge(tables: Tables) -> None:
        for one in judges:
            one(tables)

    return judge


# In every state


def transactions(tables: Tables) -> None:
    """A transaction is its run's while it is open; exactly the committed one of a run ends it COMPLETED."""
    runs = {run.run_id: run for run in tables["run"]}
    committed = Counter()
    for tx in tables["tx"]:
        run = runs[tx.run_id]
        if tx.state == "in_progress":
            must(run.state in LIVE, f"tx {tx.write_pointer} is open, its run {run.state}")
            must(run.epoch == tx.epoch, f"tx {tx.write_pointer} of attempt {tx.epoch} is open beside {run.epoch}")
            must(run.write_pointer == tx.write_pointer, f"tx {tx.write_pointer} is not what its run says")
        if tx.state == "committed":
            committed[tx.run_id] += 1
            must(tx.commit_seq > tx.write_pointer, f"tx {tx.write_pointer} committed before it began")
            must(tx.epoch == run.epoch, f"tx {tx.write_pointer} of the fenced attempt {tx.epoch} committed")
    workflows = {one.run_id for one in tables.get("workflow_run", ())}
    for run in tables["run"]:
        if run.run_id in workflows:
            continue  # the transactions are those of its nodes
        is_claim = run.program_id is None and run.write_pointer is None
        wanted = 1 if run.state == "COMPLETED" and not is_claim else 0
        must(committed[run.run_id] == wanted, f"run {run.run_id}, {run.state}, committed {committed[run.run_id]} times")
        if run.program_id is not None and run.state == "RUNNING":
            must(run.pid == run.epoch, f"the driver of attempt {run.pid} has registered for attempt {run.epoch}")
        live = run.state in LIVE
        must(live == (run.lease_until is not None), f"{run.run_id}, {run.state}, has a lease until {run.lease_until}")
    opened = {tx.write_pointer for tx in tables["tx"] if tx.state == "in_progress"}
    for row in tables["in_progress"]:
        must(row.write_pointer in opened, f"tx {row.write_pointer} has ended and is declared as in progress")
    given_up = {tx.write_pointer for tx in tables["tx"] if tx.state in {"aborted", "invalid"}}
    for row in tables["garbage"]:
        if row.reason != "superseded":
            must(row.write_pointer in given_up, f"files of tx {row.write_pointer} are garbage, and it was not given up")


def declared(*datasets: str) -> Callable[[Tables], None]:
    """Each open transaction of an external run stands in the in-progress list of what it writes."""

    def judge(tables: Tables) -> None:
        external = {run.run_id for run in tables["run"] if run.program_id is None}
        listed = {(row.dataset_id, row.write_pointer) for row in tables["in_progress"]}
        for tx in tables["tx"]:
            if tx.state == "in_progress" and tx.run_id in external:
                for dataset in datasets:
                    must((dataset, tx.write_pointer) in listed, f"tx {tx.write_pointer} is not listed as in progress")
        swept = {row.write_pointer for row in tables["garbage"]}
        for tx in tables["tx"]:
            if tx.state in {"aborted", "invalid"} and tx.run_id in external:
                must(tx.write_pointer in swept, f"nobody will delete what tx {tx.write_pointer} has written")

    return judge


def changes(tables: Tables) -> None:
    """Only committed transactions have change rows, and of two that conflict the first committer won."""
    by_pointer = {tx.write_pointer: tx for tx in tables["tx"]}
    rows = tables["partition_change"]
    for row in rows:
        tx = by_pointer[row.write_pointer]
        must(tx.state == "committed", f"a change of tx {row.write_pointer}, which is {tx.state}, is visible")
        must(tx.commit_seq == row.commit_seq, f"a change of tx {row.write_pointer} has another commit sequence")
        same = [one for one in rows if (one.dataset_id, one.partition_key) == (row.dataset_id, row.partition_key)]
        between = [one for one in same if row.write_pointer < one.commit_seq < row.commit_seq]
        if row.op in REPLACING:
            must(not between, f"tx {row.write_pointer} has overwritten what it has not seen")
        if row.op == "create":
            must(
                all(one.commit_seq >= row.commit_seq for one in same),
                f"tx {row.write_pointer} made what there was already",
            )
        if row.op == "append":
            must(
                all(one.op == "append" for one in between),
                f"tx {row.write_pointer} added to what was replaced meanwhile",
            )
        later = [one.commit_seq for one in same if one.op in REPLACING and one.commit_seq > row.commit_seq]
        ends = row.commit_seq if row.op == "drop" else min(later, default=None)
        must(row.superseded_seq == ends, f"tx {row.write_pointer} is superseded at the wrong commit")


def is_new(change: object, tables: Tables) -> bool:
    """Return whether a change makes its partition: no other committed to the key before, or the last one is a drop."""
    earlier = [
        row
        for row in tables["partition_change"]
        if (row.dataset_id, row.partition_key) == (change.dataset_id, change.partition_key)
        and row.commit_seq < change.commit_seq
    ]
    return not earlier or max(earlier, key=lambda row: row.commit_seq).op == "drop"


def drops_counted(tables: Tables) -> None:
    """The count of a consumer is the number of partitions that its takes found dropped."""
    ends = {(row.write_pointer, row.partition_key): row.superseded_seq for row in tables["partition_change"]}
    for consumer in tables["consumer"]:
        drops = {
            (work.partition_key, ends[work.write_pointer, work.partition_key])
            for work in tables["consumer_work"]
            if work.consumer_id == consumer.consumer_id and (work.error or "").startswith("dropped")
        }
        must(consumer.dropped == len(drops), f"{consumer.name} counts {consumer.dropped} dropped, not {sorted(drops)}")


def consumers(tables: Tables) -> None:
    """Each committed or open change is in a consumer's working set, or its state still leads to the change."""
    opened = tables["in_progress"]
    for consumer in tables["consumer"]:
        late = json.loads(consumer.versions_to_check)
        own = {
            (work.write_pointer, work.partition_key): work
            for work in tables["consumer_work"]
            if work.consumer_id == consumer.consumer_id
        }
        existing = set()
        for row in tables["partition_change"]:
            if row.dataset_id != consumer.dataset_id or not row.delivers:
                continue
            existing.add((row.write_pointer, row.partition_key))
            unread = row.write_pointer >= consumer.start_version or row.write_pointer in late
            filled = (row.write_pointer, row.partition_key) in own
            must(unread or filled, f"{consumer.name} will never see what tx {row.write_pointer} has committed")
        for key in own:
            must(key in existing, f"{consumer.name} works on what was never committed: {key}")
        for row in opened:
            if row.dataset_id == consumer.dataset_id and row.write_pointer < consumer.start_version:
                must(row.write_pointer in late, f"{consumer.name} forgets tx {row.write_pointer}, which is open")


def claims(tables: Tables) -> None:
    """Claims are of runs that can still commit them; what is completed is the input of one committed run."""
    runs = {run.run_id: run for run in tables["run"]}
    inputs = Counter((row.run_id, row.write_pointer, row.item) for row in tables["run_input"])
    holders: dict[tuple[str, str], str] = {}
    for work in tables["consumer_work"]:
        what = f"claim of {work.partition_key!r} of tx {work.write_pointer} by {work.run_id}"
        if work.state == "in_progress":
            run = runs[work.run_id]
            must(run.state not in ENDED, f"{what}, which is {run.state}")
            must(work.epoch <= run.epoch, f"{what}: attempt {work.epoch} of {run.epoch}")
            other = holders.setdefault((work.consumer_id, work.partition_key), work.run_id)
            must(other == work.run_id, f"{what} and by {other}: one partition in two runs at once")
        if work.state == "completed" and work.error is None:
            must(runs[work.run_id].state == "COMPLETED", f"{what} is completed, the run {runs[work.run_id].state}")
            must(
                inputs[work.run_id, work.write_pointer, work.partition_key] >= 1,
                f"{what} is completed, and no input of it",
            )
    for file in tables["inbox_file"]:
        if file.status == "IN_PROGRESS":
            must(runs[file.run_id].state not in ENDED, f"{file.name} is claimed by {file.run_id}, which has ended")
        if file.status == "SUCCESS":
            must(runs[file.run_id].state == "COMPLETED", f"{file.name} is done by {file.run_id}, which is not")
    for row in tables["run_input"]:
        must(runs[row.run_id].state == "COMPLETED", f"{row.run_id} has input, and is {runs[row.run_id].state}")


def delivered(tables: Tables) -> None:
    """No reader was given a change twice by committed runs, and each run was given just what it recorded as input."""
    epochs = {run.run_id: run.epoch for run in tables["run"] if run.state == "COMPLETED"}
    given = Counter(
        (row.reader, row.write_pointer, row.partition_key)
        for row in tables["given"]
        if row.run_id is None or epochs.get(row.run_id) == row.epoch
    )
    for (reader, pointer, key), times in given.items():
        must(times == 1, f"{reader} was given {key!r} of tx {pointer} {times} times")
    noted = {row.run_id for row in tables["given"] if row.run_id is not None and epochs.get(row.run_id) == row.epoch}
    for run_id, epoch in epochs.items():
        got = {
            (row.write_pointer, row.partition_key)
            for row in tables["given"]
            if row.run_id == run_id and row.epoch == epoch
        }
        recorded = {(row.write_pointer, row.item) for row in tables["run_input"] if row.run_id == run_id}
        must(not noted or got == recorded, f"{run_id} was given {sorted(got)} and recorded {sorted(recorded)}")


def failures(retries: int, *, failing: bool) -> Callable[[Tables], None]:
    """A run is tried again so often as was promised; what died, or was never at fault, has failed at nothing."""

    def judge(tables: Tables) -> None:
        for run in tables["run"]:
            if run.program_id is None:
                continue
            must(failing or run.failures == 0, f"{run.run_id} counts {run.failures} failures, and nothing has failed")
            if run.state == "FAILED":
                must(
                    run.failures == retries + 1, f"{run.run_id} is given up after {run.failures} failures of {retries}"
                )
            else:
                must(run.failures <= retries, f"{run.run_id} is {run.state} after {run.failures} failures of {retries}")
        for work in [*tables["consumer_work"], *tables["inbox_file"]]:
            must(failing or work.failures == 0, f"{work} counts as failed, and nothing has")

    return judge


def seen_when_taken(tables: Tables) -> None:
    """An attempt is given only what had committed when it began, a first one nothing that was overwritten by then."""
    began = {(tx.run_id, tx.epoch): tx.write_pointer for tx in tables["tx"]}
    changes = {(row.write_pointer, row.partition_key): row for row in tables["partition_change"]}
    for row in tables["given"]:
        if row.run_id is not None:
            change = changes[row.write_pointer, row.partition_key]
            must(change.commit_seq < began[row.run_id, row.epoch], f"{row} was given, and committed after the begin")
            late = change.superseded_seq is None or change.superseded_seq > began[row.run_id, 1]
            must(late or row.epoch > 1, f"{row} was given, and had been overwritten")


def kept_states(tables: Tables) -> None:
    """A caller with its own state got by write pointers exactly the changes that had committed before (R19)."""
    for state in tables["kept"]:
        got = {(row.write_pointer, row.partition_key) for row in tables["given"] if row.reader == state.reader}
        before = {
            (row.write_pointer, row.partition_key)
            for row in tables["partition_change"]
            if row.dataset_id == "lines" and row.delivers and row.commit_seq < state.snapshot
        }
        # What was overwritten before it was seen need not come.
        gone = {
            (row.write_pointer, row.partition_key)
            for row in tables["partition_change"]
            if row.superseded_seq is not None and row.superseded_seq < state.snapshot
        }
        must(
            got <= before <= got | (gone if state.public else set()),
            f"{state.reader} at {state.snapshot} has {sorted(got)}, and there was {sorted(before)}",
        )


def slots(tables: Tables) -> None:
    """A slot is held from launch to end, whichever process works on the run."""
    held = {row.run_id for row in tables["slot"]}
    wanted = {run.run_id for run in tables["run"] if run.program_id is not None and run.state not in ENDED}
    must(held == wanted, f"slots are held by {sorted(held)}, and {sorted(wanted)} are under way")


def never_undone(before: Tables, after: Tables) -> None:
    """A transaction ends once; a run that has ended stays so; a change row is changed once."""
    was = {tx.write_pointer: tx for tx in before["tx"]}
    for tx in after["tx"]:
        old = was.get(tx.write_pointer)
        must(old is None or old.state in {"in_progress", tx.state}, f"tx {tx.write_pointer} was {old}, is {tx}")
        if old is None:
            highest = max([0, *was, *(one.commit_seq or 0 for one in was.values())])
            must(tx.write_pointer > highest, f"tx {tx.write_pointer} began behind {highest}")
        elif tx.commit_seq != old.commit_seq:
            highest = max([0, *was, *(one.commit_seq or 0 for one in was.values())])
            must(tx.commit_seq > highest, f"tx {tx.write_pointer} committed as {tx.commit_seq}, behind {highest}")
    runs = {run.run_id: run for run in before["run"]}
    for run in after["run"]:
        old = runs.get(run.run_id)
        if old is not None:
            must(old.state not in ENDED or run.state == old.state, f"{run.run_id} was {old.state}, is {run.state}")
            killed = not old.kill_asked or run.state not in {"PENDING", "STARTING"}
            must(killed, f"{run.run_id} was to be killed, and is {run.state}")
            must(run.epoch >= old.epoch, f"{run.run_id} went back to attempt {run.epoch}")
    rows = {(row.dataset_id, row.write_pointer, row.partition_key): row for row in before["partition_change"]}
    for row in after["partition_change"]:
        old = rows.pop((row.dataset_id, row.write_pointer, row.partition_key), row)
        must(old.superseded_seq in {None, row.superseded_seq}, f"the change {old} was superseded twice")
    must(not rows, f"changes are gone: {sorted(rows)}")


# Once all has come to rest


def at_rest(tables: Tables) -> None:
    """Nothing is under way, waits, or is held."""
    for run in tables["run"]:
        must(run.state in ENDED, f"{run.run_id} is {run.state}")
    for work in tables["consumer_work"]:
        must(work.state in {"completed", "discarded"}, f"work is left: {work}")
    for file in tables["inbox_file"]:
        must(file.status in {"SUCCESS", "SKIPPED", "QUARANTINED"}, f"a file is left: {file}")
    must(not tables["slot"], "slots are held")
    must(not tables["in_progress"], "transactions are listed as in progress")


def everything_delivered(*readers: str) -> Callable[[Tables], None]:
    """Each reader was given each committed change once. An overwritten change without a take comes at most once."""

    def judge(tables: Tables) -> None:
        delivered(tables)
        epochs = {run.run_id: run.epoch for run in tables["run"] if run.state == "COMPLETED"}
        dropped = {
            (work.write_pointer, work.partition_key)
            for work in tables["consumer_work"]
            if work.state == "discarded" or (work.error or "").startswith(("overwritten", "dropped", "changed"))
        }
        ignored = {
            (work.write_pointer, work.partition_key)
            for work in tables["consumer_work"]
            if (work.error or "").startswith("changed")
        }
        for reader in readers:
            got = {
                (row.write_pointer, row.partition_key)
                for row in tables["given"]
                if row.reader == reader and (row.run_id is None or epochs.get(row.run_id) == row.epoch)
            }
            for row in tables["partition_change"]:
                change = (row.write_pointer, row.partition_key)
                unseen = row.superseded_seq is not None and reader == "public"
                if row.dataset_id == "lines" and row.delivers and not unseen:
                    must(
                        change in got or change in dropped,
                        f"{reader} never got {row.partition_key!r} of tx {change[0]}",
                    )
                    must(
                        change not in ignored or not is_new(row, tables),
                        f"{reader} ignored the new partition {row.partition_key!r} of tx {change[0]}",
                    )

    return judge
