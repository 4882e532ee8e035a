"""Who may see and change what."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.domain.access import (
    NOBODY,
    Actor,
    Restriction,
    Role,
    Scope,
    Source,
    TeamRole,
    Verdict,
    decide,
    lesser_rights,
    owner_for,
    require_admin,
    require_labels,
    require_owner,
    require_scope,
    require_team_owner,
)
from app.domain.errors import ForbiddenError, InsufficientScopeError, NotFoundError, RestrictedError

ADMINS = list(Scope)
WRITES = ADMINS[:-1]

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


PEOPLE: dict[str, Actor] = {
    "admin": ADMIN,
    "member": MEMBER,
    **{role: Actor(5, "tom", Role.MEMBER, teams=((9, role),)) for role in TeamRole},
}
# Who may do what needs a scope to an object of the owner: the actor's own, of the team 9, of somebody else.
REACH: dict[str, dict[str, list[Scope] | None]] = {
    "admin": {"own": ADMINS, "team": ADMINS, "other": ADMINS},
    "member": {"own": WRITES, "team": None, "other": None},
    TeamRole.VIEWER: {"own": WRITES, "team": [Scope.READ], "other": None},
    TeamRole.OPERATOR: {"own": WRITES, "team": [Scope.READ, Scope.OPERATE], "other": None},
    TeamRole.EDITOR: {"own": WRITES, "team": WRITES, "other": None},
    TeamRole.OWNER: {"own": WRITES, "team": WRITES, "other": None},
}


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("token", Scope)
def test_role_scope_and_team_decide_together(who: str, token: Scope) -> None:
    """What is out of sight is hidden whatever the token says; what is in sight needs the scope from all three."""
    actor = replace(PEOPLE[who], token_scope=token)
    for whose, allowed in REACH[who].items():
        owner = {"own": actor.user_id, "team": 9, "other": 77}[whose]
        for needs in Scope:
            verdict = decide(actor, needs, owner)
            if allowed is None:
                assert Verdict.HIDDEN is verdict
            else:
                expected = needs in allowed and token.includes(needs)
                assert (Verdict.ALLOWED if expected else Verdict.INSUFFICIENT_SCOPE) is verdict
    assert all(Verdict.HIDDEN is decide(actor, needs, None) for needs in Scope)


@pytest.mark.parametrize("needs", Scope)
@pytest.mark.parametrize("token", Scope)
def test_what_only_the_token_lacks_is_told_from_what_the_role_lacks(needs: Scope, token: Scope) -> None:
    """Both name the scope; the text says that a member cannot get that of admins by another token."""
    for actor in (ADMIN, MEMBER):
        limited = replace(actor, token_scope=token)
        if needs is Scope.ADMIN and actor is MEMBER:
            with pytest.raises(InsufficientScopeError, match="the scope `admin`, which users with your role"):
                require_scope(limited, needs)
        elif token.includes(needs):
            require_scope(limited, needs)
        else:
            with pytest.raises(InsufficientScopeError, match=f"`{needs}`"):
                require_scope(limited, needs)


TEAMS = (Actor(5, "team:ops", Role.MEMBER), Actor(6, "team:dev", Role.MEMBER))
roles = st.none() | st.sampled_from(TeamRole)


@given(st.tuples(roles, roles), st.tuples(roles, roles), st.sampled_from(Scope))
def test_a_run_of_users_and_teams_may_do_nothing_that_one_of_its_owners_may_not(
    mias: tuple[TeamRole | None, ...], olafs: tuple[TeamRole | None, ...], needs: Scope
) -> None:
    """Whatever their roles in the teams are; a team and a user who may write in it have the rights of the team."""
    people = [ADMIN, *TEAMS]
    for actor, given_roles in ((MEMBER, mias), (Actor(4, "olaf", Role.MEMBER), olafs)):
        pairs = zip(TEAMS, given_roles, strict=True)
        people.append(replace(actor, teams=tuple((team.user_id, role) for team, role in pairs if role)))
    for schedule_owner, workflow_owner in itertools.product(people, repeat=2):
        # Runs have the rights of their owner, not those of the owner's teams.
        acting = replace(lesser_rights(schedule_owner, workflow_owner), teams=(), needs=needs)
        for owner in people:
            if acting.may_use(owner.user_id):
                assert replace(schedule_owner, needs=needs).may_use(owner.user_id)
                assert replace(workflow_owner, needs=needs).may_use(owner.user_id)
    for team, role in zip(TEAMS, mias, strict=True):
        expected = team if role in {TeamRole.EDITOR, TeamRole.OWNER} else NOBODY
        assert (expected, expected) == (lesser_rights(people[3], team), lesser_rights(team, people[3]))


def test_whose_objects_are_listed_and_created() -> None:
    """One's own and those of one's teams; of a named team only as a member, and created only as an editor."""
    mia = replace(MEMBER, teams=((5, TeamRole.VIEWER), (6, TeamRole.EDITOR)), needs=Scope.WRITE)
    assert ((2, 5, 6), (5,), ()) == (mia.reach().owners, mia.reach(5).owners, mia.reach(7).owners)
    assert (None, (7,), None) == (ADMIN.reach().owners, ADMIN.reach(7).owners, ADMIN.usable().owners)
    assert (2, 6) == mia.usable().owners
    assert (2, None) == (owner_for(mia, None).user_profile_id, owner_for(mia, None).team_id)
    assert (6, "6", 6) == (owner_for(mia, 6).user_profile_id, owner_for(mia, 6).owner_id, owner_for(mia, 6).team_id)
    assert 5 == owner_for(TEAMS[0], None).team_id
    with pytest.raises(InsufficientScopeError):
        owner_for(mia, 5)
    with pytest.raises(NotFoundError):
        owner_for(mia, 7)
    for team in (5, 6):
        with pytest.raises(ForbiddenError):
            require_team_owner(mia, team)
    require_team_owner(replace(mia, teams=((5, TeamRole.OWNER),)), 5)
    require_team_owner(ADMIN, 5)


RESTRICTED = replace(MEMBER, teams=((5, TeamRole.EDITOR),), restriction=Restriction(workflow_ids=(7, 8)))


def test_a_restricted_token_sees_what_its_restriction_leaves() -> None:
    """Of the owners that the user sees; what nobody has looked at is hidden."""
    seen = {
        (owner, within)
        for owner in (2, 5, 77)
        for within in (True, False)
        if RESTRICTED.may_use(owner, is_within=within)
    }
    assert {(2, True), (5, True)} == seen
    assert not RESTRICTED.may_use(2)
    assert 5 == owner_for(RESTRICTED, 5).team_id


def test_what_a_restricted_token_creates_must_be_within_its_reach() -> None:
    """With all labels; what files declare is created by files alone."""
    require_labels(MEMBER, {})
    labelled = replace(MEMBER, restriction=Restriction(labels=(("team", "shop"),)))
    require_labels(labelled, {"team": "shop", "x": "y"})
    for labels in ({}, {"team": "other"}):
        with pytest.raises(RestrictedError, match="`team=shop`"):
            require_labels(labelled, labels)
    with pytest.raises(RestrictedError, match="namespace"):
        require_labels(replace(MEMBER, restriction=Restriction(namespace="shop")), {})


def test_the_sources_of_a_list() -> None:
    """One for each workflow, or else for each owner; none where a filter and a restriction have nothing in common."""
    assert [Source((2, 5), 7), Source((2, 5), 8)] == RESTRICTED.reach().sources
    assert [Source((2, 5), 8)] == RESTRICTED.reach().of_workflow(8).sources
    assert [] == RESTRICTED.reach().of_workflow(9).sources
    assert [Source((5,), 7), Source((5,), 8)] == RESTRICTED.reach(5).sources
    assert [Source(None, 9)] == ADMIN.reach().of_workflow(9).sources
    assert [Source(None)] == ADMIN.reach().of_workflow(None).sources
    assert [] == MEMBER.reach(5).sources
    unrestricted = replace(RESTRICTED, restriction=None)
    assert [Source((2,)), Source((5,))] == unrestricted.reach().sources
    assert [Source((2, 5), 7)] == unrestricted.reach().of_workflow(7).sources
