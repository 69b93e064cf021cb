"""JSON forms of specs: the border between the dataclasses of a declaration and the JSON that the catalog keeps.

Other modules declare specs as frozen dataclasses, and this module reads and writes them. A spec is valid by
construction: reading one runs the checks of its `__post_init__`. Only this module imports cattrs, which does the work
(docs/decisions/0003-cattrs-reads-and-writes-specs.md).

Forms: a dataclass is an object with its fields, a `timedelta` is text (`1h30m`), an aware `datetime` its epoch
milliseconds, a `StrEnum` its value. A class with another form declares that form where the class stands: `renamed`,
`sparse`, `union` or `shaped`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, get_args, get_origin

from tidemill.durations import BadDuration, format_duration, parse_duration
from tidemill.epoch import from_ms, to_ms
from tidemill.errors import UserError
from tidemill.names import advise

if TYPE_CHECKING:
    from cattrs import Converter
    from cattrs.dispatch import StructureHook

_T = TypeVar("_T")
_S = TypeVar("_S")

_WORDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    dict: "a JSON object",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "text",
}
_LISTS: Final[tuple[object, ...]] = (tuple,)
_MAPPINGS: Final[tuple[object, ...]] = (dict, Mapping)
_TAG: Final = "type"
_MOST_SHOWN: Final = 80  # a line of a terminal


class BadJson(UserError):
    """JSON that is not the form of a spec: written by hand with a slip, damaged, or of a newer Tidemill."""

    code = "bad_json"

    def __init__(self, kind: str, why: str) -> None:
        self.kind = kind
        self.why = why
        super().__init__(
            f"the JSON of {kind} is refused: {why}", "if a newer Tidemill wrote the JSON, upgrade this one"
        )


@dataclass(frozen=True, slots=True)
class _Shape:
    """Another form of a class: the JSON of `kind`, and the functions from and to it."""

    kind: Any
    read: Callable[[Any], object]
    write: Callable[[Any], object]


_names: Final[dict[object, Mapping[str, str | None]]] = {}
_sparse: Final[set[object]] = set()
_shapes: Final[dict[object, _Shape]] = {}
_unions: Final[dict[object, dict[str, type]]] = {}
_plugins: Final[dict[type, Callable[[], Mapping[str, type]]]] = {}
_tags: Final[dict[object, str]] = {}
_stand_ins: Final[dict[type, Callable[[str, Mapping[str, object]], object]]] = {}
_stand_in_kinds: Final[set[type]] = set()
_in_store: Final[ContextVar[bool]] = ContextVar("in_store", default=False)


def renamed(kind: type, **names: str | None) -> None:
    """Declare other names of fields in JSON. None leaves the field out: the class makes its value itself."""
    _names[kind] = names


def sparse(kind: type[_T]) -> type[_T]:
    """Declare that JSON leaves out the fields that have their default."""
    _sparse.add(kind)
    return kind


def shaped(kind: type[_T], shape: type[_S], read: Callable[[_S], _T], write: Callable[[_T], _S]) -> None:
    """Declare that the JSON of `kind` is the JSON of a `shape`: a dataclass, or a `dict[str, str]`."""
    _shapes[kind] = _Shape(shape, read, write)


def union(base: type, kinds: Mapping[str, type], plugins: Callable[[], Mapping[str, type]] | None = None) -> None:
    """Declare that a `base` is one of `kinds`; JSON names the kind in its field `type`.

    `plugins` gives further kinds. The first JSON or value of a kind that is not known calls it.
    """
    _unions[base] = dict(kinds)
    _tags.update({kind: tag for tag, kind in kinds.items()})
    if plugins is not None:
        _plugins[base] = plugins


def stand_in(base: type, kind: type, make: Callable[[str, Mapping[str, object]], object]) -> None:
    """Declare what `read_stored` gives for a `base` of an unknown kind: a `kind`, which `make` makes of tag and JSON.

    Its attribute `plain` is the JSON text that is written for it.
    """
    _stand_ins[base] = make
    _stand_in_kinds.add(kind)


def read_plain(kind: type[_T], plain: object) -> _T:
    """Make a `kind` of decoded JSON.

    `BadJson` says where the JSON has another form; a field that `kind` does not have is refused too. A value that
    `kind` refuses raises the error of `kind`.
    """
    try:
        return _converter(detailed=False).structure(plain, kind)
    except BadDuration:  # of which field, the second look says
        return _explain(kind, plain)
    except UserError:
        raise
    except Exception:  # noqa: BLE001  # whatever another form leads to; the second look says what
        return _explain(kind, plain)


def read_text(kind: type[_T], text: str) -> _T:
    """Make a `kind` of JSON text; errors as of `read_plain`."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadJson(kind.__name__, f"it is no JSON: {error}") from None
    return read_plain(kind, plain)


