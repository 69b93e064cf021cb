"""Arguments of a schedule's runs: their check at deployment, and their values at launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Payload
from tidemill.epoch import show_time
from tidemill.names import JobId, advise, split_qualified
from tidemill.run.records.programs import Argument, ArgumentType, BadArgument, Program, Value, find_program
from tidemill.run.records.triggers import Place, read_payloads
from tidemill.run.step.announced import read_key_types, split_key
from tidemill.schedule.argument_sources import (
    BadArgumentSource,
    From,
    LogicalTime,
    MessageField,
    MissingSource,
    PartitionKey,
    RunField,
)
from tidemill.schedule.data_triggers import NewData, NewPartitions, WatermarkPassed
from tidemill.schedule.jobs import Job, MessageRef
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.specs import Schedule
from tidemill.schedule.time_triggers import TimeTrigger
from tidemill.schedule.topic_triggers import Hook, MessageOn
from tidemill.schedule.triggers import Fed, Leaf

_NUMBERS: Final = frozenset({ArgumentType.STRING, ArgumentType.INT, ArgumentType.FLOAT})
_TAKERS: Final[Mapping[str, frozenset[ArgumentType]]] = {
    "int": _NUMBERS,
    "long": _NUMBERS,
    "float": frozenset({ArgumentType.FLOAT}),
    "bool": frozenset({ArgumentType.BOOL}),
    "secret": frozenset({ArgumentType.SECRET}),
}
"""Types of arguments that take a value, by the type of the value. Values of all other types are text."""


def check_arguments(db: Db, program: Program, leaves: Sequence[Leaf], arguments: Mapping[str, object]) -> None:
    """Refuse arguments that `program` does not take, and sources that none of `leaves` can feed.

    Call it after `check_trigger`. Errors: `BadArgument`, `BadArgumentSource`.
    """
    sources = {name: given for name, given in arguments.items() if isinstance(given, From)}
    program.bind({name: given for name, given in arguments.items() if name not in sources}, later=sources)
    for declared in program.arguments:
        given = sources.get(declared.name)
        if given is None:
            continue
        if given.default is not None:
            declared.check(program.qualified_name, given.default)
        kind = _check_source(db, given, leaves)
        if kind and declared.type not in _TAKERS.get(kind, {ArgumentType.STRING}):
            why = f"{given.path} is of type {kind}, but the argument of type {declared.type}; declare another type"
            raise BadArgument(program.qualified_name, declared.name, why)


_FED_BY: Final[Mapping[type[RunField | MessageField], tuple[type[Leaf], ...]]] = {
    RunField: (RunEnded,),
    MessageField: (MessageOn, Hook),
}
"""The kinds of leaves whose last message has the values of a source."""


class SourceFacts(NamedTuple):
    """Cause of a run, as its sources see it: the leaves of the trigger, their feeds, and the payloads of messages.

    `run` is of the last run that ended, and `message` of the last message on a users' topic.
    """

    leaves: Sequence[Leaf]
    fed: Mapping[int, Fed]
    run: Payload
    message: Payload


def read_causes(
    db: Db, jobs: Iterable[tuple[Job, Schedule]], messages: Mapping[JobId, Sequence[MessageRef]]
) -> dict[JobId, SourceFacts]:
    """Return the causes of jobs with these messages. Cost: a look-up for each job that has a message as a source."""
    of_all = list(jobs)
    places = {
        (job.job_id, source): place
        for job, schedule in of_all
        if job.job_id in messages
        for source, kinds in _FED_BY.items()
        if any(isinstance(one, From) and isinstance(one.source, source) for one in schedule.spec.arguments.values())
        and (place := _last_place(schedule, messages.get(job.job_id, ()), kinds)) is not None
    }
    payloads = read_payloads(db, set(places.values()))
    found = {key: payloads.get(place, {}) for key, place in places.items()}
    return {
        job.job_id: SourceFacts(
            schedule.spec.trigger.leaves,
            job.fed,
            found.get((job.job_id, RunField), {}),
            found.get((job.job_id, MessageField), {}),
        )
        for job, schedule in of_all
    }


def _last_place(schedule: Schedule, messages: Sequence[MessageRef], kinds: tuple[type[Leaf], ...]) -> Place | None:
    """Return the place of the last message that fed a leaf of these kinds; None if none did."""
    leaves = schedule.spec.trigger.leaves
    return max((Place(*ref[1:]) for ref in messages if isinstance(leaves[ref.trigger_no], kinds)), default=None)


def bind_arguments(program: Program, cause: SourceFacts, arguments: Mapping[str, object]) -> dict[str, Value]:
    """Return the arguments of a run, with the values of their sources. Errors: `BadArgument`, `MissingSource`."""
    declared = {argument.name: argument for argument in program.arguments}
    return program.bind(
        {
            name: _resolve(name, given, declared.get(name), cause) if isinstance(given, From) else given
            for name, given in arguments.items()
        }
    )


def _check_source(db: Db, given: From, leaves: Sequence[Leaf]) -> str:
    """Return the type of the source's values, empty for payloads of users; `BadArgumentSource` if no leaf feeds it."""
    match given.source:
        case LogicalTime():
            if not any(isinstance(leaf, TimeTrigger | WatermarkPassed) for leaf in leaves):
                raise BadArgumentSource(given.path, "its trigger has no times; add Cron, Every or WatermarkPassed")
            return "timestamp"
        case PartitionKey(dataset=dataset, field=field):
            heard = sorted({leaf.dataset for leaf in leaves if isinstance(leaf, NewPartitions | NewData)})
            if dataset not in heard:
                advice = f"name one of {', '.join(heard)}" if heard else "add NewPartitions to it"
                raise BadArgumentSource(given.path, f"its trigger does not count partitions of {dataset}; {advice}")
            types = read_key_types(db, dataset)
            if field not in types:
                advice = advise(field, types, f"there are {', '.join(types)}")
                raise BadArgumentSource(given.path, f"{dataset} has no key field {field!r}; {advice}")
            return types[field]
        case RunField(fields=fields):
            return _check_run_field(db, given, fields, leaves)
        case MessageField():
            if not any(isinstance(leaf, MessageOn | Hook) for leaf in leaves):
                raise BadArgumentSource(given.path, "its trigger waits for no message; add MessageOn or Hook")
            return ""
        case source:
            assert_never(source)


