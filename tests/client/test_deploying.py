"""`deploy` and `plan` by way of a server give what they give beside the catalog."""

from __future__ import annotations

import random
import shutil

import pytest

from tests.client.test_connect import ANY_PORT
from tests.errors import raises_code
from tests.served import serving
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.client.deploying import MOST_SENT
from tidemill.server.limits import MOST_BYTES

ONE = """
import tidemill as tm
import helper

app = tm.App("shop", files=["sql/*.sql"])
lines = app.fileset("lines", keys={"hour": "int"}, format="text")

@app.python(arguments={"level": 1})
def load(run):
    pass

@app.python(reads=[tm.Reads(lines, max_partitions=3)])
def report(run):
    pass

app.schedule("hourly", load, trigger=tm.Every("1h"))
app.schedule("on_lines", report, trigger=tm.NewPartitions(lines, 2))

second = tm.App("till")
second.fileset("bills", keys={"day": "date"})

@second.python(reads=["default.lines"])
def sum_up(run):
    pass
"""
TWO = ONE[: ONE.index("second =")].replace("1h", "2h").replace('"level": 1', '"level": 2')
COMMANDS = (("plan",), ("plan", "--json"), ("deploy",), ("deploy", "--keep-schedules", "--json"))


@pytest.fixture
def projects(tmp_path):
    """Two projects with the same files: one is deployed beside its catalog, one by way of its server."""
    for name in ("near", "far"):
        (tmp_path / name / "sql").mkdir(parents=True)
        (tmp_path / name / "sql" / "a.sql").write_text("SELECT 1")
        (tmp_path / name / "helper.py").write_text("word = 'one'")
    empty = "import tidemill as tm\napp = tm.App('seed')\n"
    url = "sqlite:///{}/catalog.db"
    with (
        staged(tmp_path / "near", url.format(tmp_path / "near"), empty) as near,
        staged(tmp_path / "far", url.format(tmp_path / "far"), empty, environ=ANY_PORT) as far,
        serving(far.mill) as (address, secret),
    ):
        yield near, far, address, secret


def content(folder, text):
    """Write the app file of a project."""
    (folder / "app.py").write_text(text)


def texts_of(command, folder, options, capsys):
    """Return the exit code of a command, and what it printed, without the folder of the project."""
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(folder), *options, *command])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), *(one.replace(str(folder), "<project>") for one in (printed.out, printed.err))


def test_plan_and_deploy_print_the_same_by_way_of_a_server(projects, tmp_path, capsys, monkeypatch):
    """For a first deployment, one that changes things, one that changes nothing, and a broken app file."""
    near, _, address, secret = projects
    monkeypatch.setenv("TIDEMILL_TOKEN", secret)
    ways = {"near": ["--catalog", near.mill.project.config.catalog], "far": ["--server", address]}
    shown = {}
    for name, options in ways.items():
        said = shown[name] = []
        for text in (ONE, TWO, TWO, TWO.replace("NewPartitions(lines, 2)", "NewPartitions('none', 2)"), "1 +"):
            content(tmp_path / name, text)
            said.extend(texts_of(command, tmp_path / name, options, capsys) for command in COMMANDS)

    assert shown["far"] == shown["near"]
    assert [code for code, _, _ in shown["near"]].count(0) == 13  # schedules that are kept are not checked
    assert "app default.till, which goes on" in shown["far"][6][1]


def test_a_client_elsewhere_deploys_to_the_project_of_the_server(projects, tmp_path):
    """Locations of data sets lie in the folder of the server, whatever the folder of the client is."""
    _, far, address, secret = projects
    laptop = tmp_path / "laptop"
    shutil.copytree(tmp_path / "far", laptop)
    content(laptop, ONE)
    with connect(address, token=secret, project=laptop) as mill:
        first, second = mill.deploy()
        again = mill.plan()

    assert (first.app, second.app) == ("shop", "till")
    assert [one.changes for one in again] == [(), ()]
    assert far.mill.datasets.show("lines").location.startswith(f"file://{tmp_path}/far/")
    assert far.mill.apps.show("shop").file == f"{tmp_path}/far/app.py"


def test_what_does_not_fit_into_a_request_is_refused_before_it_is_sent(projects, tmp_path):
    """With both sizes and the next step, which 413 alone would not name. What fits is taken by a real server."""
    _, far, address, secret = projects
    content(tmp_path / "far", ONE)
    noise = tmp_path / "far" / "sql" / "noise.sql"
    noise.write_bytes(random.Random(1).randbytes(6_500_000))
    with connect(address, token=secret, project=tmp_path / "far") as mill:
        with raises_code("bundle_too_large_to_send", match=r"is 6\.5 MB, and 6\.3 MB fit .* beside the catalog"):
            mill.deploy()
        before = [one.name for one in far.mill.apps.list()]
        noise.write_bytes(random.Random(1).randbytes(6_200_000))
        mill.deploy()

    assert before == ["default.seed"]
    assert "default.shop" in [one.name for one in far.mill.apps.list()]


def test_the_client_knows_what_a_server_takes():
    """Each has its own constant: a client does not load a server."""
    assert MOST_SENT == MOST_BYTES


def test_a_folder_without_an_app_file_is_named(projects, tmp_path, capsys, monkeypatch):
    """As beside the catalog. `--new` is about a catalog."""
    _, _, address, secret = projects
    monkeypatch.setenv("TIDEMILL_TOKEN", secret)
    (tmp_path / "none").mkdir()

    assert "no project" in texts_of(("deploy",), tmp_path / "none", ["--server", address], capsys)[2]
    assert "--new" in texts_of(("deploy", "--new"), tmp_path / "far", ["--server", address], capsys)[2]
