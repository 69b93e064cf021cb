"""Bad files and bad rows, through programs on Spark: each is named with its reason, and holds up no good one."""

from __future__ import annotations

import pytest

from tests.app import test_pipeline
from tests.stage import Stage
from tidemill.upkeep.balance import weigh

pytestmark = pytest.mark.spark
site = test_pipeline.site

HEADER = "id,name,qty\n"
LOAD = """
@app.spark(reads=[orders], writes=[lines])
def load(run, spark):
    rows = run.input(orders).read()
    run.output(lines).append(rows.selectExpr("*", "1 AS part"))
"""
REJECT = 'bad_rows="reject", max_rejects="5%", settle="0s"'
LINES = 'lines = app.fileset("lines", keys={"part": "int"})\n'


def land(site: Stage, contents: dict[str, str]) -> None:
    """Write files into the inbox, and have them found."""
    folder = site.mill.project.config.folder / "landing"
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8", newline="")
    site.mill.inboxes.scan("orders")


def states(site: Stage) -> dict[str, tuple[str, int, str]]:
    """State, failures and reason of each file."""
    return {file.name: (file.status, file.failures, file.error or "") for file in site.mill.inboxes.files("orders")}


def test_all_bad_files_of_a_batch_are_found_in_one_attempt(site):
    """Before, each failed run found one bad file.

    Now the next run gets the good files, and bad ones fail no run again.
    """
    site.declare(
        f'orders = app.inbox("orders", "landing", schema="id INT, name STRING, qty INT", settle="0s")\n{LINES}{LOAD}'
    )
    land(
        site,
        {
            "good.csv": HEADER + "1,a,10\n",
            "long.csv": HEADER + '1,"a\nb",10\n2,b,20,30\n',
            "text.csv": HEADER + "1,a,x\n2,b,20\n3,c,y\n",
            "fine.csv": HEADER + "2,b,20\n",
        },
    )

    first = site.outcome("shop.load")
    after_first = states(site)
    second = site.outcome("shop.load")
    published = site.rows("lines", "id", "name")
    site.mill.inboxes.retry("orders")
    land(site, {"late.csv": HEADER + "3,c,30\n"})
    third = site.outcome("shop.load")

    assert first[0] == "FAILED"
    assert after_first["good.csv"][0] == after_first["fine.csv"][0] == "NEW"
    long = "1 of its 2 rows is bad; line 4: it has 4 fields, not 3: 2,b,20,30"
    text = "2 of its 3 rows are bad; line 2: qty is no INT: x: 1,a,x"
    assert after_first["long.csv"] == ("ERROR", 1, long)
    assert after_first["text.csv"] == ("ERROR", 1, text)
    assert (second[0], published) == ("COMPLETED", [(1, "a"), (2, "b")])
    assert third[0] == "COMPLETED"
    assert states(site)["long.csv"] == ("ERROR", 2, long)
    assert states(site)["text.csv"] == ("ERROR", 2, text)
    assert states(site)["late.csv"][0] == "SUCCESS"


@pytest.mark.parametrize(
    ("declared", "good", "bad", "named"),
    [
        (
            'schema="id INT, name STRING, qty INT"',
            HEADER + "".join(f'{n},"a\nb",{n}\n' for n in range(48)),
            "1,a\n2,b,x\n",
            [(98, "1,a", "it has 2 fields, not 3"), (99, "2,b,x", "qty is no INT: x")],
        ),
        (
            'format="json", schema="id INT, name STRING, qty INT"',
            "".join(f'{{"id": {n}, "name": "a", "qty": {n}}}\n' for n in range(48)),
            '{"id": 1, "qty": "x"}\n{"id": 1, "zip": 5}\n',
            [
                (49, '{"id": 1, "qty": "x"}', 'qty is no INT: "x"'),
                (50, '{"id": 1, "zip": 5}', "the schema does not name the field zip"),
            ],
        ),
    ],
)
def test_bad_rows_are_rejected_with_line_text_and_reason(site, declared, good, bad, named):
    """Before, one bad line of a million rejected its file.

    Rejected rows are in the same commit, and count in the balance.
    """
    site.declare(f'orders = app.inbox("orders", "landing", {declared}, {REJECT})\n{LINES}{LOAD}')
    land(site, {"some": good + bad, "all": good, "many": good + bad + bad})

    state, why = site.outcome("shop.load")
    facts = site.mill.runs.show(site.mill.runs.list()[0].run_id).facts

    assert (state, why) == ("COMPLETED", "")
    assert len(site.rows("lines")) == 96
    assert site.rows("orders_rejects", "file", "line", "text", "reason") == [("some", *row) for row in named]
    assert facts["read"][0] | {"rows": 96} == {
        "dataset": "default.orders",
        "rows": 96,
        "unknown": "fail",
        "bad_rows": "reject",
        "rejected": 2,
    }
    assert weigh(facts) == (98, 96, 2, 0)
    found = states(site)
    assert found["some"][0] == found["all"][0] == "SUCCESS"
    assert found["many"][0] == "ERROR"
    assert found["many"][2].startswith("4 of its 52 rows are bad; line ")


TWICE = """
@app.spark(reads=[orders], writes=[lines])
def load(run, spark):
    one = run.input(orders).read()
    other = run.input(orders).read(schema="id INT, name STRING, qty DOUBLE")
    run.output(lines).append(one.union(other).selectExpr("*", "1 AS part"))
"""


def test_a_row_that_is_bad_under_two_schemas_is_one_reject(site):
    """Each read published the rejects again."""
    site.declare(
        f'orders = app.inbox("orders", "landing", schema="id INT, name STRING, qty DECIMAL(10,2)", {REJECT})\n{LINES}'
        + TWICE
    )
    land(site, {"some": HEADER + "".join(f"{n},a,{n}\n" for n in range(98)) + "x,a,1\n1,a,1.239\n"})

    state, why = site.outcome("shop.load")

    assert (state, why) == ("COMPLETED", "")
    assert site.rows("orders_rejects", "line", "text", "reason") == [
        (100, "x,a,1", "id is no INT: x"),
        (101, "1,a,1.239", "qty is no DECIMAL(10,2): 1.239"),
    ]


LATER = """
@app.spark(reads=[orders], writes=[lines])
def load(run, spark):
    run.input(orders).read()
    rows = run.input(orders).read(schema="id INT, name STRING, qty INT")
    run.output(lines).append(rows.selectExpr("*", "1 AS part"))
"""


def test_a_file_that_is_bad_under_a_later_schema_fails_the_attempt(site):
    """The program has the rows of that file already. A file with few bad rows is not to blame."""
    site.declare(
        f'orders = app.inbox("orders", "landing", schema="id INT, name STRING, qty STRING", {REJECT})\n{LINES}{LATER}'
    )
    some = HEADER + "".join(f"{n},a,{n}\n" for n in range(98)) + "x,a,1\n"
    land(site, {"some.csv": some, "text.csv": HEADER + "1,a,ten\n"})

    state, why = site.outcome("shop.load")

    assert state == "FAILED"
    assert why.startswith("BadUnderSchema: ")
    assert states(site)["text.csv"] == (
        "ERROR",
        1,
        "1 of its 1 rows is bad; line 2: qty is no INT: ten: 1,a,ten",
    )
    assert states(site)["some.csv"] == ("NEW", 0, "")
