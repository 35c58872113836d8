"""Assigns every pod an address in 127/8.

There is no cluster network, so the address is derived from the pod's network identity: namespace,
subdomain and host name. It is known before the pod exists, and its replacement has the same. All
nodes of a cluster derive the same one, and those of another cluster on this machine another. A
Service has the address of the pod whose host name is the Service's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

HOST_IP = "127.0.0.1"
_SPAN = 254


class NetworkIdentity(NamedTuple):
    """A pod's name in the network.

    `instance` distinguishes pods that claim one name at the same time.
    """

    namespace: str
    subdomain: str
    hostname: str
    instance: str = ""


def derive_address(identity: NetworkIdentity, attempt: int = 0, cluster: str = "") -> str:
    """Return an address from 127.1.0.1 to 127.254.255.254 that depends only on the arguments."""
    digest = hashlib.sha256("\0".join([*identity, str(attempt), cluster]).encode()).digest()
    return f"127.{1 + digest[0] % _SPAN}.{digest[1]}.{1 + digest[2] % _SPAN}"


class AddressPool:
    """The addresses assigned by one node: each belongs to one identity.

    An identity keeps its address while the node runs, so that a relaunched pod has its
    predecessor's address.
    """

    def __init__(self, cluster: str = "") -> None:
        """Begin with no address; `cluster` is any text that only this cluster's nodes have."""
        self._cluster = cluster
        self._address: dict[NetworkIdentity, str] = {}
        self._identity: dict[str, NetworkIdentity] = {}
        self._holder: dict[str, str] = {}

    def address_of(self, identity: NetworkIdentity) -> str:
        """Return the identity's address; assign one if it has none yet."""
        known = self._address.get(identity)
        if known is not None:
            return known
        attempt = 0
        while (address := derive_address(identity, attempt, self._cluster)) in self._identity:
            attempt += 1
        self._address[identity] = address
        self._identity[address] = identity
        return address

    def adopt(self, identity: NetworkIdentity, address: str, uid: str) -> None:
        """Take over an address that an earlier process of the node assigned to a pod."""
        if address not in self._identity and identity not in self._address:
            self._address[identity] = address
            self._identity[address] = identity
            self._holder[address] = uid

    def claim(self, identity: NetworkIdentity, uid: str, leaving: Iterable[str]) -> str:
        """Return the pod's address; a second live pod of the same name gets a different one.

        The addresses of pods that are `leaving`, or have ended, pass to successors.
        """
        address = self.address_of(identity)
        holder = self._holder.get(address)
        if holder not in (None, uid) and holder not in set(leaving):
            address = self.address_of(identity._replace(instance=uid))
        self._holder[address] = uid
        return address

    def release(self, uid: str) -> None:
        """Release the addresses that a pod holds."""
        for address in [address for address, holder in self._holder.items() if holder == uid]:
            del self._holder[address]
            identity = self._identity[address]
            if identity.instance:
                del self._identity[address]
                del self._address[identity]
