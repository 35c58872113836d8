"""A pod's address follows from its name in the network, and no two live pods share one."""

from __future__ import annotations

import ipaddress

from elasticjob_localcluster.node.addresses import AddressPool, NetworkIdentity, derive_address
from hypothesis import given
from hypothesis import strategies as st

LABELS = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
IDENTITIES = st.builds(NetworkIdentity, LABELS, st.just("") | LABELS, LABELS)


@given(IDENTITIES, st.integers(0, 1000))
def test_every_address_is_a_usable_loopback_address_outside_the_hosts_own(
    identity: NetworkIdentity, attempt: int
) -> None:
    address = ipaddress.IPv4Address(derive_address(identity, attempt))
    low = ipaddress.IPv4Address("127.1.0.1")
    high = ipaddress.IPv4Address("127.254.255.254")
    assert low <= address <= high
    assert address.packed[3] not in (0, 255)


@given(IDENTITIES)
def test_the_address_is_the_same_in_every_life_of_the_node(identity: NetworkIdentity) -> None:
    assert (
        AddressPool().claim(identity, "a", ())
        == AddressPool().address_of(identity)
        == derive_address(identity)
    )


@given(st.lists(st.tuples(IDENTITIES, st.uuids()), unique_by=lambda pair: pair[1]))
def test_live_pods_never_share_an_address(pods: list[tuple[NetworkIdentity, object]]) -> None:
    addresses = AddressPool()
    given_out = [addresses.claim(identity, str(uid), ()) for identity, uid in pods]
    assert len(set(given_out)) == len(pods)
    again = [addresses.claim(identity, str(uid), ()) for identity, uid in pods]
    assert len(set(again)) == len(pods)


def test_two_names_whose_addresses_collide_get_different_ones() -> None:
    addresses = AddressPool()
    owners: dict[str, int] = {}
    collided = False
    for number in range(20_000):  # enough for a collision in a space of 16 million
        identity = NetworkIdentity("n", "", f"pod-{number}")
        collided |= derive_address(identity) in owners
        assert owners.setdefault(addresses.address_of(identity), number) == number
    assert collided


def test_a_relaunched_pod_has_the_address_of_its_ended_or_ending_predecessor() -> None:
    addresses = AddressPool()
    name = NetworkIdentity("team", "", "job-master")
    first = addresses.claim(name, "old", ())
    assert addresses.claim(name, "new", {"old"}) == first
    addresses.release("new")
    assert addresses.claim(name, "newest", ()) == first


def test_a_service_name_and_the_pod_of_that_host_name_have_one_address_in_any_order() -> None:
    name = NetworkIdentity("team", "", "job-master")
    before = AddressPool()
    after = AddressPool()
    asked_first = before.address_of(name)
    assert before.claim(name, "pod", ()) == asked_first
    claimed_first = after.claim(name, "pod", ())
    assert after.address_of(name) == claimed_first == asked_first


def test_pods_of_one_name_in_two_clusters_of_a_machine_have_two_addresses() -> None:
    name = NetworkIdentity("default", "", "job-master")
    first, second, again = (AddressPool(each).address_of(name) for each in ("a", "b", "a"))
    assert first == again, "on every node of the cluster"
    assert first != second


def test_addresses_of_an_earlier_process_of_the_node_are_kept() -> None:
    addresses = AddressPool()
    name = NetworkIdentity("team", "", "pod")
    addresses.adopt(name, "127.9.9.9", "u")
    assert addresses.claim(name, "u", ()) == "127.9.9.9"