def read_stored(kind: type[_T], text: str) -> _T:
    """Make a `kind` of JSON text from the catalog; errors as of `read_plain`.

    A part of a kind that is not known becomes a stand-in: its package may be there on another machine.
    """
    before = _in_store.set(True)
    try:
        return read_text(kind, text)
    finally:
        _in_store.reset(before)


def write_plain(spec: object) -> Any:  # noqa: ANN401  # JSON
    """Return what `read_plain` reads back as `spec`. `BadJson` for values nested too deep to be read back."""
    try:
        return _converter(detailed=False).unstructure(spec)
    except RecursionError:
        raise BadJson(type(spec).__name__, "its values are nested too deep; use fewer levels") from None


def write_checked(spec: object, refuse: Callable[[str], UserError]) -> Any:  # noqa: ANN401  # JSON
    """Return the JSON of a declared spec; raise `refuse(why)` for a value of a wrong type, which no reader accepts."""
    plain = write_plain(spec)
    try:
        read_plain(type(spec), plain)
    except BadJson as error:
        raise refuse(error.why) from None
    return plain


def write_text(spec: object) -> str:
    """Return the JSON text that `read_text` reads back as `spec`."""
    return json.dumps(write_plain(spec))


def copy_of(spec: _T) -> _T:
    """Return a copy of a frozen dataclass, some of whose fields the caller is about to set.

    Nothing is checked a second time, as `replace` would: thousands of specs that differ in one field are read at once.
    """
    kind: type = type(spec)
    read, sets = _slots(kind)
    copy: _T = object.__new__(kind)
    for put, value in zip(sets, read(spec), strict=True):
        put(copy, value)
    return copy


@cache
def _slots(kind: type) -> tuple[attrgetter[tuple[object, ...]], tuple[Callable[[object, object], None], ...]]:
    names = [one.name for one in fields(kind)]
    return attrgetter(*names), tuple(getattr(kind, name).__set__ for name in names)


def has_tag(kind: Any) -> bool:  # noqa: ANN401  # a type
    """Return whether `kind` is one of a union, so that JSON has a name for it, perhaps as a plug-in."""
    if kind in _tags or not isinstance(kind, type):
        return kind in _tags
    if kind in _stand_in_kinds:
        return True
    for base in _plugins:
        if issubclass(kind, base) and kind is not base:
            _add_plugins(base)
    return kind in _tags


def tag_of(value: object) -> str:
    """Return the name of the value's kind in JSON, of a value of a union."""
    if not has_tag(type(value)):
        raise TypeError(f"{type(value).__name__} is of no union")
    if type(value) in _stand_in_kinds:
        return str(_write_stand_in(value)[_TAG])
    return _tags[type(value)]


def list_tags(base: type) -> list[str]:
    """Return the names in JSON of all kinds of a union, with those of plug-ins."""
    _add_plugins(base)
    return sorted(_unions[base])


