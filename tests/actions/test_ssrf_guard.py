"""Which addresses may be reached."""

from ipaddress import ip_address

import pytest

from app.actions.ssrf_guard import AddressGuard, AddressRefusedError


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:a9fe:a9fe::1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False),
        ("3fff::1", False),
        ("3fff:fff:ffff::1", False),
        ("3ffe:ffff::1", True),
        ("5f00::1", False),
        ("4000::1", False),
        ("100:0:0:1::1", False),
        ("2001:db8::1", False),
        ("2001:20::1", False),
        ("2001:200::1", True),
        ("168.63.129.16", False),
        ("192.0.0.192", False),
        ("100.100.100.200", False),
    ],
)
def test_only_public_addresses_are_permitted(address: str, public: bool) -> None:
    """Tunnels that lead inside, multicast and mapped addresses do not count as public."""
    assert public == AddressGuard([]).permits(ip_address(address))


@pytest.mark.parametrize("allowed", ["10.0.0.0/8", "10.1.2.3", "10.1.2.3/32"])
def test_what_the_operator_allows_is_permitted(allowed: str) -> None:
    """By network or address; the rest stays refused."""
    guard = AddressGuard([allowed])
    guard.require("10.1.2.3")
    with pytest.raises(AddressRefusedError):
        guard.require("192.168.0.1")


def test_an_allowed_name_may_lead_inside_and_another_name_may_not() -> None:
    """The trust is for one call, not for the address."""
    guard = AddressGuard(["target.svc.cluster.local"])
    guard.require("10.1.2.3", guard.target("Target.svc.cluster.local."))
    with pytest.raises(AddressRefusedError):
        guard.require("10.1.2.3", guard.target("other.example"))


METADATA = [
    *("169.254.169.254", "169.254.170.2", "fe80::a9fe:a9fe", "fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe"),
    *("100.100.100.200", "168.63.129.16", "192.0.0.192", "169.254.42.42", "fd00:42::42"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe"),
]


@pytest.mark.parametrize("address", METADATA)
def test_an_allowed_name_never_leads_to_metadata(address: str) -> None:
    """In whatever form the address is written; allowing the address itself is another matter."""
    guard = AddressGuard(["target.example"])
    with pytest.raises(AddressRefusedError) as caught:
        guard.require(address, guard.target("target.example"))
    assert address not in str(caught.value)
    trusting = AddressGuard(["target.example", address.removeprefix("::ffff:")])
    trusting.require(address, trusting.target("target.example"))


def test_a_refusal_names_the_address_only_where_the_user_wrote_it() -> None:
    """What a name leads to is inner knowledge."""
    guard = AddressGuard([])
    with pytest.raises(AddressRefusedError, match=r"^The address 10\.1\.2\.3 is not public"):
        guard.require("10.1.2.3", guard.target("10.1.2.3"))
    with pytest.raises(AddressRefusedError, match=r"^inner\.example leads to an address that is not public and not in"):
        guard.require("10.1.2.3", guard.target("inner.example"))
