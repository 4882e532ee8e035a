"""What is wrong with JSON values that a type does not accept: every field, in plain words.

msgspec stops at the first error and names regular expressions and Python types. Here a value that it refuses is
compared with its type field by field.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from app.domain.errors import FieldError, InvalidError

T = TypeVar("T")

# More errors would help nobody, and a large body could have thousands.
MOST_ERRORS = 100
# The key of ``Meta(extra=...)`` with the words for what a pattern or a rule accepts.
EXPECTED = "expected"
REQUIRED = "This field is required."
TOO_LARGE = "The number is too large."
CANNOT_WRITE = "This field is read-only. Leave it out."
# The attribute of a type with the names of the fields that responses show beside those that can be written.
READ_ONLY = "READ_ONLY"
_LONGEST_SHOWN = 60
_ARRAY, _OBJECT, _STRING = "an array", "an object", "a string"
# msgspec puts "`key` in" before the path of an object one of whose keys is wrong.
_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(.*?)`$", re.DOTALL)


def nothing_is_open(_value: Any) -> bool:
    """Return False: every value is checked."""
    return False


def read_as(raw: Any, kind: type[T]) -> T:
    """Return JSON values as a value of this type. Raise ``InvalidError`` with every field that is wrong."""
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidError(*(field_errors(raw, kind) or [_as_field_error(error)])) from None


def field_errors(raw: Any, kind: Any, is_open: Callable[[Any], bool] = nothing_is_open) -> list[FieldError]:
    """Return why JSON values are not of this type, by field; at most ``MOST_ERRORS``.

    Values that are open, such as templates, are filled in later: they are not checked, and neither are rules about
    several fields of an object that has some.
    """
    return list(islice(_Comparison(is_open).errors(raw, kind, ""), MOST_ERRORS))


class _Comparison:
    def __init__(self, is_open: Callable[[Any], bool]) -> None:
        self._is_open = is_open

    def errors(self, raw: Any, kind: Any, path: str) -> Iterator[FieldError]:
        if self._is_open(raw):
            return
        inner = self._inner_errors(raw, kind, path)
        first = next(inner, None)
        if first is not None:
            yield first
            yield from inner
        elif not self._has_open(raw):
            yield from _whole_error(raw, kind, path)

    def _inner_errors(self, raw: Any, kind: Any, path: str) -> Iterator[FieldError]:
        """Yield the errors inside an object or a list."""
        options = _options(kind)
        if isinstance(raw, dict):
            structs = [option for option in options if _is_struct(option)]
            if structs:
                yield from self._object_errors(raw, structs, path)
            for option in options:
                if get_origin(option) is dict:
                    yield from self._mapping_errors(raw, get_args(option), path)
        elif isinstance(raw, list):
            for option in options:
                if get_origin(option) is list:
                    for index, item in enumerate(raw):
                        yield from self.errors(item, get_args(option)[0], f"{path}[{index}]")

    def _mapping_errors(self, raw: dict[str, Any], kinds: tuple[Any, ...], path: str) -> Iterator[FieldError]:
        for name, value in raw.items():
            for error in _whole_error(name, kinds[0], path):
                yield FieldError(path, f"The name '{name[:_LONGEST_SHOWN]}' is not valid. {error.message}")
            yield from self.errors(value, kinds[1], _below(path, name))

    def _object_errors(self, raw: dict[str, Any], structs: list[Any], path: str) -> Iterator[FieldError]:
        tag_field = structs[0].__struct_config__.tag_field
        if tag_field is None:
            yield from self._struct_errors(raw, structs[0], path)
            return
        tagged = {struct.__struct_config__.tag: struct for struct in structs}
        if self._is_open(raw.get(tag_field)):
            return
        if tag_field not in raw:
            yield FieldError(_below(path, tag_field), REQUIRED)
        elif not isinstance(raw[tag_field], str) or raw[tag_field] not in tagged:
            yield FieldError(_below(path, tag_field), f"Expected {_one_of(tagged)}.")
        else:
            yield from self._struct_errors(raw, tagged[raw[tag_field]], path)

    def _struct_errors(self, raw: dict[str, Any], struct: Any, path: str) -> Iterator[FieldError]:
        config = struct.__struct_config__
        fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
        for name, value in raw.items():
            if name in fields:
                yield from self.errors(value, fields[name].type, _below(path, name))
            elif config.forbid_unknown_fields and name != config.tag_field:
                is_read_only = name in getattr(struct, READ_ONLY, ())
                yield FieldError(_below(path, name), CANNOT_WRITE if is_read_only else _unknown(name, [*fields]))
        for name, field in fields.items():
            if field.required and name not in raw:
                yield FieldError(_below(path, name), REQUIRED)

    def _has_open(self, raw: Any) -> bool:
        if isinstance(raw, dict):
            return any(map(self._has_open, raw.values()))
        return any(map(self._has_open, raw)) if isinstance(raw, list) else self._is_open(raw)


def _whole_error(raw: Any, kind: Any, path: str) -> Iterator[FieldError]:
    """Yield the error of a value whose parts have none."""
    try:
        msgspec.convert(raw, kind)
    except OverflowError:
        yield FieldError(path, TOO_LARGE)
    except msgspec.ValidationError as error:
        if error.__cause__ is not None:
            # A rule of the type itself, in its own words.
            yield _as_field_error(error, path)
        else:
            is_too_large = str(error).startswith("Number out of range")
            yield FieldError(path, TOO_LARGE if is_too_large else _mismatch(raw, inspect.type_info(kind)))


def _as_field_error(error: Exception, within: str = "") -> FieldError:
    """Return msgspec's own complaint."""
    if isinstance(error, OverflowError):
        return FieldError(within, TOO_LARGE)
    text = str(error)
    path = _PATH.search(text)
    # Rules of our own types are sentences already; msgspec ends without a full stop.
    complaint = (text[: path.start()] if path else text).removesuffix(".")
    return FieldError(_below(within, path.group(1) if path else ""), f"{complaint[:1].upper()}{complaint[1:]}.")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name and not name.startswith("[") else path + name


