"""Patterns for names: ``*`` is any text, ``?`` one character, ``[a-z]`` and ``[!a-z]`` one of a set.

The rules are those of ``fnmatch.fnmatchcase``. Its regular expressions are not used: the text of users decides about
their cost. The cost here is at most the length of the pattern times the length of the name.
"""

from functools import lru_cache

import msgspec

LONGEST_PATTERN = 255


class _Characters(msgspec.Struct, frozen=True):
    """One character of a name: any of these ranges, or none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False

    def accepts(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) is not self.is_negated


_ANY_TEXT = None
_ANY_CHARACTER = _Characters((), is_negated=True)


def matches(pattern: str, name: str) -> bool:
    """Return whether a name fits a pattern, as a whole and case-sensitively."""
    tokens = _tokens(pattern)
    at = position = 0
    # After a mismatch only the last star can take one more character: an earlier one would find nothing new.
    star, star_end = -1, 0
    while position < len(name):
        token = tokens[at] if at < len(tokens) else _Characters(())
        if token is _ANY_TEXT:
            star, star_end = at, position
            at += 1
        elif token.accepts(name[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            star_end += 1
            at, position = star + 1, star_end
        else:
            return False
    return all(token is _ANY_TEXT for token in tokens[at:])


@lru_cache(maxsize=1024)
def _tokens(pattern: str) -> tuple[_Characters | None, ...]:
    tokens: list[_Characters | None] = []
    at = 0
    while at < len(pattern):
        end = _end_of_set(pattern, at) if pattern[at] == "[" else -1
        if end >= 0:
            tokens.append(_set(pattern[at + 1 : end]))
            at = end
        elif pattern[at] == "*":
            tokens.append(_ANY_TEXT)
        else:
            tokens.append(_ANY_CHARACTER if pattern[at] == "?" else _Characters(((pattern[at], pattern[at]),)))
        at += 1
    return tuple(tokens)


def _end_of_set(pattern: str, start: int) -> int:
    """Return where the set that begins at ``start`` ends; -1 if it does not, and ``[`` is an ordinary character."""
    first = start + 2 if pattern[start + 1 : start + 2] == "!" else start + 1
    # A bracket at the first place belongs to the set.
    return pattern.find("]", first + 1)


def _set(text: str) -> _Characters:
    is_negated = text.startswith("!")
    members = text[is_negated:]
    ranges = []
    at = 0
    while at < len(members):
        is_range = members[at + 1 : at + 2] == "-" and at + 2 < len(members)
        last = at + 2 if is_range else at
        ranges.append((members[at], members[last]))
        at = last + 1
    return _Characters(tuple(ranges), is_negated)