@cache
def _converter(*, detailed: bool) -> Converter:
    """Make the converter on first use: most commands read no spec, and cattrs takes 30 ms to import.

    The `detailed` one notes the path to each value, and is three times slower: it explains what the other refuses.
    """
    from cattrs import Converter

    converter = Converter(
        forbid_extra_keys=True, detailed_validation=detailed, unstruct_collection_overrides={tuple: list}
    )
    converter.register_structure_hook(bool, _of)
    converter.register_structure_hook(int, _of)
    converter.register_structure_hook(float, lambda value, _: float(_of(value, float, int)))
    converter.register_structure_hook(str, _read_str)
    # Cached: specs say the same few durations again and again, and reading them was half of the time.
    read_duration = lru_cache(maxsize=256)(parse_duration)
    converter.register_structure_hook(timedelta, lambda value, _: read_duration(_of(value, str)))
    converter.register_structure_hook(datetime, lambda value, _: from_ms(_of(value, int)))
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    converter.register_structure_hook_func(_is_plain_union, _read_plain_union)
    on_read_by, on_write_by = converter.register_structure_hook_factory, converter.register_unstructure_hook_factory
    on_read_by(lambda kind: get_origin(kind) in _LISTS, _tuple_reader)
    on_read_by(lambda kind: get_origin(kind) in _MAPPINGS, _mapping_reader)
    on_read_by(is_dataclass, _fields_reader)
    on_read_by(_shapes.__contains__, _shape_reader)
    on_read_by(_unions.__contains__, _union_reader)
    # A value without a declared type, such as an argument, is written by its class.
    converter.register_unstructure_hook_func(lambda kind: kind is object, converter.unstructure)
    converter.register_unstructure_hook(StrEnum, attrgetter("value"))
    converter.register_unstructure_hook(datetime, to_ms)
    converter.register_unstructure_hook(timedelta, format_duration)
    on_write_by(is_dataclass, _fields_writer)
    on_write_by(_shapes.__contains__, _shape_writer)
    # The value decides which kind of a union is written.
    on_write_by(_unions.__contains__, lambda _, within: within.unstructure)
    on_write_by(has_tag, _tag_writer)
    converter.register_unstructure_hook_func(_stand_in_kinds.__contains__, _write_stand_in)
    return converter


def _tuple_reader(kind: Any, converter: Converter) -> StructureHook:  # noqa: ANN401  # a type
    from cattrs.cols import homogenous_tuple_structure_factory

    return _checked(list, homogenous_tuple_structure_factory(kind, converter))


def _mapping_reader(kind: Any, converter: Converter) -> StructureHook:  # noqa: ANN401  # a type
    from cattrs.cols import mapping_structure_factory

    return _checked(dict, mapping_structure_factory(kind, converter))


def _fields_reader(kind: Any, converter: Converter) -> StructureHook:  # noqa: ANN401  # a type
    from cattrs.gen import make_dict_structure_fn

    return _checked(dict, make_dict_structure_fn(kind, converter, **_overrides(kind)))


def _fields_writer(kind: Any, converter: Converter) -> Callable[[Any], dict[str, Any]]:  # noqa: ANN401  # a type
    from cattrs.gen import make_dict_unstructure_fn

    return make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=kind in _sparse, **_overrides(kind))


def _overrides(kind: object) -> dict[str, Any]:
    from cattrs import override

    names = _names.get(kind, {})
    return {name: override(omit=True) if other is None else override(rename=other) for name, other in names.items()}


def _shape_reader(kind: object, converter: Converter) -> StructureHook:
    shape = _shapes[kind]
    return lambda value, _: shape.read(converter.structure(value, shape.kind))


def _shape_writer(kind: object, converter: Converter) -> Callable[[Any], Any]:
    shape = _shapes[kind]
    return lambda value: converter.unstructure(shape.write(value), shape.kind)


def _union_reader(base: object, converter: Converter) -> StructureHook:
    readers: dict[str, StructureHook] = {}

    def read(value: object, _: object) -> object:
        rest = dict(_of(value, dict))
        tag = rest.pop(_TAG, None)
        known = isinstance(tag, str) and _is_known(base, tag)
        if isinstance(tag, str) and not known and _in_store.get() and base in _stand_ins:
            return _stand_ins[base](tag, _of(value, dict))
        if not isinstance(tag, str) or not known:
            raise _Unfit(f"has no {_TAG} that is known; {_advise(tag, _unions[base])}")
        if tag not in readers:
            kind = _unions[base][tag]
            readers[tag] = (_shape_reader if kind in _shapes else _fields_reader)(kind, converter)
        return readers[tag](rest, _unions[base][tag])

    return read


def _is_known(base: Any, tag: str) -> bool:  # noqa: ANN401  # a type
    """Return whether a union has that kind, perhaps one of a plug-in."""
    if tag not in _unions[base]:
        try:
            _add_plugins(base)
        except UserError:  # a package that cannot be loaded
            if not _in_store.get():
                raise
    return tag in _unions[base]


