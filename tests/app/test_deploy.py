"""Deployment: what an app declares becomes rows, all or nothing (seed 001, semantics of app deployment)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.app.conftest import APP
from tests.errors import raises_code
from tidemill import UserError


def redeploy(mill, text, **options):
    """Change the app file and deploy it."""
    mill.project.config.app.write_text(text, encoding="utf-8")
    return mill.deploy(**options)[0]


def schedules(mill):
    """Status of each schedule by its name."""
    return {view.name: view.status for view in mill.schedules.list()}


def test_the_sentence_of_a_deployment_names_the_first_of_many(mill):
    """A line of 500 names tells a person nothing."""
    program = "import tidemill as tm\napp = tm.App('shop')\n@app.python()\ndef load(run):\n    pass\n"
    many = "for n in range(25):\n    app.schedule(f's{n:02}', load, trigger=tm.Every('1h'))\n"
    added = redeploy(mill, program + many)
    removed = redeploy(mill, program)

    for deployed, names in ((added, added.schedules_added), (removed, removed.schedules_removed)):
        assert deployed.sentence().endswith("s18, s19 and 5 more")
        assert len(names) == 25


def test_a_first_deployment_registers_all(mill):
    """Data sets, programs, consumers and schedules exist at once.

    New schedules start suspended unless declared otherwise.
    """
    deployed = mill.deploy()[0]

    assert deployed.schedules_added == ("on_orders", "on_clean")
    assert [view.name for view in mill.datasets.list()] == ["default.clean", "default.orders"]
    assert [view.name for view in mill.consumers.list()] == ["default.shop.report"]
    assert schedules(mill) == {"default.shop.on_clean": "SUSPENDED", "default.shop.on_orders": "SCHEDULED"}
    assert (mill.project.config.folder / "landing" / "orders").is_dir()


def test_deploying_the_same_again_touches_no_schedule(mill):
    """A deployment for another reason must not drop what waits."""
    mill.deploy()

    again = mill.deploy()[0]

    assert again.schedules_kept == ("on_orders", "on_clean")
    assert {view.generation for view in mill.schedules.list()} == {1}


def test_a_changed_schedule_is_recreated_and_keeps_its_status(mill):
    """Seed 001: update is delete and recreate; what the update does not name is kept."""
    mill.deploy()
    mill.schedules.resume("shop.on_clean")

    deployed = redeploy(mill, APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 3)"))

    assert deployed.schedules_changed == ("on_clean",)
    view = mill.schedules.show("shop.on_clean")
    assert (view.generation, view.status) == (2, "SCHEDULED")


def test_a_schedule_of_another_program_keeps_its_status(mill):
    """A deployment lifted the operator's suspension: what was stopped in an incident started again."""
    mill.deploy()
    mill.schedules.suspend("shop.on_orders")
    text = APP.replace(
        'on_orders", load, trigger=tm.NewFiles(orders)', 'on_orders", report, trigger=tm.NewFiles(orders)'
    )

    deployed = redeploy(mill, text)

    view = mill.schedules.show("shop.on_orders")
    assert (deployed.schedules_added, deployed.schedules_changed) == ((), ("on_orders",))
    assert (view.status, view.program, view.generation) == ("SUSPENDED", "default.shop.report", 2)


def test_a_schedule_that_the_app_no_longer_has_goes(mill):
    """The schedule store follows the app in development."""
    mill.deploy()

    deployed = redeploy(mill, APP.replace('app.schedule("on_clean"', 'app.schedule("renamed"'))

    assert (deployed.schedules_removed, deployed.schedules_added) == (("on_clean",), ("renamed",))


def test_schedules_are_kept_on_request(mill):
    """In production they belong to ops (seed 001, scenario 3); not on a first deployment either."""
    mill.deploy(update_schedules=False)
    assert schedules(mill) == {}
    mill.deploy()

    redeploy(mill, APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 9)"), update_schedules=False)

    assert mill.schedules.show("shop.on_clean").generation == 1