def _unknown(name: str, known: list[str]) -> str:
    close = get_close_matches(name[:_LONGEST_SHOWN], known, n=1)
    return f"There is no field '{name[:_LONGEST_SHOWN]}'." + (f" Did you mean '{close[0]}'?" if close else "")


@lru_cache(maxsize=1024)
def _options(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union without their bounds; of any other type, the type itself."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in {Union, UnionType}:
        return tuple(option for member in get_args(kind) for option in _options(member))
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _mismatch(raw: Any, info: inspect.Type) -> str:
    """Return what is expected, and what came instead where that is of another JSON type."""
    came, options = _json_type(raw), _alternatives(info)
    expected = " or ".join(dict.fromkeys(map(_words, options)))
    accepted = {_json_type_of(option) for option in options}
    is_same_type = came in accepted or (came == "an integer" and "a decimal number" in accepted)
    return f"Expected {expected}." if is_same_type else f"Expected {expected}, got {came}."


def _alternatives(info: inspect.Type) -> list[inspect.Type]:
    if isinstance(info, inspect.UnionType):
        return [option for member in info.types for option in _alternatives(member)]
    return [info]


def _json_type(raw: Any) -> str:
    """Return the JSON type of a value, with its article."""
    for kind, words in _JSON_TYPES:
        if isinstance(raw, kind):
            return words
    return "null"


# A boolean is an integer to Python: it comes first.
_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal number"),
    (str, _STRING),
    (list, _ARRAY),
    (dict, _OBJECT),
)


_WRITTEN_AS: dict[type[inspect.Type], str] = {
    inspect.NoneType: "null",
    inspect.BoolType: "a boolean",
    inspect.IntType: "an integer",
    inspect.FloatType: "a decimal number",
    inspect.ListType: _ARRAY,
    inspect.VarTupleType: _ARRAY,
    inspect.SetType: _ARRAY,
    inspect.FrozenSetType: _ARRAY,
    inspect.DictType: _OBJECT,
    inspect.StructType: _OBJECT,
}
_FIXED_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.DateTimeType: "a time such as '2026-01-31T09:00:00Z'",
    inspect.UUIDType: "a UUID",
}


def _json_type_of(info: inspect.Type) -> str:
    """Return the JSON type that a type is written as."""
    if isinstance(info, inspect.Metadata):
        return _json_type_of(info.type)
    if isinstance(info, inspect.LiteralType):
        return _json_type(info.values[0])
    return _WRITTEN_AS.get(type(info), _STRING)


def _words(info: inspect.Type) -> str:
    """Return what a type accepts, in words."""
    match info:
        case inspect.Metadata():
            return str((info.extra or {}).get(EXPECTED) or _words(info.type))
        case inspect.IntType() | inspect.FloatType():
            return _bounded(info)
        case inspect.StrType() | inspect.ListType() | inspect.DictType():
            return _sized(info)
        case inspect.EnumType():
            return _one_of(member.value for member in info.cls)
        case inspect.LiteralType():
            return _one_of(info.values)
    return _FIXED_WORDS.get(type(info)) or _json_type_of(info)


def _one_of(values: Any) -> str:
    shown = [repr(value) for value in values]
    return f"one of {', '.join(shown)}" if len(shown) > 1 else "".join(shown)


def _bounded(info: inspect.IntType | inspect.FloatType) -> str:
    thing = "an integer" if isinstance(info, inspect.IntType) else "a number"
    if info.ge is not None and info.le is not None:
        return f"{thing} from {info.ge} to {info.le}"
    bounds = ((info.ge, "of at least"), (info.gt, "greater than"), (info.le, "of at most"), (info.lt, "less than"))
    return " ".join((thing, *(f"{words} {bound}" for bound, words in bounds if bound is not None)))


def _sized(info: inspect.StrType | inspect.ListType | inspect.DictType) -> str:
    thing, least, most = _json_type_of(info), info.min_length, info.max_length
    unit = {_STRING: "characters", _ARRAY: "items"}.get(thing, "fields")
    if least and most is not None:
        thing += f" of {least} to {most} {unit}"
    elif least or most is not None:
        thing += f" of at least {least} {unit}" if least else f" of at most {most} {unit}"
    pattern = info.pattern if isinstance(info, inspect.StrType) else None
    return f"{thing} that matches {pattern}" if pattern else thing
