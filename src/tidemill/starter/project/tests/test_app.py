"""Files arrive and programs run in the test, with a catalog in memory: `pytest` in the project's folder.

The fixture `mill` comes with `pip install "tidemill[spark,testing]"`.
"""

BY_HAND = set()
"""Programs that no schedule starts, but a person: `tidemill run start`."""

ORDERS = "id,amount,ordered_at\n1,9.5,2026-01-01T10:00:00\n2,0,2026-01-01T11:00:00\n3,7.0,2026-01-02T09:00:00\n"


def test_orders_with_an_amount_are_published(mill):
    """An order without an amount is left out. The first run of Spark takes some seconds."""
    mill.land("orders/1.csv", ORDERS)

    mill.run_until_idle()

    assert mill.files("orders") == {"1.csv": "SUCCESS"}
    assert [row["id"] for row in mill.published("orders_clean").rows()] == [1, 3]


def test_each_program_is_started_by_a_schedule(mill):
    """A program without a schedule, or with a suspended schedule, would wait for ever."""
    programs = {program for deployed in mill.operations.deploy() for program in deployed.programs}
    schedules = mill.operations.schedules.list()

    assert programs - BY_HAND == {one.program.rpartition(".")[2] for one in schedules if one.status == "SCHEDULED"}
