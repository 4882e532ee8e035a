"""What may reach the pods and what they may reach, once NetworkPolicies are on."""

from ipaddress import ip_address, ip_network

import pytest

from tests.chart.manifests import COMPONENT, only, pods
from tests.chart.rendering import Manifest, Renderer, Values
from tests.chart.values import EVERYTHING, EXISTING, HIGHLY_AVAILABLE, LEAST

# Where clouds hand out credentials: most of them, Alibaba, Azure's other, Oracle, and three by IPv6.
METADATA = (
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("fe80::a9fe:a9fe", "fd00:ec2::254", "fd20:ce::254"),
)
POLICED = {"default": HIGHLY_AVAILABLE, "everything": EVERYTHING, "least": LEAST}
every_policed = pytest.mark.parametrize("values", POLICED.values(), ids=POLICED.keys())


def policies(manifests: list[Manifest]) -> list[Manifest]:
    """Every policy's spec."""
    return [item["spec"] for item in manifests if item["kind"] == "NetworkPolicy"]


def rules(manifests: list[Manifest], component: str, way: str) -> list[Manifest]:
    """What is allowed to the pods of a component."""
    found = [spec for spec in policies(manifests) if spec["podSelector"]["matchLabels"].get(COMPONENT) == component]
    assert 1 == len(found)
    allowed: list[Manifest] = found[0].get(way, [])
    return allowed


def reaches(rule: Manifest, address: str, port: int) -> bool:
    """Whether a rule lets TCP through to an address outside the cluster."""
    ports = rule.get("ports", [{"protocol": "TCP", "port": port}])
    if {"protocol": "TCP", "port": port} not in ports:
        return False
    return "to" not in rule or any(covers(peer["ipBlock"], address) for peer in rule["to"] if "ipBlock" in peer)


def covers(block: Manifest, address: str) -> bool:
    """Whether an address is in a block and in none of its exceptions."""
    inside = [ip_address(address) in ip_network(cidr) for cidr in (block["cidr"], *block.get("except", []))]
    return inside[0] and not any(inside[1:])


@every_policed
def test_everything_is_denied_first(render: Renderer, values: Values) -> None:
    """One policy selects every pod of the release, both ways, and allows nothing."""
    manifests = render(values)
    (denying,) = [spec for spec in policies(manifests) if COMPONENT not in spec["podSelector"]["matchLabels"]]
    selector = denying["podSelector"]["matchLabels"]
    assert {"podSelector", "policyTypes"} == set(denying)
    assert ["Ingress", "Egress"] == denying["policyTypes"]
    assert [] == [pod for pod in pods(manifests) if not selector.items() <= pod["metadata"]["labels"].items()]


@every_policed
def test_every_pod_has_its_policy(render: Renderer, values: Values) -> None:
    """No component is left with nothing, and no policy is for nobody."""
    manifests = render(values)
    selected = {spec["podSelector"]["matchLabels"].get(COMPONENT) for spec in policies(manifests)} - {None}
    assert {pod["metadata"]["labels"][COMPONENT] for pod in pods(manifests)} == selected


@every_policed
@pytest.mark.parametrize("address", METADATA)
def test_no_pod_reaches_the_metadata_of_the_machine(render: Renderer, values: Values, address: str) -> None:
    """On no port of the web, by no rule, from no component."""
    for spec in policies(render(values)):
        for rule in spec.get("egress", []):
            assert [] == [port for port in (80, 443, 8080) if reaches(rule, address, port)]


@pytest.mark.parametrize("address", ["93.184.215.14", "10.20.30.40", "2606:2800:21f::1"])
def test_workers_reach_their_targets(render: Renderer, address: str) -> None:
    """The internet, the cluster's addresses, and pods of every namespace where addresses do not count."""
    allowed = rules(render(HIGHLY_AVAILABLE), "worker", "egress")
    assert any(reaches(rule, address, 8443) for rule in allowed)
    assert any({"namespaceSelector": {}} in rule.get("to", []) for rule in allowed)


def test_the_api_calls_nobody_unless_it_runs_schedules(render: Renderer) -> None:
    """Only where the cron ping has a token do schedules run in the API."""
    without = rules(render(HIGHLY_AVAILABLE), "api", "egress")
    pinged = rules(render({**EXISTING, "networkPolicy": {"enabled": True}}), "api", "egress")
    assert not any(reaches(rule, "93.184.215.14", 443) for rule in without)
    assert any(reaches(rule, "93.184.215.14", 443) for rule in pinged)


@pytest.mark.parametrize(
    ("component", "expected"),
    [
        ("api", {53, 5432, 6379}),
        ("migrate", {53, 5432}),
        ("test", {53, 8000}),
    ],
)
def test_each_reaches_what_it_needs(render: Renderer, component: str, expected: set[int]) -> None:
    """Names, and the stores that it uses."""
    allowed = rules(render(HIGHLY_AVAILABLE), component, "egress")
    assert expected == {port["port"] for rule in allowed for port in rule["ports"]}