def _check_run_field(db: Db, given: From, fields: Sequence[str], leaves: Sequence[Leaf]) -> str:
    ended = [_program_of(db, leaf) for leaf in leaves if isinstance(leaf, RunEnded)]
    if not ended:
        raise BadArgumentSource(given.path, "its trigger waits for no run; add RunEnded")
    if fields[0] == "values":
        return _check_value(given, fields[1], ended)
    declared = {argument.name: argument.type for program in ended for argument in program.arguments}
    if len(fields) > 1 and fields[-1] not in declared:
        advice = advise(fields[-1], declared, f"there are {', '.join(declared) or 'none'}")
        names = ", ".join(program.qualified_name for program in ended)
        raise BadArgumentSource(given.path, f"{names} declares no argument {fields[-1]!r}; {advice}")
    return declared[fields[-1]] if len(fields) > 1 else "string"


def _check_value(given: From, name: str, ended: Sequence[Program]) -> str:
    """Refuse a value of a node that no workflow has, and a value of a workflow without its node."""
    for program in ended:
        nodes = [] if program.workflow is None else [node.name for node in program.workflow.nodes]
        node, _, value = name.partition(".")
        if nodes and (not value or node not in nodes):
            why = (
                f"{program.qualified_name} is a workflow: write run.values.NODE.NAME, with a node of {', '.join(nodes)}"
            )
            raise BadArgumentSource(given.path, why)
    return ""


def _program_of(db: Db, leaf: RunEnded) -> Program:
    namespace, (app, name) = split_qualified("program", leaf.program, 2)
    return find_program(db, namespace, app, name)


def _resolve(name: str, given: From, declared: Argument | None, cause: SourceFacts) -> Value:
    found: Value | None
    match given.source:
        case LogicalTime():
            fires = [one.fired_at for one in cause.fed.values() if one.fired_at is not None]
            found, why = (show_time(max(fires)) if fires else None), "no time fed the job"
        case PartitionKey(dataset=dataset, field=field):
            found, why = _last_key(dataset, cause).get(field), f"no partition of {dataset} fed the job"
        case RunField(fields=fields):
            found, why = _dig(cause.run, fields), "no run with such a value fed the job"
        case MessageField(fields=fields):
            found, why = _dig(cause.message, fields), "no message with such a value fed the job"
        case source:
            assert_never(source)
    if found is None:
        if given.default is None:
            raise MissingSource(name, given.path, why)
        return given.default
    return found if declared is None else _convert(found, declared.type)


def _convert(found: Value, wanted: ArgumentType) -> Value:
    """Return a whole number as text, or the other way round, if the argument is declared so."""
    match found:
        case int() if wanted is ArgumentType.STRING and not isinstance(found, bool):
            return str(found)
        case str() if wanted in {ArgumentType.INT, ArgumentType.FLOAT} and found.removeprefix("-").isdecimal():
            return int(found)
        case _:
            return found


def _dig(payload: Payload, fields: Sequence[str]) -> Value | None:
    """Return the value in `payload` to which `fields` lead; None if there is none."""
    found: object = payload
    for field in fields:
        found = found.get(field) if isinstance(found, Mapping) else None
    return found if isinstance(found, str | int | float | bool) else None


def _last_key(dataset: str, cause: SourceFacts) -> Mapping[str, str]:
    """Return the fields of the last partition of `dataset` that fed the job; none if none did."""
    last = [
        (one.last_at, one.partition)
        for trigger_no, one in cause.fed.items()
        if isinstance(leaf := cause.leaves[trigger_no], NewPartitions | NewData)
        and leaf.dataset == dataset
        and one.partition
    ]
    return split_key(max(last)[1]) if last else {}
