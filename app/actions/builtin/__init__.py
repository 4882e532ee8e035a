"""The actions that come with Carillon."""

from typing import Any

from app.actions.builtin.flow import DELAY, FAIL, NOOP
from app.actions.builtin.http_request import HTTP_REQUEST
from app.actions.catalog import Action

BUILTIN: tuple[Action[Any], ...] = (HTTP_REQUEST, DELAY, NOOP, FAIL)
