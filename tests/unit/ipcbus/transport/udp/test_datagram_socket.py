"""UDP sockets on loopback; multicast only inside a network namespace that the test made."""

from __future__ import annotations

import fcntl
import logging
import os
import random
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipcbus.errors import TransportError
from ipcbus.transport.udp import datagram_socket
from ipcbus.transport.udp.datagram_socket import Buffers, DatagramSocket, unicast
from ipcbus.transport.udp.loss_injection import LossInjection
from ipcbus.transport.udp.mmsg import Batched
from ipcbus.transport.udp.network_interface import find
from ipcbus.transport.udp.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipcbus.transport.udp.mmsg import Address

ANY = Ports(0, 0, False, "x")


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request: pytest.FixtureRequest) -> str:
    with socket.socket(socket.AF_INET6 if ":" in request.param else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((request.param, 0))
        except OSError as error:
            pytest.skip(f"this host has no {request.param}: {error}")
    return str(request.param)


@pytest.fixture
def make(host: str) -> Iterator[Callable[..., DatagramSocket]]:
    made = []

    def one(ports: Ports = ANY, buffers: Buffers = Buffers(), loss: LossInjection | None = None) -> DatagramSocket:  # noqa: B008
        made.append(unicast(find(host, "transport_lbtru_interface"), ports, buffers, loss))
        return made[-1]

    yield one
    for each in made:
        each.close()


def get(sock: DatagramSocket, count: int) -> list[tuple[bytes, Address]]:
    """Waits for so many."""
    found: list[tuple[bytes, Address]] = []
    while len(found) < count:
        select.select([sock], [], [])
        found += sock.receive(count - len(found))
    return found


def test_there_and_back(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make()
    assert one.send(b"ping", other.address)
    ((packet, sender),) = get(other, 1)
    assert (packet, sender) == (b"ping", one.address)
    assert sender == other.peer(str(one.address[0]), one.address[1])
    assert hash(sender) == hash(one.address)
    assert other.send(b"", sender)
    assert get(one, 1) == [(b"", other.address)]
    assert (one.counts.dgrams_sent, one.counts.bytes_sent) == (1, 4)
    assert (other.counts.dgrams_rcved, other.counts.bytes_rcved) == (1, 4)


def test_many_in_their_order_and_no_more_than_asked_for(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make()
    packets = [bytes([number]) * size for number, size in enumerate([1, 100, 1400, 8192, 65000] * 20)]
    for begin in range(0, 100, 10):
        some = packets[begin : begin + 10]
        assert one.send_pairs((packet, other.address) for packet in some) == ()
        assert get(other, 3) + get(other, 7) == [(packet, one.address) for packet in some]
    assert other.receive(10) == []
    assert other.receive(0) == []


def test_more_than_a_batch(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make()
    assert one.send_pairs([(bytes([n]), other.address) for n in range(100)]) == ()
    assert [packet for packet, _ in other.receive(100)] == [bytes([n]) for n in range(100)]


def test_to_all(make: Callable[..., DatagramSocket]) -> None:
    one, others = make(), [make() for _ in range(3)]
    assert one.send_to_all(b"news", [other.address for other in others]) == 3
    assert [get(other, 1) for other in others] == [[(b"news", one.address)]] * 3
    assert one.send_to_all(b"news", ()) == 0


def test_first_free_port_then_any_then_none(make: Callable[..., DatagramSocket]) -> None:
    first = make()
    port = first.address[1]
    taken = Ports(port, port, True, "x")
    second = make(taken)
    assert second.address[1] != port
    with pytest.raises(TransportError, match=f"UDP port {port} is in use on interface .* change the_option"):
        make(Ports(port, port, False, "the_option"))
    first.close()
    assert make(taken).address[1] == port


def test_ports_in_their_order(make: Callable[..., DatagramSocket]) -> None:
    low = make().address[1]
    assert make(Ports(low, min(low + 20, 65535), True, "x")).address[1] > low or low > 65500


def test_what_the_kernel_refuses_is_counted(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make()
    assert not one.send(bytes(70_000), other.address)
    pairs = [(b"1", other.address), (bytes(70_000), other.address), (b"2", other.address)]
    assert one.send_pairs(pairs) == ()
    assert [packet for packet, _ in get(other, 2)] == [b"1", b"2"]
    assert one.counts.send_too_large == 2
    assert not one.send(b"x", one.peer("::1" if ":" in str(one.address[0]) else "127.0.0.1", 0))
    assert one.counts.send_refused == 1


def test_a_closed_port_is_no_error(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make()
    other.close()
    for _ in range(3):
        one.send(b"x", other.address)
        assert one.receive(4) == []


def test_after_the_end(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make()
    one.close()
    one.close()
    assert one.fileno() == -1
    assert not one.send(b"x", other.address)
    assert one.send_to_all(b"x", [other.address] * 3) == 0
    assert one.receive(1) == []
    assert one.counts.dgrams_sent == 0


def test_no_child_gets_it_and_it_never_blocks(make: Callable[..., DatagramSocket]) -> None:
    one = make()
    assert fcntl.fcntl(one.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert not os.get_blocking(one.fileno())
    assert one.receive(1) == []


@pytest.mark.parametrize("address", [("nowhere", 1), ("", 1), ("10.0.0.1.1", 1)])
def test_addresses_are_numeric(make: Callable[..., DatagramSocket], address: Address) -> None:
    with pytest.raises(ValueError, match="is not an IPv"):
        make().send(b"x", address)


def test_values_of_the_wrong_kind(make: Callable[..., DatagramSocket]) -> None:
    one = make()
    for pairs in ([(None, one.address)], [("x", one.address)], [(b"x", (1, 2))], [(b"x", None)]):
        with pytest.raises(TypeError):
            one.send_pairs(pairs)
    with pytest.raises(ValueError, match="unpack"):
        one.send_pairs([(b"x",)])  # type: ignore[list-item]
    with pytest.raises((OverflowError, ValueError)):
        one.send(b"x", (str(one.address[0]), 65536))
    assert one.counts.dgrams_sent == 0


def test_more_addresses_than_are_remembered(make: Callable[..., DatagramSocket]) -> None:
    one = make()
    if ":" in str(one.address[0]):
        return
    for number in range(5000):
        one.send(b"", (f"127.1.{number // 250}.{number % 250 + 1}", 9))
    other = make()
    assert one.send(b"x", other.address)
    assert get(other, 1) == [(b"x", one.address)]


def test_a_datagram_longer_than_the_room_is_dropped() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        batched = Batched(sock.fileno(), False, 10)
        for size in (10, 11, 9):
            assert batched.send(bytes(size), sock.getsockname()) == 1
        select.select([sock], [], [])
        assert [len(packet) for packet, _ in batched.receive(9)] == [10, 9]
        assert batched.truncated == 1


def test_two_threads_that_receive_share_what_comes() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        batched = Batched(sock.fileno(), False, 2000)
        found: list[bytes] = []
        packets = [number.to_bytes(2, "big") * 40 for number in range(100)]
        together = threading.Barrier(2)

        def receive() -> None:
            together.wait()
            while len(found) < len(packets):
                found.extend(packet for packet, _ in batched.receive(3))

        threads = [threading.Thread(target=receive) for _ in range(2)]
        assert batched.send_pairs([(packet, sock.getsockname()) for packet in packets]) == ()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == packets


def test_artificial_loss(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make(loss=LossInjection(50, random.Random(7)))
    expected, came = random.Random(7), []
    for number in range(100):
        one.send(bytes([number]), other.address)
        select.select([other], [], [])
        came += [packet[0] for packet, _ in other.receive(1)]
    assert came == [number for number in range(100) if expected.random() >= 0.5]
    assert other.counts.dgrams_lost == 100 - len(came)
    assert other.counts.dgrams_rcved == 100


def test_the_kernel_drops_what_does_not_fit(make: Callable[..., DatagramSocket]) -> None:
    one, other = make(), make(buffers=Buffers(receive=4096))
    sent = one.send_to_all(bytes(1000), [other.address] * 100)
    came = len(other.receive(100))
    assert 0 < came < sent
    assert other.counts.dgrams_overrun == sent - came


def test_a_smaller_buffer_than_asked_for_is_reported_once(
    make: Callable[..., DatagramSocket], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagram_socket, "_reported", set())
    # Not even root gets it where forcing is unknown.
    monkeypatch.setattr(datagram_socket, "_SO_RCVBUFFORCE", 9999)
    monkeypatch.setattr(datagram_socket, "_SO_SNDBUFFORCE", 9999)
    buffers = Buffers(2**30, 2**29, "transport_lbtru_receiver_socket_buffer", "transport_lbtru_source_socket_buffer")
    with caplog.at_level(logging.WARNING, "ipcbus"):
        make(buffers=buffers)
        make(buffers=buffers)
    receive, send = (record.getMessage() for record in caplog.records)
    assert receive.startswith("option transport_lbtru_receiver_socket_buffer = 1073741824: the kernel gives")
    # Older kernels show the limit to the host only, not in a container.
    limit = Path("/proc/sys/net/core/rmem_max")
    if limit.exists():
        assert f"gives this process {limit.read_text().strip()} bytes" in receive
    assert receive.endswith("sysctl -w net.core.rmem_max=1073741824")
    assert send.startswith("option transport_lbtru_source_socket_buffer = 536870912: ")
    assert send.endswith("sysctl -w net.core.wmem_max=536870912")


def test_a_buffer_that_is_given_is_not_reported(
    make: Callable[..., DatagramSocket], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ipcbus"):
        make(buffers=Buffers(65536, 65536))
    assert not caplog.records


MULTICAST = """
import select, sys
from ipcbus.transport.udp.datagram_socket import Buffers, group_member, unicast
from ipcbus.transport.udp.ports import Ports
from ipcbus.transport.udp.network_interface import find

def get(sock):
    select.select([sock], [], [])
    return sock.receive(9)

for host, network, group, other in (
    ("10.99.0.1", "10.99.0.0/24", "224.10.10.10", "224.10.10.11"),
    ("fd99::1", "fd99::/64", "ff15::a", "ff15::b"),
):
    interface = find(network, "o")
    assert interface.host == host, interface
    source = unicast(interface, Ports(14390, 14399, False, "o"), Buffers())
    source.send_multicast_from(interface, 1)
    members = [group_member(group, 14400, interface, Buffers()) for _ in range(2)]
    stranger = group_member(other, 14400, interface, Buffers())
    assert source.send(b"for nobody", source.peer(host, 14400))
    assert source.send(b"for one", source.peer(group, 14400))
    assert source.send(b"for the other", source.peer(other, 14400))
    for member in members:
        assert get(member) == [(b"for one", source.address)], host
    assert get(stranger) == [(b"for the other", source.address)]
    assert members[0].send(b"nak", source.address), members[0].counts
    ((packet, _),) = get(source)
    assert packet == b"nak"
    for each in (source, stranger, *members):
        each.close()
print("heard")
"""

NAMESPACE = (
    "ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.99.0.1/24 dev v0"
    " && ip -6 addr add fd99::1/64 dev v0 nodad && ip link set v0 up && ip link set v1 up"
)


def test_multicast() -> None:
    inside = ["unshare", "--net", "sh", "-c", f'{NAMESPACE} && echo ready && exec "$0" -c "$1"']
    try:
        done = subprocess.run([*inside, sys.executable, MULTICAST], capture_output=True, text=True, timeout=50)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if not done.stdout.startswith("ready"):
        pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
    assert done.stdout.endswith("heard\n"), done.stderr


def test_a_group_that_cannot_be_joined_names_the_cure(host: str) -> None:
    interface = find(host, "o")
    with pytest.raises(TransportError, match="cannot be joined on interface .* set resolver_multicast_interface"):
        datagram_socket.group_member("10.0.0.1" if ":" not in host else "fd00::77", 14400, interface, Buffers())
