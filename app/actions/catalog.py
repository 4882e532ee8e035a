"""The catalog of actions: their configuration types, their results, and the check that plugin authors run."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Generic, Literal, TypeVar

import msgspec

from app.actions.context import NO_ISSUER, ActionContext, PlainContext
from app.actions.palette import Appearance
from app.actions.template_rules import SECRET, TemplateProblemError
from app.actions.templates import Budget, OverBudgetError, check, filled_in, is_template, secrets_in, templates_in
from app.cache import BoundedCache
from app.domain.errors import FieldError
from app.domain.field_errors import MOST_ERRORS, field_errors
from app.domain.limits import DEFAULT_CAPS, Caps
from app.domain.trigger_event import ScheduleEvent
from app.domain.workflows import TRIGGER_TYPE, Node, TriggerConfig

# How many parsed configurations are cached, and their total size as JSON.
MOST_FIXED = 2000
MOST_FIXED_BYTES = 16 * 1024 * 1024
# Different templates in one workflow: each is parsed when the workflow is saved.
MOST_DIFFERENT_TEMPLATES = 2000

Config = TypeVar("Config", bound=msgspec.Struct)


class ActionFailedError(Exception):
    """The work of an action failed; the message says how, for people."""

    code = "action_failed"


class SecretMisusedError(TemplateProblemError):
    """A template uses a secret in a field or in a way that is not allowed; ``place`` names the template."""

    code = "secret_misused"

    def __init__(self, place: str, message: str) -> None:
        """Store the place of the template, and what is wrong there."""
        super().__init__(message)
        self.place = place


class Done(msgspec.Struct, frozen=True, gc=False):
    """The work is done; later nodes can use its output."""

    output: Any = None


class Skipped(msgspec.Struct, frozen=True):
    """There was nothing to do. The run ends here and is not a failure."""

    reason: str


class Blocked(msgspec.Struct, frozen=True):
    """The work must not be done. The run ends here, and a retry would not help."""

    reason: str


class Awaiting(msgspec.Struct, frozen=True):
    """The work was started elsewhere; a callback will report its result."""

    output: Any = None


class Sleeping(msgspec.Struct, frozen=True):
    """The run is parked and continues after so many seconds; until then it does not occupy a worker."""

    seconds: float
    output: Any = None


class Waiting(msgspec.Struct, frozen=True):
    """The work waits for a permit of a limit. The action runs again when it has one; until then the run is parked."""


Result = Done | Skipped | Blocked | Awaiting | Sleeping | Waiting


# Begins the work of a node without a coroutine, if it can: then it returns what cancels the work, and calls back once
# with the output or with the error, unless it was cancelled. Else it returns None and has done nothing.
Begin = Callable[[Any, PlainContext, Callable[[Any], None]], Callable[[], None] | None]


class Action(msgspec.Struct, Generic[Config], frozen=True, kw_only=True):
    """A named handler. It returns its output, ``Skipped`` or ``Blocked``; an exception is a failure.

    ``description`` is shown by the API: one sentence. ``scope`` says what of Carillon it uses: nothing (``external``),
    or what the schedule's owner may see and change (``owner``). ``retry_safe`` says whether it may be repeated.
    ``title``, ``category``, ``icon`` and ``color`` say how a palette shows it: see ``app.actions.palette``.
    """

    name: str
    # A struct, or a union of structs with tags.
    config: type[Config] | UnionType
    handler: Callable[[Config, ActionContext], Awaitable[Any]]
    description: str = ""
    aliases: tuple[str, ...] = ()
    version: str = "1"
    scope: Literal["external", "owner"] = "external"
    retry_safe: bool = True
    # Whether it returns without ever waiting, so that it needs no timeout.
    instant: bool = False
    # Does the same as the handler for most runs of it, at a lower cost.
    begin: Begin | None = None
    # Whether it is instant and changes nothing but its output: then it may run before its slot is claimed, and again if
    # the claim fails, so that claim and end are written at once.
    pure: bool = False
    # The distribution that provides it; ``core`` is Carillon itself.
    origin: str = "core"
    # The fields of its configuration in which templates may name secrets. Its calls by ``context.http`` can only reach
    # the allowed hosts of those secrets; it must not store the secrets or pass them on in another way.
    secret_fields: tuple[str, ...] = ()
    # The fields of its configuration that can be used only if CARILLON_PUBLIC_URL is set.
    needs_public_url: tuple[str, ...] = ()
    # Whether the field ``limit`` of its configuration names a limit, as ``app.domain.permits.LimitOfCall`` or its name.
    takes_limit: bool = False
    title: str = ""
    category: str = ""
    icon: str = ""
    color: str = ""
    # A ``tool`` does one of several things, as its configuration says.
    kind: Literal["action", "tool"] = "action"
    # The type of what it returns, several types of which each is possible, or a JSON Schema; None if it is not known.
    outputs: Any = None
    # Returns what is wrong with a written configuration beyond its types. Values may still be templates.
    check: Callable[[Mapping[str, Any], Caps], Iterable[FieldError]] | None = None
    # Whether its runs publish: after a success of it, the sitemap may be pinged.
    publishes: bool = False

    def __post_init__(self) -> None:
        """Take the description from the handler's docstring where plugins give none: those for 0.1 could not."""
        if not self.description:
            docstring = (self.handler.__doc__ or "").strip()
            msgspec.structs.force_setattr(self, "description", docstring.partition("\n")[0])

    @property
    def appearance(self) -> Appearance:
        """Return how a palette shows it, with defaults for what it leaves blank."""
        return self.look.completed(self.name, self.origin)

    @property
    def look(self) -> Appearance:
        """Return how it wants to be shown; blank where it does not say."""
        return Appearance(title=self.title, category=self.category, icon=self.icon, color=self.color)


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A type of nodes at which runs start; ``outputs`` is what templates know as ``trigger``."""

    name: str
    description: str
    config: type[msgspec.Struct]
    outputs: Any
    appearance: Appearance


TRIGGERS = (
    Trigger(
        name=TRIGGER_TYPE,
        description="Start a run when a schedule fires. The filters say which schedules.",
        config=TriggerConfig,
        outputs=ScheduleEvent,
        appearance=Appearance(title="Schedule", category="Triggers", icon="calendar-clock", color="#15803d"),
    ),
)


class NodeFacts(msgspec.Struct, frozen=True):
    """What a run needs to know of a node's action before it runs."""

    # The distribution that provides it, and whether it uses what the schedule's owner may see and change.
    origin: str
    is_owners: bool
    # Whether it makes a call that a limit can bound, and whether the node names one.
    takes_limit: bool
    names_limit: bool


class Catalog:
    """All actions that workflows may use, and the triggers that start them."""

    triggers = TRIGGERS

    def __init__(
        self, actions: Iterable[Action[Any]], caps: Caps = DEFAULT_CAPS, *, has_public_url: bool = False
    ) -> None:
        """Index the actions by their names and aliases; values in written configurations are bounded by ``caps``."""
        self.actions = tuple(actions)
        self._caps = caps
        self._has_public_url = has_public_url
        self._by_name = {name: action for action in self.actions for name in (action.name, *action.aliases)}
        # The names of the actions that publish.
        self.publishing = frozenset(name for name, action in self._by_name.items() if action.publishes)
        self._instant = {name for name, action in self._by_name.items() if action.instant}
        self._pure = {name for name, action in self._by_name.items() if action.instant and action.pure}
        # Parsed configurations without templates, by the id of the node; the node is kept so that its id stays taken.
        self._fixed: BoundedCache[int, tuple[Node, msgspec.Struct]] = BoundedCache(MOST_FIXED, MOST_FIXED_BYTES)
        self._facts: BoundedCache[int, tuple[Node, NodeFacts]] = BoundedCache(MOST_FIXED)

    def facts_of(self, node: Node) -> NodeFacts:
        """Return what a run needs to know of a node's action. It is looked up once for each node."""
        cached = self._facts.get(id(node))
        if cached is not None:
            return cached[1]
        facts = NodeFacts(
            origin=self.origin_of(node.type),
            is_owners=self.scope_of(node.type) == "owner",
            takes_limit=self.takes_limit(node),
            names_limit=self.names_limit(node),
        )
        self._facts.keep(id(node), (node, facts))
        return facts

    def begin_of(self, node: Node) -> tuple[Begin, msgspec.Struct] | None:
        """Return what begins a node without a coroutine, and its configuration; None if that is not possible."""
        action = self._by_name.get(node.type)
        if action is None or action.begin is None or self.names_limit(node):
            return None
        try:
            config = self._fixed_config(node)
        except TemplateProblemError:
            return None
        return None if config is None else (action.begin, config)

    def __contains__(self, name: object) -> bool:
        """Return whether there is an action of this name."""
        return name in self._by_name

    @property
    def names(self) -> frozenset[str]:
        """Return the names and aliases of all actions."""
        return frozenset(self._by_name)

    def origin_of(self, name: str) -> str:
        """Return the distribution that provides an action, or "" if there is no such action."""
        return self._by_name[name].origin if name in self._by_name else ""

    def scope_of(self, name: str) -> str:
        """Return the scope of an action; ``external`` if there is no such action."""
        return self._by_name[name].scope if name in self._by_name else "external"

    def are_instant(self, names: frozenset[str]) -> bool:
        """Return whether all of these actions return without ever waiting."""
        return names <= self._instant

    def are_pure(self, names: frozenset[str]) -> bool:
        """Return whether all of these actions are instant and change nothing but their outputs."""
        return names <= self._pure

    def config_errors(self, nodes: Iterable[Node]) -> list[FieldError]:
        """Return what is wrong with the configurations of these nodes, with node and field."""
        errors: list[FieldError] = []
        templates: set[str] = set()
        for index, node in enumerate(nodes):
            if node.is_trigger:
                errors += node_errors(index, node, field_errors(node.config, TriggerConfig))
            elif node.type in self._by_name:
                templates.update(text for _, text in templates_in(node.config))
                if len(templates) > MOST_DIFFERENT_TEMPLATES:
                    too_many = f"A workflow may have at most {MOST_DIFFERENT_TEMPLATES} different templates."
                    return [*errors, FieldError(f"nodes[{index}].config", f"Node '{node.id}': {too_many}")]
                errors += node_errors(index, node, self._node_errors(node))
            if len(errors) >= MOST_ERRORS:
                break
        return errors[:MOST_ERRORS]

    def secret_uses(self, node: Node) -> dict[str, frozenset[str]]:
        """Return the secrets that a node's templates name, by the place of the template.

        Raise ``SecretMisusedError`` if a secret is used in a field that takes none, or is not used as a whole.
        """
        uses = {}
        allowed = self._by_name[node.type].secret_fields if node.type in self._by_name else ()
        for place, text in templates_in(node.config):
            # A cheap check first: most templates name no secret.
            names = _names_at(place, text) if SECRET in text else None
            if names:
                if _field_of(place) not in allowed:
                    raise SecretMisusedError(place, _secret_refusal(node.type, place, allowed))
                uses[place] = names
        return uses

    def secrets_named_by(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Return the names of all secrets that these nodes may use."""
        names: set[str] = set()
        for node in nodes:
            try:
                names.update(*self.secret_uses(node).values())
            except SecretMisusedError:
                # The node will be blocked and gets no secrets.
                continue
        return frozenset(names)

    def takes_limit(self, node: Node) -> bool:
        """Return whether a node makes a call that a limit can bound."""
        return node.type in self._by_name and self._by_name[node.type].takes_limit

    def names_limit(self, node: Node) -> bool:
        """Return whether a node names a limit."""
        return "limit" in node.config and self.takes_limit(node)

    def limit_name(self, node: Node) -> str | None:
        """Return the name of the limit that a node names; None if it names none, or fills it in when it runs."""
        limit = node.config["limit"] if self.names_limit(node) else None
        name = limit.get("name") if isinstance(limit, dict) else limit
        return name if isinstance(name, str) and not is_template(name) else None

    async def run(self, node: Node, context: ActionContext, variables: Callable[[], Mapping[str, Any]]) -> Result:
        """Run the action of a node, with its templates filled in from the variables."""
        action = self._by_name.get(node.type)
        if action is None:
            return Skipped(f"There is no action '{node.type}' on this worker.")
        try:
            config = self._fixed_config(node)
            if config is None:
                context, config = await self._filled_in(node, context, variables)
        except TemplateProblemError as error:
            return Blocked(str(error))
        result = await action.handler(config, context)
        return result if isinstance(result, Skipped | Blocked | Awaiting | Sleeping | Waiting) else Done(result)

    async def _filled_in(
        self, node: Node, context: ActionContext, variables: Callable[[], Mapping[str, Any]]
    ) -> tuple[ActionContext, msgspec.Struct]:
        """Return a node's configuration with its templates filled in, and the context bound to its secrets."""
        named = frozenset[str]().union(*self.secret_uses(node).values())
        values: Mapping[str, Any] = variables()
        if named:
            context, secrets = await context.with_secrets(named)
            values = {**values, SECRET: secrets}
        filled = filled_in(node.config, values)
        return context, self._convert(node, filled, has_secrets=context.was_shown_secrets)

    def _fixed_config(self, node: Node) -> msgspec.Struct | None:
        """Return the cached configuration of a node without templates, or None if it has templates."""
        cached = self._fixed.get(id(node))
        if cached is not None:
            return cached[1]
        if any(templates_in(node.config)):
            return None
        config = self._convert(node, node.config)
        self._fixed.keep(id(node), (node, config), len(msgspec.json.encode(node.config)))
        return config

    def _template_errors(self, node: Node) -> list[FieldError]:
        errors = []
        budget = Budget()
        for place, text in templates_in(node.config):
            try:
                budget.use_template(text)
                check(text)
            except TemplateProblemError as error:
                errors.append(FieldError(place, str(error)))
            except OverBudgetError as error:
                return [*errors, FieldError("", f"{error}.".capitalize())]
        return errors

    def _node_errors(self, node: Node) -> list[FieldError]:
        """Return the errors of a configuration; values that are templates are checked when they are filled in."""
        action = self._by_name[node.type]
        errors = [*self._template_errors(node), *field_errors(node.config, action.config, is_template)]
        if not self._has_public_url:
            errors += [FieldError(name, NO_ISSUER) for name in action.needs_public_url if name in node.config]
        return errors if errors or action.check is None else list(action.check(node.config, self._caps))

    def _convert(self, node: Node, config: dict[str, Any], *, has_secrets: bool = False) -> msgspec.Struct:
        kind: Any = self._by_name[node.type].config
        try:
            converted: msgspec.Struct = msgspec.convert(config, kind)
        except (msgspec.ValidationError, OverflowError):
            raise TemplateProblemError(_not_valid(field_errors(config, kind), has_secrets=has_secrets)) from None
        return converted


def node_errors(index: int, node: Node, errors: Iterable[FieldError]) -> list[FieldError]:
    """Return the errors in a node's configuration, each with its place in the workflow."""
    return [
        FieldError(f"nodes[{index}].config.{error.field}".rstrip("."), f"Node '{node.id}': {error.message}")
        for error in errors
    ]


def _names_at(place: str, text: str) -> frozenset[str]:
    try:
        return secrets_in(text)
    except TemplateProblemError as error:
        raise SecretMisusedError(place, str(error)) from None


def _field_of(place: str) -> str:
    """Return the field of the configuration that a place is in: ``json`` for ``json.a[0]``."""
    return place.partition(".")[0].partition("[")[0]


def _secret_refusal(action: str, place: str, allowed: tuple[str, ...]) -> str:
    where = f"only in {', '.join(allowed)}" if allowed else "in none of its fields"
    return f"'{place}' may not use a secret: '{action}' takes secrets {where}."


# How many errors of a configuration the error of a run names.
_MOST_NAMED = 3


def _not_valid(errors: list[FieldError], *, has_secrets: bool) -> str:
    """Return what is wrong with a filled-in configuration, in a line.

    A rule of the action itself could quote a secret: with secrets only the fields are named.
    """
    if has_secrets:
        fields = ", ".join(error.field for error in errors[:_MOST_NAMED] if error.field)
        return f"The configuration is not valid once its secrets are filled in: {fields}".rstrip(": ") + "."
    shown = " ".join(f"{error.field}: {error.message}".removeprefix(": ") for error in errors[:_MOST_NAMED])
    return f"The configuration is not valid: {shown}"
