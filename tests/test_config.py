"""Configuration: the file, then variables, then options."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tidemill.config import BadConfig, load_config, masked, without_password
from tidemill.stores import find_store
from tidemill.world import World


@pytest.fixture
def world():
    """A world with an empty environment."""
    return replace(World(), environ={"HOME": "/home/someone"})


def write(folder, text):
    """Write the project's configuration."""
    (folder / "tidemill.toml").write_text(text, encoding="utf-8")


def test_without_a_file_all_state_lies_in_the_project(world, tmp_path):
    """The embedded default: nothing to configure, nothing outside of the project but the cache."""
    config = load_config(world, tmp_path)

    assert config.catalog == f"sqlite:///{tmp_path}/.tidemill/catalog.db"
    assert config.data == str(tmp_path / ".tidemill" / "data")
    assert config.lease == timedelta(seconds=60)
    assert set(config.sources.values()) == {"default"}


def test_an_option_beats_a_variable_and_a_variable_the_file(world, tmp_path):
    """As everywhere: the nearer to the call, the stronger."""
    write(tmp_path, 'namespace = "file"\ndata = "file"\ncatalog = "sqlite:///file.db"\n')
    world = replace(world, environ={"TIDEMILL_DATA": "variable", "TIDEMILL_CATALOG": "sqlite:////variable.db"})

    config = load_config(world, tmp_path, {"catalog": "sqlite:////option.db"})

    assert (config.namespace, config.data, config.catalog) == (
        "file",
        str(tmp_path / "variable"),
        "sqlite:////option.db",
    )
    assert (config.sources["namespace"], config.sources["data"], config.sources["catalog"]) == (
        "tidemill.toml",
        "TIDEMILL_DATA",
        "option",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("katalog = 'x'", "did you mean 'catalog'"),
        ("[runner]\nslot = 2", "did you mean 'runner.slots'"),
        ("[spark]\nmasters = 'x'", "did you mean 'spark.master'"),
        ("[runner]\nslots = 0", "whole number from 1"),
        ("[runner]\nlease = '1s'", "5s to 1h"),
        ("[runner]\nlease = 60", "units"),
        ("namespace = '../x'", "is refused"),
        ("catalog = [1]", "one value"),
        ("catalog = ", "tidemill.toml"),
        ("log_format = 'xml'", "text or json"),
        ("[server]\nproxies = 'proxy.example.com'", "server.proxies"),
        ("[server]\ntrust_header = 'a b'", "X-Forwarded-User"),
        ("[server]\nmax_streams = 0", "whole number from 1"),
        ("[server]\nuser = 'x'", "did you mean 'server.users'"),
        ("[stores.lake]\nurl = 'gs://lake'", "use the URL of a bucket"),
        ("[stores.lake]\nregion = 'eu-central-1'", "stores.lake.url"),
        ("[stores.lake]\nurl = 's3://lake'\nendpont = 'x'", "did you mean 'endpoint'"),
        ("[stores.lake]\nurl = 's3://lake'\npath_style = 'maybe'", "use true or false"),
        ("[stores.lake]\nurl = 's3://lake'\ncredentials = 'AKIAIOSFODNN7EXAMPLE'", "never a secret itself"),
        ("[spark.profiles.big]\nmasters = 'local'", "did you mean 'master'"),
        ("[spark.profiles.big]\nclass_data = true", "known are master, warm, driver_host"),
        ("[spark.profiles.big]\nwarm = 17", r"spark.profiles.big.warm.*from 0 to 16"),
        ("[spark.profiles.big]\nconf = 'x'", "there is no such setting"),
        ("[spark]\nsecret = 'hush'", "name the place of the secret"),
        ("[spark]\ndeploy_mode = 'worker'", "use client or cluster"),
        ("[spark]\ndeploy_mode = 'cluster'", r"spark.deploy_mode.*standalone master.*the master is 'local\[\*\]'"),
        ("[spark]\nmaster = 'yarn'\ndeploy_mode = 'cluster'", "the master is 'yarn'"),
        ("[spark.profiles.big]\ndeploy_mode = 'cluster'", "spark.profiles.big.deploy_mode.*standalone master"),
        (
            "[spark]\nmaster = 'spark://a'\ndeploy_mode = 'cluster'\n[spark.profiles.here]\nmaster = 'local[2]'",
            r"spark.profiles.here.deploy_mode.*the master is 'local\[2\]'",
        ),
        ("[spark.profiles]\nbig = 'local'", r"a table \[spark.profiles.big\] is wanted"),
        ("[spark.profiles.'a b']\nwarm = 1", "Spark profile"),
        ("[spark.profiles.big]\nmaster = ['local']", "one value"),
    ],
)
def test_a_wrong_setting_is_named_with_its_cure(world, tmp_path, text, message):
    """A typing error must not be a silent default."""
    write(tmp_path, text)

    with pytest.raises(BadConfig, match=message):
        load_config(world, tmp_path)


def test_settings_of_spark_pass_through(world, tmp_path):
    """Spark has hundreds; they are Spark's to check."""
    write(tmp_path, '[spark.conf]\n"spark.sql.shuffle.partitions" = 8\n"spark.ui.enabled" = true\n')

    config = load_config(world, tmp_path)

    assert config.spark.conf == {"spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "true"}


def test_the_table_with_the_longest_url_leads_to_a_location(world, tmp_path):
    """A bucket may have folders of another owner, with other keys."""
    tables = {"lake": "s3://lake", "guests": "s3://lake/guests/", "other": "s3://other", "blank": "s3://lake/a b"}
    write(tmp_path, "".join(f"[stores.{name}]\nurl = '{url}'\n" for name, url in tables.items()))
    config = load_config(world, tmp_path)

    ways = {
        "s3://lake/a": "lake",
        "s3://lake/guests/a": "guests",
        "s3://lake/guestsbook": "lake",
        "s3://lakes": "",
        "s3://other": "other",
        "s3://lake/a%20b/c": "blank",
    }

    assert {way: find_store(config.stores, way).name for way in ways} == ways
    assert config.shown()["stores.guests.url"] == "s3://lake/guests"


def test_a_named_profile_of_spark_is_laid_over_the_usual_settings(world, tmp_path):
    """A site says once what holds for all; a master of `[spark.conf]` must not win over that of the profile."""
    text = """
[spark]
warm = 3
conf = { "spark.master" = "local[1]", "spark.executor.memory" = "1g", "spark.x.password" = "hush" }

[spark.profiles.big]
master = "spark://here:7077"
secret = "env:CLUSTER"
shared = true
deploy_mode = "cluster"
conf = { "spark.executor.memory" = "4g" }

[spark.profiles.same]
conf = {}

[spark.profiles.cold]
warm = 0
"""
    write(tmp_path, text)

    config = load_config(replace(world, environ={"TIDEMILL_SPARK_MASTER": "local[7]"}), tmp_path)

    profiles = {name: (one.master, one.warm) for name, one in config.spark_profiles.items()}
    assert profiles == {"big": ("spark://here:7077", 3), "same": ("local[7]", 3), "cold": ("local[7]", 0)}
    assert config.spark_profiles["big"].conf == {"spark.executor.memory": "4g", "spark.x.password": "hush"}
    assert config.spark_profiles["same"].conf == config.spark.conf
    assert config.shown()["spark.profiles.big.master"] == "spark://here:7077"
    assert (config.spark.on_cluster, config.spark_profiles["big"].on_cluster) == (False, True)
    assert (config.spark_profiles["big"].secret, config.spark_profiles["big"].shared) == ("env:CLUSTER", True)
    assert (config.spark.is_local, config.spark_profiles["big"].is_standalone) == (True, True)
    assert config.shown()["spark.profiles.big.conf"] == {"spark.executor.memory": "4g", "spark.x.password": "*****"}


@pytest.mark.parametrize("table", ["spark.conf", "spark.profiles", "server.users", "stores"])
def test_a_table_of_comments_alone_is_no_setting(world, tmp_path, table):
    """A person takes out the last line, and leaves the head."""
    write(tmp_path, f"[{table}]\n# nothing\n")

    config = load_config(world, tmp_path)

    assert (config.spark.conf, config.spark_profiles, config.stores) == ({}, {}, ())


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("[stores.lake]\nurl = 's3://lake'\nendpoint = 'http://me:hush@minio:9000'", "stores.lake.endpoint"),
        ("[stores.lake]\nurl = 's3://lake'\nendpoint = 'http://me:hu/hush@minio:9000'", "stores.lake.endpoint"),
        ("[stores.lake]\nurl = 's3://lake'\nendpoint = 'http://minio:hush'", "stores.lake.endpoint"),
        ("[stores.lake]\nurl = 's3://ID:hush@lake'", "stores.lake.url"),
        ("data = 's3://ID:hu/hush@lake/data'", "data"),
        ("logs = 's3://ID:hush@lake/logs'", "logs"),
    ],
)
def test_a_key_in_the_address_of_a_store_is_refused_without_being_shown(world, tmp_path, text, setting):
    """`doctor` printed it, and so did errors. Keys have a place of their own."""
    write(tmp_path, text)

    with pytest.raises(BadConfig, match=f"{setting}.*use ") as caught:
        load_config(world, tmp_path)

    assert "hush" not in str(caught.value)


