"""Connections to receivers: to addresses that deliveries may reach, each with an end.

A name is resolved once, its addresses are checked, and the connection goes to a checked address. So a name that a
stranger controls cannot lead a delivery into the private network of this machine.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from tidemill.alerts.targets import is_loopback
from tidemill.errors import Unavailable

LONGEST_TRY: Final = timedelta(seconds=30)
"""The time after which a try is cut off, however lively its receiver is."""
LONGEST_SILENCE: Final = timedelta(seconds=10)
"""The time for which a receiver may say nothing."""
_NAT64: Final = IPv6Network("64:ff9b::/96")


class NotDelivered(Unavailable):
    """A try that failed. The next try comes later. `answered`: the receiver is there, and did not take the delivery."""

    code = "not_delivered"
    hint = "correct the receiver or the target; the next try comes by itself"

    def __init__(self, why: str, *, answered: bool = False) -> None:
        self.why = why
        self.answered = answered
        super().__init__(why)


class Reach:
    """The receivers that deliveries may reach: all of the public network, and the private ones that are `allowed`.

    `allowed` are names of hosts, and networks such as `10.1.0.0/16`.
    """

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._names = frozenset(allowed)
        self._networks = [ip_network(one, strict=False) for one in allowed if _is_network(one)]

    def connect(self, host: str, port: int) -> socket.socket:
        """Return a connection to a host; `NotDelivered` for a host that is away, and for a private address."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise NotDelivered(f"host {host} has no address") from None
        addresses = [str(address[4][0]) for address in found]
        refused = [one for one in addresses if not self._allows(host, one)]
        if refused:
            raise NotDelivered(
                f"host {host} has the private address {refused[0]}; the setting alerts.private_hosts can allow it"
            )
        error: OSError | None = None
        for address in addresses:
            try:
                return socket.create_connection((address, port), timeout=LONGEST_SILENCE.total_seconds())
            except OSError as failed:
                error = failed
        raise NotDelivered(f"host {host} does not answer: {error}")

    def _allows(self, host: str, address: str) -> bool:
        ip = _meant(ip_address(address.partition("%")[0]))
        if is_loopback(host):
            return ip.is_loopback
        if ip.is_global and not ip.is_multicast:
            return True
        return host.lower() in self._names or any(ip in network for network in self._networks)


@contextmanager
def cut_off(connection: Callable[[], socket.socket | None], after: timedelta) -> Iterator[None]:
    """Shut a connection down if the block takes longer than `after`; then raise `NotDelivered`.

    A receiver that sends a byte now and then would hold the block for ever otherwise.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        if (found := connection()) is not None:
            socket.socket.shutdown(found, socket.SHUT_RDWR)  # of the socket below TLS, which another thread reads

    timer = threading.Timer(after.total_seconds(), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception:
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():  # also without an error: the half of an answer may look like a whole one
        raise NotDelivered(f"the receiver took longer than {after.total_seconds():g} seconds")


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _meant(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address stands for, if there is one."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip
