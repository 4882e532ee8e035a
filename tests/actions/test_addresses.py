"""Which addresses may be reached."""

from ipaddress import ip_address

import pytest

from app.actions.addresses import AddressGuard, AddressRefusedError


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


def test_an_allowed_name_may_lead_anywhere_and_another_name_may_not() -> None:
    """The trust is for one call, not for the address."""
    guard = AddressGuard(["target.svc.cluster.local"])
    guard.trust_host("Target.svc.cluster.local.")
    guard.require("10.1.2.3")
    guard.trust_host("other.example")
    with pytest.raises(AddressRefusedError):
        guard.require("10.1.2.3")