def test_addresses_of_stores_are_taken(world, tmp_path):
    """Test servers, servers without a name, and gateways with a path."""
    for endpoint in ("http://127.0.0.1:9000", "https://[::1]:9000/", "https://minio_1.example.org/gateway/s3"):
        write(tmp_path, f"[stores.lake]\nurl = 's3://lake/a@b:c'\nendpoint = '{endpoint}'")

        assert load_config(world, tmp_path).stores[0].endpoint == endpoint


def test_settings_of_named_tables_have_the_file_as_their_source(world, tmp_path):
    """`doctor` called each of them a default."""
    write(
        tmp_path,
        "[stores.lake]\nurl = 's3://lake'\n[spark.profiles.big]\nmaster = 'local[2]'\nconf.'a.b' = '1'\n"
        "[spark.conf]\n'c.d' = '2'\n[server.users]\nann = 'READER'\n",
    )

    config = load_config(world, tmp_path)

    given = {name for name, source in config.sources.items() if source == "tidemill.toml"}
    tables = {"spark.conf", "server.users"}
    assert given == {"stores.lake.url", "spark.profiles.big.master", "spark.profiles.big.conf", *tables}
    assert given <= config.shown().keys()


def test_a_password_is_never_shown():
    """`doctor` is pasted into tickets."""
    assert without_password("postgresql://me:secret@db:5432/x") == "postgresql://me@db:5432/x"
    assert without_password("sqlite:///x.db") == "sqlite:///x.db"


def test_settings_of_spark_are_shown_without_secrets(world, tmp_path):
    """`tidemill doctor` prints them, and each run records them."""
    settings = {
        "spark.executor.memory": "4g",
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.hadoop.fs.s3a.access.key": "hush",
        "spark.hadoop.dav": "https://ann:hush@files.example.org/",
        "spark.executor.extraJavaOptions": "-Dstore.password=hush",
        "spark.site.pin": "hush",
        "spark.redaction.regex": "[.]pin$",
    }
    write(tmp_path, "[spark.conf]\n" + "".join(f"{name} = {value!r}\n" for name, value in settings.items()))

    shown = load_config(world, tmp_path).shown()["spark.conf"]

    assert "hush" not in str(shown)
    assert [value for value in shown.values() if value != "*****"] == ["4g", "[.]pin$"]
    assert masked({"spark.redaction.regex": "(?<x", "spark.executor.memory": "4g"})["spark.executor.memory"] == "*****"


def test_the_site_says_if_deployments_change_schedules(world, tmp_path):
    """They do unless the site says otherwise (seed 001)."""
    before = load_config(world, tmp_path).update_schedules
    write(tmp_path, "[deploy]\nupdate_schedules = false\n")
    after = load_config(world, tmp_path)
    variable = replace(world, environ={"TIDEMILL_DEPLOY_UPDATE_SCHEDULES": "true"})

    assert (before, after.update_schedules, load_config(variable, tmp_path).update_schedules) == (True, False, True)
    assert after.shown()["deploy.update_schedules"] is False