def _write_stand_in(value: Any) -> dict[str, Any]:  # noqa: ANN401  # one of `_stand_in_kinds`
    plain: dict[str, Any] = json.loads(value.plain)
    return plain


def _add_plugins(base: type) -> None:
    for tag, kind in _plugins[base]().items() if base in _plugins else ():
        if _unions[base].setdefault(tag, kind) is not kind:
            raise BadJson(base.__name__, f"a plug-in has the name {tag!r}, which another kind has")
        _tags[kind] = tag


def _tag_writer(kind: Any, converter: Converter) -> Callable[[Any], dict[str, Any]]:  # noqa: ANN401  # a type
    write = (_shape_writer if kind in _shapes else _fields_writer)(kind, converter)
    tag = {_TAG: _tags[kind]}
    return lambda value: tag | write(value)


def _advise(given: object, known: Iterable[str]) -> str:
    names = [str(name) for name in known]
    return advise(str(given), names, f"there are {', '.join(names)}")


class _Unfit(TypeError):
    """A value in JSON that is of another form than wanted; the message follows the path to the value."""


def _of(value: Any, *kinds: type) -> Any:  # noqa: ANN401  # JSON
    """Return `value` if it is of one of these kinds exactly: true is no number."""
    if type(value) not in kinds:
        raise _Unfit(f"must be {_WORDS[kinds[0]]}, not {_short(value)}")
    return value


def _checked(form: type, read: StructureHook) -> StructureHook:
    return lambda value, kind: read(_of(value, form), kind)


def _read_str(value: object, kind: type[str]) -> str:
    """Read a text, or one of the options of a `StrEnum`: a hook of a class is asked for its subclasses too."""
    text: str = _of(value, str)
    if not issubclass(kind, StrEnum):
        return text
    try:
        return kind(text)
    except ValueError:
        raise _Unfit(f"is {text!r}, which is not known; {_advise(text, kind)}") from None


def _is_plain_union(kind: object) -> bool:
    """Return whether `kind` is a union of plain JSON types, such as `str | int | None`."""
    return get_origin(kind) in (Union, UnionType) and set(get_args(kind)) <= {*_WORDS, NoneType}


def _read_plain_union(value: object, kind: object) -> object:
    kinds = get_args(kind)
    if type(value) in kinds:
        return value
    if type(value) is int and float in kinds:
        return float(value)
    words = " or ".join(_WORDS.get(one, "null") for one in kinds)
    raise _Unfit(f"must be {words}, not {_short(value)}")


def _explain(kind: type[_T], plain: object) -> _T:
    """Read `plain` once more, and raise the first refusal with the path to its value."""
    from cattrs.errors import AttributeValidationNote, ClassValidationError, IterableValidationError

    try:
        return _converter(detailed=True).structure(plain, kind)
    except Exception as error:  # noqa: BLE001  # as in read_plain
        found: Exception = error
    path = ""
    while isinstance(found, ClassValidationError | IterableValidationError):
        noted, others = found.group_exceptions()
        if others:  # a field too many: perhaps the one that is missing, with a slip
            found = others[0]
            continue
        owner = found.cl
        found, note = noted[0]
        if isinstance(note, AttributeValidationNote):
            path += f".{_json_name(owner, note.name)}"
        else:
            path += f"[{note.index!r}]"
    if isinstance(found, BadDuration):
        raise BadJson(kind.__name__, f"{path.removeprefix('.') or 'it'}: {found}") from None
    if isinstance(found, UserError):
        raise found
    raise BadJson(kind.__name__, _sentence(path.removeprefix(".") or "it", found)) from None


def _json_name(kind: object, name: str) -> str | None:
    """Return the name in JSON of a field; None for a field that JSON leaves out."""
    return _names.get(kind, {}).get(name, name)


def _sentence(path: str, error: Exception) -> str:
    from cattrs.errors import ForbiddenExtraKeysError

    match error:
        case ForbiddenExtraKeysError():
            extra = min(map(str, error.extra_fields))
            known = (_json_name(error.cl, field.name) for field in fields(error.cl))
            return f"{path} has no field {extra!r}; {_advise(extra, filter(None, known))}"
        case KeyError():
            return f"{path} is missing"
        case _:
            return f"{path} {error}" if isinstance(error, _Unfit) else f"{path}: {error}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
