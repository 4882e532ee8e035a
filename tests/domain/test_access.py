"""Who may see and change what."""

import itertools

import pytest

from app.domain.access import NOBODY, Actor, Role, lesser_rights, require_admin, require_owner
from app.domain.errors import ForbiddenError, NotFoundError

ADMIN = Actor(1, "admin", Role.ADMIN)
MEMBER = Actor(2, "mia", Role.MEMBER)


@pytest.mark.parametrize(
    ("actor", "owner", "allowed"),
    [
        (ADMIN, 1, True),
        (ADMIN, 2, True),
        (ADMIN, None, False),
        (MEMBER, 2, True),
        (MEMBER, 1, False),
        (MEMBER, None, False),
    ],
)
def test_what_is_not_yours_looks_as_if_it_did_not_exist(actor: Actor, owner: int | None, allowed: bool) -> None:
    """Admins reach everything that there is, members what is theirs."""
    if allowed:
        require_owner(actor, owner, "schedule")
    else:
        with pytest.raises(NotFoundError, match=r"There is no such schedule\."):
            require_owner(actor, owner, "schedule")


def test_only_admins_are_admins() -> None:
    """And lists are limited for everybody else."""
    require_admin(ADMIN)
    with pytest.raises(ForbiddenError):
        require_admin(MEMBER)
    assert (None, 2) == (ADMIN.owner_filter, MEMBER.owner_filter)


def test_a_run_may_do_nothing_that_one_of_its_owners_may_not() -> None:
    """For every pair of owners, and for everything that somebody owns."""
    people = [ADMIN, Actor(3, "ada", Role.ADMIN), MEMBER, Actor(4, "olaf", Role.MEMBER)]
    for schedule_owner, workflow_owner in itertools.product(people, repeat=2):
        acting = lesser_rights(schedule_owner, workflow_owner)
        for owner in people:
            both = schedule_owner.may_use(owner.user_id) and workflow_owner.may_use(owner.user_id)
            assert both == acting.may_use(owner.user_id)
    assert NOBODY is lesser_rights(people[2], people[3])
