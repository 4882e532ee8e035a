"""Who may use a secret, and where it may go."""

import pytest

from app.domain.access import Actor, Role
from app.domain.secrets import EnvironmentSecret, Secret, SharedWith, StoredSecret, choose_secret, host_problem

ADMIN, MIA, TOM = Actor(1, "admin", Role.ADMIN), Actor(2, "mia", Role.MEMBER), Actor(3, "tom", Role.MEMBER)
OF_ENVIRONMENT = EnvironmentSecret("of the environment")


def stored(
    number: int,
    owner: Actor,
    value: str | None = "v",
    shared_with: SharedWith = (),
    allowed_hosts: tuple[str, ...] | None = ("example.com",),
) -> StoredSecret:
    """A secret called X."""
    return StoredSecret(
        id=number,
        name="X",
        owner_id=owner.user_id,
        owner_is_admin=owner.sees_all,
        value=value,
        allowed_hosts=allowed_hosts,
        shared_with=shared_with,
    )


def value_for(
    *users: Actor, rows: tuple[StoredSecret, ...], environment: EnvironmentSecret | None = None
) -> str | None:
    """What these users get for X."""
    found = choose_secret(users, rows, environment, "X")
    return found.value if found else None


def test_ones_own_comes_first_then_what_is_shared() -> None:
    """And nothing that is neither."""
    rows = (stored(1, TOM, "toms"), stored(2, MIA, "mias"))
    assert "mias" == value_for(MIA, rows=rows)
    assert value_for(MIA, rows=rows[:1]) is None
    assert value_for(ADMIN, rows=rows) is None
    assert "toms" == value_for(MIA, rows=(stored(1, TOM, "toms", (MIA.user_id,)),))
    assert "toms" == value_for(MIA, rows=(stored(1, TOM, "toms", "all"),))


def test_nobody_takes_the_place_of_another_by_sharing() -> None:
    """An admin's share comes before a member's, an older one before a younger; the environment before all shares."""
    members, admins = stored(1, TOM, "toms", "all"), stored(2, ADMIN, "admins", "all")
    assert "admins" == value_for(MIA, rows=(members, admins))
    assert "toms" == value_for(MIA, rows=(stored(3, Actor(9, "z", Role.MEMBER), "younger", "all"), members))
    assert "of the environment" == value_for(ADMIN, rows=(members,), environment=OF_ENVIRONMENT)


def test_the_environments_are_the_admins_until_they_are_lent() -> None:
    """A row without a value lends, as long as its owner is an admin."""
    assert "of the environment" == value_for(ADMIN, rows=(), environment=OF_ENVIRONMENT)
    assert value_for(MIA, rows=(), environment=OF_ENVIRONMENT) is None
    lent = stored(1, ADMIN, None, (MIA.user_id,))
    assert "of the environment" == value_for(MIA, rows=(lent,), environment=OF_ENVIRONMENT)
    assert value_for(TOM, rows=(lent,), environment=OF_ENVIRONMENT) is None
    assert value_for(MIA, rows=(lent,)) is None
    assert value_for(MIA, rows=(stored(1, TOM, None, "all"),), environment=OF_ENVIRONMENT) is None


def test_a_run_for_two_needs_a_secret_that_both_may_use() -> None:
    """An admin's schedule on a member's workflow shows the member's nodes nothing of the admin's."""
    assert value_for(ADMIN, MIA, rows=(stored(1, ADMIN),), environment=OF_ENVIRONMENT) is None
    assert "shared" == value_for(ADMIN, MIA, rows=(stored(1, ADMIN, "shared", (MIA.user_id,)),))
    assert "mias" == value_for(ADMIN, MIA, rows=(stored(1, MIA, "mias", "all"),))
    assert value_for(ADMIN, MIA, rows=(stored(1, MIA, "mias"),)) is None


def test_the_hosts_of_a_lent_secret_are_bounded_by_both() -> None:
    """By the row and by the environment; without either, none is allowed."""

    def allowed(hosts: tuple[str, ...] | None, by_environment: tuple[str, ...] | None) -> list[bool]:
        row = stored(1, ADMIN, None, (MIA.user_id,), hosts)
        found = choose_secret([MIA], [row], EnvironmentSecret("v", by_environment), "X")
        assert found is not None
        return [found.may_go_to(host, 443) for host in ("a.com", "b.com")]

    assert [True, False] == allowed(("a.com",), None)
    assert [True, False] == allowed(None, ("a.com",))
    assert [False, False] == allowed(("a.com",), ("b.com",))
    assert [False, False] == allowed(None, None)
    of_admin = choose_secret([ADMIN], [], OF_ENVIRONMENT, "X")
    assert of_admin is not None
    assert of_admin.may_go_to("anywhere.example", 80)


@pytest.mark.parametrize(
    ("entry", "host", "port", "expected"),
    [
        ("example.com", "example.com", 443, True),
        ("Example.COM", "EXAMPLE.com.", 80, True),
        ("example.com", "sub.example.com", 443, False),
        ("example.com", "example.com.evil.org", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("*.example.com", "sub.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "notexample.com", 443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("*.example.com:8443", "a.example.com", 8443, True),
        ("*", "anything", None, True),
        ("127.0.0.1", "127.0.0.1", 80, True),
        ("127.0.0.1:80", "127.0.0.1", 81, False),
        ("127.0.0.1", "2130706433", 80, False),
        ("[::1]:80", "::1", 80, True),
        ("[::1]:80", "::1", 81, False),
        ("::1", "0:0:0:0:0:0:0:1", 80, True),
        ("example.com:99999999999999999999", "example.com", 443, False),
        ("example.com:x", "example.com", 443, False),
    ],
)
def test_which_hosts_an_entry_allows(entry: str, host: str, port: int | None, expected: bool) -> None:
    """Exact names, all below a name, a port, or any; addresses in whatever spelling of the same address."""
    secret = Secret(name="X", value="v", host_lists=((entry,),), owner_id=1)
    assert expected is secret.may_go_to(host, port)


def test_without_a_host_it_goes_nowhere() -> None:
    """An empty list allows nothing; the refusal says what to do."""
    secret = Secret(name="X", value="v", host_lists=((),), owner_id=1)
    assert not secret.may_go_to("example.com", 443)
    assert "PUT /api/v1/secrets/X/" in secret.refusal("example.com")


@pytest.mark.parametrize(
    ("entry", "is_sound"),
    [
        *((entry, True) for entry in ("a.com", "*.a.com", "a", "a.com:1", "10.0.0.1", "[::1]:80", "::1", "*", "a_b.c")),
        *((entry, False) for entry in ("a.*", "*a.com", "http://a.com", "a.com/x", "a b", "a.com:0", "a.com:x")),
        *((entry, False) for entry in ("a.com:70000", "ä.com", "*.", ".", "-", "a..b", "user@a.com", "**")),
    ],
)
def test_which_entries_can_be_read(entry: str, is_sound: bool) -> None:
    """Whatever else would never match is refused in words."""
    assert is_sound is (host_problem(entry) == "")
