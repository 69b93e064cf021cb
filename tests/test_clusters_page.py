"""docs/clusters.md: its app on a standalone cluster, by the command line, and the same demo as without one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest

import tidemill as tm
from tests.command import TIDEMILL
from tests.s3_server import KEYS
from tests.seed_of_the_day import TODAY
from tests.spark_cluster import LocalCluster, parents_of, processes_of, running_cluster
from tests.yardstick import patience

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "clusters.md").read_text(encoding="utf-8")
(APP,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SETTINGS, ON_CLUSTER = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
MODES = (ON_CLUSTER.partition("\n")[2], 'deploy_mode = "client"')


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A master and two workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def write_project(folder: Path, cluster: LocalCluster, **changed: str) -> None:
    """Write the app and the settings of the page, with the addresses of this cluster."""
    _, own_conf = cluster.settings().split("\n\n")
    own = {
        "spark://spark-master:7077": cluster.master,
        "/etc/tidemill/cluster-secret": str(cluster.secret),
        "[spark.conf]\n": f'{own_conf}"spark.ui.enabled" = true\n',
        **changed,
    }
    settings = SETTINGS
    for on_page, here in own.items():
        assert on_page in settings
        settings = settings.replace(on_page, here)
    (folder / "tidemill.toml").write_text(settings)
    (folder / "app.py").write_text(APP)
    (folder / "texts.py").write_text("def upper(text):\n    return text.upper()\n")
    (folder / "landing").mkdir()
    (folder / "landing" / "a.csv").write_text("id,name,day\n1,ann,2026-01-01\n2,bob,2026-01-02\n")


def run_tidemill(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        [TIDEMILL, *command], cwd=folder, capture_output=True, text=True, timeout=patience(300), check=False
    )


def arguments_of_all() -> str:
    """Return the command lines of all processes of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def pages_of(ui: str, application: str) -> str:
    """Return pages of Spark's own, with all settings of a driver."""
    places = ("/environment/", "/executors/", "/jobs/", f"/api/v1/applications/{application}/environment")
    return "\n".join(httpx.get(f"{ui}{place}", timeout=patience(20)).raise_for_status().text for place in places)


@pytest.mark.parametrize("mode", [MODES[TODAY % len(MODES)]])
def test_the_app_of_the_page_works_on_a_cluster(cluster, tmp_path, mode):
    """Each day in one mode. Executors get the modules of the app from the driver. Nothing shows a secret.

    The keys of a bucket are in the environment, as those of a site may be. In cluster mode the driver is a child of a
    worker, and its node has its log. The second run gets the same driver.
    """
    write_project(tmp_path, cluster, **{"shared = true": f"shared = true\n{mode}"})
    app = (tmp_path / "app.py").read_text()
    (tmp_path / "app.py").write_text(app.replace("    rows =", '    print("loading")\n    rows ='))
    environ = {**os.environ, **KEYS}
    seen = []

    with (
        subprocess.Popen([TIDEMILL, "up"], cwd=tmp_path, env=environ, stdout=-1, stderr=-2, text=True) as up,
        tm.open(tmp_path) as mill,
    ):
        assert up.stdout is not None
        for line in up.stdout:
            seen.append(line)
            if " start " in line or "ready" in line:
                seen.append(arguments_of_all())
            if " commit " in line and len(mill.runs.list()) > 1:
                break
            if " commit " in line:
                (tmp_path / "landing" / "b.csv").write_text("id,name,day\n3,eve,2026-01-03\n")
        try:
            run, first = mill.runs.list()
            facts = mill.runs.show(run.run_id).facts
            above = parents_of(processes_of(str(facts["driver"]))[0])
            # A master that is started again reads there what was submitted.
            recovery = b"".join(path.read_bytes() for path in (cluster.folder / "master").iterdir())
            seen.append(pages_of(str(facts["spark_ui"]), str(facts["spark"])))
        finally:
            up.terminate()
        assert up.wait(patience(300)) == 0, "".join(seen)

        run = mill.runs.show(run.run_id)
        assert first.facts["driver"] == facts["driver"]
        for one in (first, run):
            assert [line.text for line in mill.runs.logs(one.run_id)] == ["loading"]
        assert (run.state, facts["spark_conf"]["spark.master"]) == ("COMPLETED", cluster.master), "".join(seen)
        assert sorted(row["name"] for row in mill.datasets.head("clean")) == ["ANN", "BOB", "EVE"]
    assert bool({worker.pid for worker in cluster.workers} & set(above)) == (mode in ON_CLUSTER)
    assert processes_of(str(facts["driver"])) == []
    assert ("spark_driver" in run_tidemill(tmp_path, "run", "show", run.run_id).stdout) == (mode in ON_CLUSTER)
    assert "spark.app.name" in seen[-1]
    assert f"{tmp_path}/.tidemill/catalog.db" not in "".join(line for line in seen if "\0" in line)
    assert (b"PythonRunner" in recovery) == (mode in ON_CLUSTER)
    assert b"catalog.db" not in recovery
    assert cluster.secret.read_bytes() not in recovery
    for secret in (cluster.secret.read_text(), KEYS["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in "".join(seen)
        assert [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []


def test_a_folder_that_the_cluster_may_not_have_is_refused(cluster, tmp_path):
    """Executors of another machine would write into folders of their own. The file is blamed for nothing."""
    write_project(tmp_path, cluster, **{"shared = true": "shared = false"})

    with subprocess.Popen([TIDEMILL, "up"], cwd=tmp_path, stdout=-1, stderr=-2, text=True) as up:
        assert up.stdout is not None
        for line in up.stdout:
            if "folder_not_shared" in line:
                break
        up.terminate()
        up.wait(patience(60))

    with tm.open(tmp_path) as mill:
        (run,) = mill.runs.list()
        (file,) = mill.inboxes.files("orders")
        shown = mill.runs.show(run.run_id)
    assert (run.state, shown.failures, file.failures) == ("PENDING", 0, 0)


def test_a_master_without_a_secret_is_refused_before_it_is_asked(cluster, tmp_path):
    """A cluster that anyone can join is a choice to be written down."""
    write_project(tmp_path, cluster, **{f'secret = "file:{cluster.secret}"\n': ""})

    done = run_tidemill(tmp_path, "up", "--until-idle")

    assert f"[spark] give no secret for the cluster {cluster.master}" in done.stdout + done.stderr
