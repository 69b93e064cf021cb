"""A stand-in for Airflow, which is not installed: it keeps the tasks of a DAG, and runs them in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any


class Skipped(Exception):
    """`AirflowSkipException`."""


class Failed(Exception):
    """`AirflowFailException`."""


@dataclass(eq=False)
class Node:
    """A task in a DAG: its function, its arguments, the tasks before it, and the rule by which it runs."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rule: str
    above: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.function.__name__

    def __rshift__(self, later: Node) -> Node:
        later.above.append(self)
        return later

    def __rrshift__(self, earlier: list[Node]) -> Node:
        self.above += earlier
        return self


@dataclass
class Dag:
    """A DAG, as its file declares it."""

    options: dict[str, Any]
    nodes: list[Node] = field(default_factory=list)

    def run(self, run_id: str) -> dict[str, str]:
        """Run the tasks once each; return the state of each task."""
        _context["run_id"] = run_id
        states: dict[str, str] = {}
        results: dict[str, Any] = {}
        for node in self.nodes:
            before = {states[one.name] for one in node.above}
            runs = "failed" in before if node.rule == "one_failed" else before <= {"success"}
            if not runs:
                states[node.name] = (
                    "upstream_failed" if "failed" in before or "upstream_failed" in before else "skipped"
                )
                continue
            try:
                given = [results.get(one.name) if isinstance(one, Node) else one for one in node.arguments]
                results[node.name] = node.function(*given)
                states[node.name] = "success"
            except Skipped:
                states[node.name] = "skipped"
            except Exception:  # noqa: BLE001  # a task of a user fails by any error
                states[node.name] = "failed"
        return states


_context: dict[str, Any] = {}


@contextmanager
def dag_of(file: Path) -> Iterator[Dag]:
    """Load the file of a DAG with its neighbours, and yield its DAG."""
    found: list[Dag] = []

    def dag(**options: Any) -> Callable[[Callable[[], object]], Callable[[], None]]:
        def decorate(body: Callable[[], object]) -> Callable[[], None]:
            def make() -> None:
                found.append(Dag(options))
                body()

            return make

        return decorate

    def task(function: Callable[..., Any] | None = None, **options: Any) -> Any:
        def decorate(body: Callable[..., Any]) -> Callable[..., Node]:
            def call(*given: Any) -> Node:
                node = Node(body, given, options.get("trigger_rule", "all_success"))
                node.above += [one for one in given if isinstance(one, Node)]
                found[-1].nodes.append(node)
                return node

            return call

        return decorate if function is None else decorate(function)

    airflow, sdk, exceptions = (ModuleType(name) for name in ("airflow", "airflow.sdk", "airflow.exceptions"))
    vars(sdk).update(dag=dag, task=task, get_current_context=lambda: _context)
    vars(exceptions).update(AirflowSkipException=Skipped, AirflowFailException=Failed)
    modules = {"airflow": airflow, "airflow.sdk": sdk, "airflow.exceptions": exceptions}
    before = dict(sys.modules)
    sys.modules.update(modules)
    sys.path.insert(0, str(file.parent))
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"__name__": "dag"})
        (only,) = found
        yield only
    finally:
        sys.path.remove(str(file.parent))
        for name in {*modules, "tidemill_files"}:
            sys.modules.pop(name, None)
            if name in before:
                sys.modules[name] = before[name]
