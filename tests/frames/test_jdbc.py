"""Database as a source, before a connection (its reads: tests/app/test_pipeline.py)."""

from __future__ import annotations

import pytest

from tidemill.frames.jdbc import BadSource, Jdbc, MissingSecret
from tidemill.world import World


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("postgresql://me:secret@crm/app", {"table": "users"}, "its URL holds a password, which would be stored"),
        ("postgresql://crm/app?password=secret", {"table": "users"}, "its URL holds a password"),
        ("postgresq://crm/app", {"table": "users"}, "there is no database 'postgresq'; did you mean 'postgresql'?"),
        ("oracle://crm/app", {"table": "users"}, "there is no database 'oracle'; there are postgresql, mariadb, mysql"),
        ("crm/app", {"table": "users"}, "there is no database ''"),
        ("postgresql://crm", {"table": "users"}, "names no host or no database"),
        ("postgresql:///app", {"table": "users"}, "names no host or no database"),
        ("postgresql://crm/app", {}, "give either table= or query="),
        ("postgresql://crm/app", {"table": "users", "query": "SELECT 1"}, "give either table= or query="),
        ("postgresql://crm/app", {"table": "users", "password": "secret"}, "must be a reference"),
        ("postgresql://crm/app", {"table": "users", "password": "env:"}, "must be a reference"),
        ("mariadb://crm/app", {"table": "users", "partition_column": "id"}, "leave partition_column out"),
    ],
)
def test_a_source_that_cannot_be_is_refused_where_it_is_declared(url, options, why):
    """With what is wrong and the cure; and never with the secret itself."""
    with pytest.raises(BadSource) as refused:
        Jdbc(url, **options)

    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_source_shows_neither_user_nor_password():
    """Logs and errors show the source."""
    source = Jdbc("jdbc:postgresql://me@crm:5433/app", table="users", password="env:CRM_PASSWORD")

    assert source.shown == "postgresql://crm:5433/app users"


def test_a_secret_that_is_not_there_is_named_with_its_place():
    """The variable has to be set where the runner is started, not where the app was deployed."""
    source = Jdbc("postgresql://crm/app", table="users", password="env:CRM_PASSWORD")

    with pytest.raises(MissingSecret, match="set the environment variable CRM_PASSWORD where the runner is started"):
        source._login(World(environ={}))
