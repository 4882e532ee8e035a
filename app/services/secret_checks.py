"""Whether the secrets that nodes name may be used by the owner, and sent where the nodes send them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection
from yarl import URL

from app.actions.catalog import Catalog, SecretMisusedError, node_errors
from app.actions.secrets_part import SecretStore
from app.actions.templates import MARK
from app.domain.access import Actor
from app.domain.errors import FieldError
from app.domain.secrets import Secret
from app.domain.workflows import Node
from app.engine.secrets import find_secrets

# A template whose scheme and host are literal: what is filled in comes behind them.
_LITERAL_HOST = re.compile(r"https?://[^/?#\\]+[/?#]")


class SecretChecks:
    """Judges nodes when they are written. Runs are judged again, when their URLs are filled in."""

    def __init__(self, catalog: Catalog, environment: SecretStore) -> None:
        """Secrets of the environment are those of this process; a worker may have others."""
        self._catalog = catalog
        self._environment = environment

    async def errors(
        self, connection: AsyncConnection, owner: Actor, nodes: Sequence[Node], whose: str = "you"
    ) -> list[FieldError]:
        """What is wrong with the secrets in these nodes, each named by node and field."""
        names = self._catalog.secrets_named_by(nodes)
        found = await find_secrets(connection, self._environment, [owner], names) if names else {}
        errors: list[FieldError] = []
        for index, node in enumerate(nodes):
            errors += node_errors(index, node, self._of_node(node, owner, found, whose))
        return errors

    def _of_node(self, node: Node, owner: Actor, found: Mapping[str, Secret], whose: str) -> list[FieldError]:
        errors = []
        target = literal_target(node.config.get("url"))
        try:
            uses = self._catalog.secret_uses(node)
        except SecretMisusedError as error:
            return [FieldError(error.place, str(error))]
        for place, names in uses.items():
            for name in sorted(names):
                secret = found.get(name)
                if secret is None and not owner.sees_all:
                    errors.append(FieldError(place, f"There is no secret '{name}' for {whose}."))
                # The environment of a worker may have an admin's secret that this process does not have.
                elif secret is not None and target is not None and not secret.may_go_to(*target):
                    errors.append(FieldError(place, secret.refusal(target[0])))
        return errors


def literal_target(url: Any) -> tuple[str, int | None] | None:
    """Host and port of a URL, where no template has a say in them, else None."""
    if not isinstance(url, str):
        return None
    head = url.partition(MARK)[0]
    if MARK in url and not _LITERAL_HOST.match(head):
        return None
    try:
        host, port = URL(head).raw_host, URL(head).port
    except ValueError:
        return None
    return (host, port) if host else None
