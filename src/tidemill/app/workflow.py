"""Workflows, as apps declare them: nodes, which are programs of the app, and what the workflow holds for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from tidemill.app.declared import BadDeclaration, DeclaredProgram
from tidemill.app.reads import Changes, Reads
from tidemill.errors import UserError
from tidemill.run.records.programs import Argument, Code
from tidemill.run.records.values import Value
from tidemill.run.records.workflow_spec import NodeSpec, NodeValue, When


@dataclass(frozen=True, slots=True)
class DeclaredNode:
    """A node of a workflow: a program of the app, which starts when the programs `after` which it comes have ended.

    One of them must have completed. With `when`, all conditions must hold. A node whose conditions do not hold is
    skipped. `arguments` are values, or `NodeValue("fetch.rows")`. The arguments of the workflow are passed on by name.
    """

    program: str | Code
    after: Sequence[str | Code] = ()
    when: When | Sequence[When] = ()
    arguments: Mapping[str, Value | NodeValue] = field(default_factory=dict)


class Workflow:
    """A declared workflow, as `App.workflow` returns it: `App.schedule` and `RunEnded` take it as their program."""

    def __init__(self, name: str, qualified_name: str) -> None:
        self.__name__ = name
        self.qualified_name = qualified_name

    def __call__(self, *_: object) -> NoReturn:
        """Refuse the call: a workflow has no code."""
        raise NotImplementedError(f"{self.qualified_name} is a workflow: `tidemill run start` starts it")


def check_nodes(workflow: str, nodes: object) -> None:
    """Refuse what is no list of nodes, a program where a node is wanted, and a node whose `after` is no list."""
    if isinstance(nodes, str) or not isinstance(nodes, Sequence):
        shown = "tm.Node(…)" if isinstance(nodes, DeclaredNode) else f"tm.Node({_show(nodes)})"
        raise BadDeclaration(f"workflow {workflow!r}", f"has no list of nodes: write [{shown}]")
    for node in nodes:
        if not isinstance(node, DeclaredNode):
            raise BadDeclaration(f"workflow {workflow!r}", f"has {_show(node)} as a node: write tm.Node({_show(node)})")
        if isinstance(node.after, str) or not isinstance(node.after, Sequence):
            why = (
                f"has the node {_show(node.program)} with after={_show(node.after)}: write after=[{_show(node.after)}]"
            )
            raise BadDeclaration(f"workflow {workflow!r}", why)


def _show(program: object) -> str:
    return str(getattr(program, "__name__", repr(program)))


def make_node(name: str, after: tuple[str, ...], node: DeclaredNode) -> NodeSpec:
    """Return a node as data, given the names of its program and of the nodes before it."""
    values = {argument: one for argument, one in node.arguments.items() if isinstance(one, NodeValue)}
    constants = {argument: one for argument, one in node.arguments.items() if not isinstance(one, NodeValue)}
    when = (node.when,) if isinstance(node.when, When) else tuple(node.when)
    return NodeSpec(name, after, when, constants, values)


def check_node(workflow: str, program: DeclaredProgram, node: NodeSpec, given: Sequence[Argument]) -> None:
    """Refuse a program that cannot be a node, and arguments that it does not take or does not get."""
    if why := _find_fault(program, node, {one.name: one for one in given}):
        raise BadDeclaration(f"workflow {workflow!r}", f"has the node {node.name!r}, {why}")


def _find_fault(program: DeclaredProgram, node: NodeSpec, passed: Mapping[str, Argument]) -> str:
    if program.kind.is_worker or program.workflow is not None:
        return (
            "which never ends: it is a worker" if program.kind.is_worker else "which is a workflow: name its nodes here"
        )
    declared = {one.name: one for one in program.arguments}
    defaults = {name: one.default for name, one in node.values.items() if one.default is not None}
    if unknown := (node.arguments.keys() | node.values.keys()) - declared.keys():
        return f"which declares no argument {min(unknown)!r}"
    for name, value in {**node.arguments, **defaults}.items():
        try:
            declared[name].check(program.name, value)
        except UserError as error:
            return f"whose {error}"
    for one in program.arguments:
        if one.name in node.arguments or one.name in node.values:
            continue
        own = passed.get(one.name)
        if own is not None and own.type is not one.type:
            return f"whose argument {one.name!r} is of type {one.type}, and of type {own.type} in the workflow"
        if own is None and one.default is None:
            return f"which needs the argument {one.name!r}: give it, or declare it for the workflow"
    return ""


def check_holds(workflow: str, holds: Iterable[Reads | Changes]) -> tuple[Reads, ...]:
    """Return what a workflow holds; `BadDeclaration` for what has no claims, or is read on terms that need code."""
    found = []
    for one in holds:
        if not isinstance(one, Reads):
            raise BadDeclaration(f"workflow {workflow!r}", "holds the changes of a snapshot: only claims can be held")
        if one.accept is not None:
            why = "holds a file set with an acceptor: let the node that reads the file set decide"
            raise BadDeclaration(f"workflow {workflow!r}", why)
        found.append(one)
    return tuple(found)