def test_a_refused_deployment_changes_nothing(mill):
    """Half an app would run with the other half's data sets."""
    mill.deploy()
    before = (mill.datasets.list(), mill.schedules.list())

    changed = APP.replace('"day": "date"', '"day": "string"').replace("NewPartitions(clean, 2)", "NewPartitions(clean)")
    with pytest.raises(UserError, match="cannot be changed"):
        redeploy(mill, changed)

    assert (mill.datasets.list(), mill.schedules.list()) == before


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('g/orders",', 'g/orders", options={"multiLine": True},', "options['multiLine'] must be text, not True"),
        ('g/orders",', 'g/orders", max_files=1.5,', "max_files must be a whole number or null, not 1.5"),
        ("reads=[clean]", "reads=[tm.Reads(clean, attempts=2.5)]", "attempts must be a whole number, not 2.5"),
        ("reads=[clean]", "reads=[clean], deliver_own=0", "deliver_own must be true or false, not 0"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_at_deployment(mill, old, new, why):
    """A stored `max_files=1.5` made all that read the data set fail from then on."""
    with pytest.raises(UserError, match=re.escape(why)) as caught:
        redeploy(mill, APP.replace(old, new))

    assert "newer" not in str(caught.value)
    assert [*mill.datasets.list(), *mill.consumers.list()] == []


def test_a_growth_of_whole_numbers_is_deployed(mill):
    """A share is a number, whole or not."""
    redeploy(mill, APP + '\napp.snapshot("prices", max_growth=2, max_drop=1)\n')

    assert "default.prices" in [view.name for view in mill.datasets.list()]
    assert list(mill.snapshots.versions("prices")) == []


def test_arguments_of_a_schedule_are_checked_at_deployment(mill):
    """At three in the morning is too late."""
    wrong = APP.replace("constraints=[tm.Concurrency(1)])", "arguments={'limt': 3})")

    with pytest.raises(UserError, match="did you mean 'limit'"):
        redeploy(mill, wrong)


@pytest.mark.parametrize(
    ("text", "message"),
    [("import nothing_like_it", "nothing_like_it"), ("x = (", "SyntaxError|was never closed"), ("x = 1", "no app")],
)
def test_a_broken_app_file_is_one_line(mill, text, message):
    """No traceback: the file, and what is wrong with it."""
    with raises_code("broken_app", match=message) as caught:
        redeploy(mill, text)

    assert "\n" not in str(caught.value)


def test_two_deployments_at_once_make_one(mill):
    """Two machines of a CI deploy the same commit."""
    for _ in range(2):
        mill.deploy()

    assert len(mill.consumers.list()) == 1


OTHER = """
import tidemill as tm

app = tm.App("report")

@app.python(reads=["default.clean"])
def count(run):
    pass

app.schedule("on_clean", count, trigger=tm.NewPartitions("clean"))
"""


def test_an_app_may_read_what_another_app_publishes(mill):
    """Data sets belong to the namespace: two teams, one table."""
    mill.deploy()

    deployed = redeploy(mill, OTHER)

    assert deployed.schedules_added == ("on_clean",)
    assert [view.name for view in mill.consumers.list()] == ["default.report.count", "default.shop.report"]


@pytest.mark.parametrize(
    ("there", "wrong", "message"),
    [
        ("tm.NewPartitions(clean, 2)", "tm.NewPartitions('claen')", "did you mean 'default.clean'"),
        ("tm.NewPartitions(clean, 2)", "tm.NewPartitions(orders)", "kind inbox"),
        ("tm.NewFiles(orders)", "tm.NewFiles(clean)", "kind fileset"),
        ("reads=[clean]", "reads=['claen']", "did you mean 'default.clean'"),
        ("reads=[orders], writes=[clean]", "writes=[orders]", "kind inbox"),
    ],
)
def test_what_could_never_work_is_refused(mill, there, wrong, message):
    """A trigger on nothing would wait for ever without a word."""
    with pytest.raises(UserError, match=message):
        redeploy(mill, APP.replace(there, wrong))


@pytest.mark.parametrize("archive", ["landing/orders/done", "landing", "landing/orders", "link/done"])
def test_an_archive_within_the_inbox_is_refused(mill, archive):
    """Archived files would be found and processed again, for ever; also by way of a link."""
    (mill.project.config.folder / "landing" / "orders").mkdir(parents=True)
    (mill.project.config.folder / "link").symlink_to(mill.project.config.folder / "landing" / "orders")
    text = APP.replace('format="csv"', f'format="csv", after="archive", archive="{archive}"')

    with pytest.raises(UserError, match="found again"):
        redeploy(mill, text)

    assert list(mill.datasets.list()) == []


@pytest.mark.parametrize("to", ["landing/orders", "landing/orders/deep", "landing", "link", ".tidemill/data/default"])
def test_an_archive_where_another_data_set_lies_is_refused(mill, to):
    """Its files would go in there as new ones: two inboxes that archive into each other never end."""
    (mill.project.config.folder / "landing" / "orders").mkdir(parents=True)
    (mill.project.config.folder / "link").symlink_to(mill.project.config.folder / "landing" / "orders")
    other = f'app.inbox("other", "other", format="text", after="archive", archive="{to}")\n'

    with pytest.raises(UserError, match=r"archive .* of default.other"):
        redeploy(mill, APP + other)

    assert list(mill.datasets.list()) == []


def test_a_data_set_within_the_archive_of_another_is_refused(mill):
    """Whichever comes first."""
    first = 'import tidemill as tm\n\napp = tm.App("shop")\n'
    first += 'app.inbox("other", "other", format="text", after="archive", archive="landing")\n'
    redeploy(mill, first)

    with pytest.raises(UserError, match=r"archive .* of default.other lies within .* of default.orders"):
        redeploy(mill, APP)


def test_two_inboxes_may_share_an_archive(mill):
    """No file in an archive is overwritten, and no run looks for files there."""
    kept = 'after="archive", archive="kept"'
    text = APP.replace('format="csv"', f'format="csv", {kept}')
    text += f'app.inbox("other", "other", format="text", {kept})\n'

    redeploy(mill, text)

    assert {"default.orders", "default.other"} <= {dataset.name for dataset in mill.datasets.list()}


def test_an_archive_beside_the_inbox_is_made(mill):
    """A relative one lies in the project, as the inbox does."""
    redeploy(mill, APP.replace('format="csv"', 'format="csv", after="archive", archive="landing/orders-done"'))

    assert (mill.project.config.folder / "landing" / "orders-done").is_dir()


def test_no_deployment_makes_the_folder_of_a_data_set_again(mill):
    """Runs would write into the empty place of a mount whose disk is away."""
    mill.deploy()
    data = Path(mill.project.config.data)
    data.rename(data.with_name("disk"))

    with raises_code("storage_unavailable", match=r"Mount the disk; or, .*make it again by `mkdir -p"):
        mill.deploy()
    with raises_code("storage_unavailable"):
        redeploy(mill, APP + 'app.fileset("new", keys={"day": "date"})\n')

    assert not data.exists()
    data.with_name("disk").rename(data)
    assert not redeploy(mill, APP).changed


def test_a_folder_that_was_deleted_on_purpose_can_be_made_again(mill):
    """By the command of the error: only a person knows that no disk is missing."""
    mill.deploy()
    landing = mill.project.config.folder / "landing" / "orders"
    landing.rmdir()

    with raises_code("storage_unavailable") as refused:
        mill.deploy()
    subprocess.run(re.findall("`(mkdir -p .*)`", str(refused.value))[0], shell=True, check=True)

    assert not mill.deploy()[0].changed


def test_no_table_is_made_again_by_a_statement(mill):
    """A script that begins with CREATE TABLE IF NOT EXISTS runs each night, on each node."""
    create = "CREATE TABLE IF NOT EXISTS lines (id BIGINT, day DATE) PARTITIONED BY (day)"
    mill.sql(create)
    data = Path(mill.project.config.data)
    data.rename(data.with_name("disk"))

    with raises_code("storage_unavailable"):
        mill.sql(create)

    assert not data.exists()
