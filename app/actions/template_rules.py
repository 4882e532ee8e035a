"""Rules for parsed templates: which constructs are allowed, and where a secret may be used."""

import math
from collections.abc import Iterator

from jinja2 import nodes

FILTERS = frozenset(
    {"default", "first", "float", "int", "last", "length", "lower", "string", "tojson", "trim", "upper"}
)
MOST_PARTS = 200
# Deeper templates could exhaust the stack of Python's compiler.
MOST_LEVELS = 50
MOST_FILTERS_IN_A_ROW = 3
# Enough for an index or a number in JSON; most JSON readers do not support larger ones.
MOST_BITS = 63
SECRET = "secret"  # noqa: S105 - the variable in templates
# All variables. ``trigger``, ``schedule``, ``slot`` and ``execution`` are ``app.domain.trigger_event``'s.
KNOWN_NAMES = ("trigger", "schedule", "slot", "execution", "nodes", SECRET)
# Names that have a special meaning in Jinja.
_RESERVED = frozenset({"self", "loop", "caller", "varargs", "kwargs"})
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Const),
    *(nodes.Filter, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand),
)


class TemplateProblemError(Exception):
    """A template cannot be parsed or filled in; the message says why, for people."""

    code = "template_problem"


def require_allowed(tree: nodes.Template) -> None:
    """Refuse constructs that could take unbounded time or memory."""
    for part in _parts(tree):
        if not isinstance(part, _ALLOWED):
            raise TemplateProblemError(
                f"A template may not use {type(part).__name__}. Use names, members, conditions and filters."
            )
        if isinstance(part, nodes.Filter):
            _require_filter(part)
        elif isinstance(part, nodes.Const):
            _require_number(part)
        elif isinstance(part, nodes.Name) and not part.name.isascii():
            # Python treats look-alike letters as the same name, so that one could stand for `secret` undetected.
            raise TemplateProblemError(f"The name '{part.name[:40]}' has letters other than a-z. Use plain letters.")
        elif isinstance(part, nodes.Name) and part.name in _RESERVED:
            raise TemplateProblemError(f"There is no variable '{part.name}' in templates.")


def not_known(name: object) -> str:
    """Return the error of a variable that does not exist."""
    return f"The template uses '{str(name)[:40]}', which is not known. Known: {', '.join(KNOWN_NAMES)}."


def require_known(tree: nodes.Template) -> None:
    """Refuse names that cannot have a value: unknown variables, and members that only Python objects have.

    A single underscore is allowed in front: JSON has members such as ``_links``.
    """
    for part in _parts(tree):
        if isinstance(part, nodes.Name) and part.name not in KNOWN_NAMES:
            raise TemplateProblemError(not_known(part.name))
        member = _member(part)
        if member.startswith("__") and member.endswith("__"):
            raise TemplateProblemError(f"A template cannot use '{member[:40]}': values in templates are JSON.")


def _member(part: nodes.Node) -> str:
    """Return the name of a member that a part reads, or an empty text."""
    if isinstance(part, nodes.Getattr):
        return part.attr
    argument = part.arg if isinstance(part, nodes.Getitem) else None
    return argument.value if isinstance(argument, nodes.Const) and isinstance(argument.value, str) else ""


def secret_names(tree: nodes.Template) -> frozenset[str]:
    """Return the secrets that a template names; refuse a template that does not use each of them as a whole.

    A filter, a comparison or a condition could reveal parts of a secret, or whether a guess is right.
    """
    direct = {id(part): name for part in _outputs(tree) if (name := _name_of_secret(part)) is not None}
    inside = {id(part.node) for part in _outputs(tree) if id(part) in direct and hasattr(part, "node")}
    for part in _parts(tree):
        if isinstance(part, nodes.Name) and part.name == SECRET and id(part) not in inside:
            raise TemplateProblemError(
                "A secret must be used as a whole: {{ secret.NAME }}, without filters, comparisons and conditions."
            )
    return frozenset(direct.values())


def is_single(tree: nodes.Template) -> bool:
    """Return whether a template is a single expression; its value then keeps its type."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return False
    inside = [
        part for part in tree.body[0].nodes if not (isinstance(part, nodes.TemplateData) and not part.data.strip())
    ]
    return len(inside) == 1 and not isinstance(inside[0], nodes.TemplateData)


def _parts(tree: nodes.Node) -> Iterator[nodes.Node]:
    """Yield all nodes of a tree level by level, so that no depth can exhaust the stack."""
    layer, count = [tree], 0
    for _ in range(MOST_LEVELS):
        inner: list[nodes.Node] = []
        for part in layer:
            count += 1
            if count > MOST_PARTS:
                raise TemplateProblemError(f"A template may have at most {MOST_PARTS} parts.")
            yield part
            inner += part.iter_child_nodes()
        if not inner:
            return
        layer = inner
    raise TemplateProblemError(f"A template may be nested at most {MOST_LEVELS} levels deep.")


def _outputs(tree: nodes.Template) -> list[nodes.Node]:
    return [part for output in tree.body if isinstance(output, nodes.Output) for part in output.nodes]


def _name_of_secret(part: nodes.Node) -> str | None:
    """Return NAME where a part is ``secret.NAME`` or ``secret['NAME']``, else None."""
    if not isinstance(part, nodes.Getattr | nodes.Getitem):
        return None
    if not isinstance(part.node, nodes.Name) or part.node.name != SECRET:
        return None
    return _member(part) or None


def _require_filter(part: nodes.Filter) -> None:
    if part.name not in FILTERS:
        raise TemplateProblemError(f"There is no filter '{part.name}'. Use one of {', '.join(sorted(FILTERS))}.")
    depth, inner = 1, part.node
    while isinstance(inner, nodes.Filter):
        depth, inner = depth + 1, inner.node
    if depth > MOST_FILTERS_IN_A_ROW:
        raise TemplateProblemError(f"At most {MOST_FILTERS_IN_A_ROW} filters may follow each other.")


def _require_number(part: nodes.Const) -> None:
    value = part.value
    if (isinstance(value, int) and value.bit_length() > MOST_BITS) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise TemplateProblemError("A number in a template is too large.")