def test_the_api_alone_reaches_the_identity_provider_where_there_is_one(render: Renderer) -> None:
    """On its port and where it is."""
    given = EVERYTHING["networkPolicy"]["identityProvider"]
    rule = {"ports": [{"protocol": "TCP", "port": 6443}], "to": given["to"]}
    assert rule in rules(render(EVERYTHING), "api", "egress")
    assert rule not in rules(render(EVERYTHING), "worker", "egress")
    anywhere = {**HIGHLY_AVAILABLE, "settings": {"oidcIssuer": "https://login.example.org"}}
    assert {"ports": [{"protocol": "TCP", "port": 443}]} in rules(render(anywhere), "api", "egress")
    assert {"ports": [{"protocol": "TCP", "port": 443}]} not in rules(render(HIGHLY_AVAILABLE), "api", "egress")


@pytest.mark.parametrize("component", ["api", "worker"])
def test_the_collector_is_reached_where_there_is_one(render: Renderer, component: str) -> None:
    """By whoever makes traces, on its port and where it is; by nobody if none are made."""
    allowed = rules(render(EVERYTHING), component, "egress")
    given = EVERYTHING["networkPolicy"]["collector"]
    assert {"ports": [{"protocol": "TCP", "port": 4319}], "to": given["to"]} in allowed
    anywhere = {**HIGHLY_AVAILABLE, "settings": {"otelEndpoint": "https://collector.example.org"}}
    assert {"ports": [{"protocol": "TCP", "port": 4318}]} in rules(render(anywhere), component, "egress")
    for rule in rules(render(HIGHLY_AVAILABLE), component, "egress"):
        assert 4318 not in [port["port"] for port in rule.get("ports", [])]
    for jobs in ("migrate", "schedules", "test"):
        assert not [rule for rule in rules(render(EVERYTHING), jobs, "egress") if rule.get("to") == given["to"]]


def test_names_are_asked_by_both_protocols(render: Renderer) -> None:
    """DNS is UDP, and TCP where the answer is long, on all its ports."""
    (dns, *_) = rules(render(EVERYTHING), "worker", "egress")
    assert {(protocol, port) for protocol in ("UDP", "TCP") for port in (53, 5353)} == {
        (port["protocol"], port["port"]) for port in dns["ports"]
    }


def test_given_peers_narrow_the_rules(render: Renderer) -> None:
    """Postgres by its pods, targets by their ports, and what is added."""
    given, allowed = EVERYTHING["networkPolicy"], rules(render(EVERYTHING), "worker", "egress")
    assert {"ports": [{"protocol": "TCP", "port": 6432}], "to": given["postgres"]["to"]} in allowed
    assert given["extraEgress"][0] in allowed
    assert [{"protocol": "TCP", "port": port} for port in (80, 443)] == allowed[-1]["ports"]


def test_callers_can_be_named(render: Renderer) -> None:
    """The API is open to all or to those named, and always to `helm test`; metrics to their scrapers."""
    everybody, scrapers = rules(render(HIGHLY_AVAILABLE), "api", "ingress")
    assert {"ports": [{"protocol": "TCP", "port": 8000}]} == everybody
    assert {"ports": [{"protocol": "TCP", "port": 9100}]} == scrapers
    named, scrapers = rules(render(EVERYTHING), "api", "ingress")
    assert [{"protocol": "TCP", "port": 9300}] == scrapers["ports"]
    assert EVERYTHING["networkPolicy"]["metricsFrom"] == scrapers["from"]
    tested = named["from"][-1]["podSelector"]["matchLabels"]
    assert EVERYTHING["networkPolicy"]["apiFrom"] == named["from"][:-1]
    assert "test" == tested[COMPONENT]
    (scraped,) = rules(render(EVERYTHING), "worker", "ingress")
    assert [{"protocol": "TCP", "port": 9200}] == scraped["ports"]
    assert EVERYTHING["networkPolicy"]["metricsFrom"] == scraped["from"]


def test_nobody_calls_a_job(render: Renderer) -> None:
    """Jobs and the test's pod are called by nobody."""
    for component in ("migrate", "schedules", "test"):
        assert [] == rules(render(EVERYTHING), component, "ingress")


def test_the_policy_of_the_migration_comes_with_it(render: Renderer) -> None:
    """It is a hook: the others do not exist yet, or deny."""
    policy = only(render(EVERYTHING), "NetworkPolicy", "-migrate")
    assert "pre-install,pre-upgrade" == policy["metadata"]["annotations"]["helm.sh/hook"]
