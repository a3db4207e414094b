"""TLS of connections over real sockets of loopback: who gets through, who does not, and what the options refuse."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ipcbus.config import ContextOptions
from ipcbus.errors import ConfigError
from ipcbus.transport.tcp.stream_socket import StreamOptions, StreamSocket, listening
from ipcbus.transport.tcp.tls import Tls
from ipcbus.transport.udp.network_interface import Interface
from ipcbus.transport.udp.ports import Ports
from tests.kit.bus import GIVE_UP_S
from tests.kit.certificates import authority, mutual

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipcbus.transport.udp.mmsg import Address

LOOPBACK = Interface("127.0.0.1", 1)
ANY = Ports(0, 0, ephemeral=True, cure="nothing")
OPTIONS = StreamOptions(frame_max=70_000, connections_max=100)
SECOND_NS = 1_000_000_000


def tls_of(options: Mapping[str, object]) -> Tls | None:
    return Tls(ContextOptions(options)) if options else None


class Pair:
    """A source and a receiver that connects to it, each with the options of its context."""

    def __init__(self, source: Mapping[str, object], receiver: Mapping[str, object]) -> None:
        one, other = tls_of(source), tls_of(receiver)
        self.source = listening(LOOPBACK, ANY, OPTIONS, one.accepted if one else None)
        self.receiver = StreamSocket(None, LOOPBACK, OPTIONS, other.connected if other else None)
        self.at_source: list[tuple[bytes, Address]] = []
        self.at_receiver: list[tuple[bytes, Address]] = []
        self.failures = {"source": "", "receiver": ""}

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()
        self.receiver.close()

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while not condition():
            assert time.monotonic() < deadline, self.failures
            self.at_source += self.source.receive()[0]
            self.at_receiver += self.receiver.receive()[0]
            for name, end in (("source", self.source), ("receiver", self.receiver)):
                for _, why in end.take_failures():
                    self.failures[name] = why

    def say(self, *packets: bytes) -> None:
        self.receiver.send_pairs([(packet, self.source.address) for packet in packets])


def test_packets_of_all_sizes_go_both_ways(tmp_path: Path) -> None:
    sent = [random.Random(size).randbytes(size) for size in (1, 2, 1000, 70_000, 3, 16_384, 65_536, 7)]
    with Pair(mutual(tmp_path), mutual(tmp_path)) as pair:
        pair.say(*sent)
        pair.until(lambda: len(pair.at_source) == len(sent))
        assert [packet for packet, _ in pair.at_source] == sent
        client = pair.at_source[0][1]
        for packet in sent * 30:  # more than the buffers of the system hold
            pair.source.send_pairs([(packet, client)])
        assert pair.source.unsent(client)
        pair.until(lambda: len(pair.at_receiver) == 30 * len(sent))
        assert [packet for packet, _ in pair.at_receiver] == sent * 30
        assert pair.source.unsent(client) == 0
        pair.source.send_pairs([(b"last", client), (b"", client)])
        pair.until(lambda: len(pair.at_receiver) == 30 * len(sent) + 2)
        assert [packet for packet, _ in pair.at_receiver[-2:]] == [b"last", b""]
        assert pair.failures == {"source": "", "receiver": ""}


def options(who: str, folder: Path) -> dict[str, object]:
    """The options of a context, by a word."""
    own = folder / who
    own.mkdir()
    trusts = {"tls_trusted_certificates": authority().trusted(own)}
    stranger = authority("stranger")
    if who == "of a stranger":
        return stranger.issue(own, "good") | trusts
    if who == "trusts a stranger":
        return authority().issue(own, "good") | {"tls_trusted_certificates": stranger.trusted(own)}
    if who == "trusts nobody":
        return authority().issue(own, "good")
    changes: dict[str, dict[str, object]] = {
        "good": {},
        "without certificate": {"tls_certificate": "", "tls_certificate_key": ""},
        "expired": authority().issue(own, "expired", valid=False),
        "looks for good": {"tls_peer_name": "GOOD"},
        "looks for another": {"tls_peer_name": "another"},
        "old": {"tls_cipher_suites": "ECDHE-ECDSA-AES128-GCM-SHA256"},
    }
    return {} if who == "plain" else mutual(own, "good") | changes[who]


@pytest.mark.parametrize(
    ("source", "receiver"),
    [("trusts nobody", "without certificate"), ("good", "looks for good"), ("looks for good", "good"), ("old", "good")],
)
def test_who_gets_through(tmp_path: Path, source: str, receiver: str) -> None:
    with Pair(options(source, tmp_path), options(receiver, tmp_path)) as pair:
        pair.say(b"hello")
        pair.until(lambda: pair.at_source)
        assert pair.at_source[0][0] == b"hello"


@pytest.mark.parametrize(
    ("source", "receiver", "at_source", "at_receiver"),
    [
        ("plain", "good", "set use_tls on both sides", "does it use TLS"),
        ("good", "plain", "does it use TLS", "set use_tls on both sides"),
        ("good", "without certificate", "set tls_certificate there", "set tls_certificate here"),
        ("expired", "good", "compare tls_certificate", "certificate has expired"),
        ("good", "expired", "certificate has expired", "how long the certificate is valid"),
        ("of a stranger", "good", "compare tls_certificate", "compare it with tls_trusted_certificates"),
        ("good", "of a stranger", "compare it with tls_trusted", "compare tls_certificate"),
        ("good", "trusts a stranger", "compare tls_certificate", "compare it with tls_trusted_certificates"),
        ("good", "looks for another", "", "does not have the name 'another' of tls_peer_name"),
        ("looks for another", "good", "does not have the name 'another' of tls_peer_name", "tls_peer_name"),
    ],
)
def test_who_does_not_and_what_each_side_is_told(
    tmp_path: Path, source: str, receiver: str, at_source: str, at_receiver: str
) -> None:
    with Pair(options(source, tmp_path), options(receiver, tmp_path)) as pair:
        pair.say(b"hello")
        pair.until(lambda: pair.at_receiver and not pair.source._connections)
        assert pair.at_receiver == [(b"", pair.source.address)]
        assert b"hello" not in [packet for packet, _ in pair.at_source]
        assert at_source in pair.failures["source"]
        assert at_receiver in pair.failures["receiver"]
        assert pair.source.counts.tls_failed == bool(at_source)
        assert pair.receiver.counts.tls_failed == 1


def test_versions_before_1_2_are_refused(tmp_path: Path) -> None:
    tls = tls_of(mutual(tmp_path))
    assert tls is not None
    for context in (tls.source_side(), tls.receiver_side()):
        assert context.minimum_version.name == "TLSv1_2"


@pytest.mark.parametrize("kept", [0, 1, 5, 60, 150])
def test_garbage_within_the_handshake_ends_only_its_connection(tmp_path: Path, kept: int) -> None:
    """The first bytes of a real hello, then noise."""
    with Pair(mutual(tmp_path), mutual(tmp_path)) as pair, socket.create_connection(pair.source.address) as stranger:
        tls = tls_of(mutual(tmp_path))
        assert tls is not None
        hello = tls.connected().take()
        assert len(hello) > 150
        stranger.sendall(hello[:kept] + random.Random(kept).randbytes(20_000))
        stranger.shutdown(socket.SHUT_WR)
        pair.say(b"hello")
        pair.until(
            lambda: (b"hello" in [packet for packet, _ in pair.at_source]) and len(pair.source._connections) == 1
        )
        assert pair.source.counts.tls_failed <= 1


def test_a_handshake_that_stalls_is_ended_and_counted(tmp_path: Path) -> None:
    with Pair(mutual(tmp_path), mutual(tmp_path)) as pair, socket.create_connection(pair.source.address) as stranger:
        stranger.sendall(b"\x16\x03\x01\x02\x00\x01")
        pair.until(lambda: pair.source._connections)
        now_ns = time.monotonic_ns()
        due_ns = pair.source.end_strangers(now_ns, 10 * SECOND_NS)
        assert due_ns is not None
        assert now_ns < due_ns <= now_ns + 10 * SECOND_NS
        pair.say(b"known")
        pair.until(lambda: pair.at_source)
        assert pair.source.end_strangers(due_ns, 10 * SECOND_NS) is None
        pair.until(lambda: pair.failures["source"])
        assert pair.failures["source"] == "it has not finished the handshake in time"
        assert pair.source.counts.tls_failed == 1
        assert len(pair.source._connections) == 1  # that of the receiver
        while stranger.recv(4096):
            pass


def readable_by_others(folder: Path) -> dict[str, object]:
    found = mutual(folder)
    Path(str(found["tls_certificate_key"])).chmod(0o640)
    return found


def with_file(option: str, content: str) -> Callable[[Path], dict[str, object]]:
    def made(folder: Path) -> dict[str, object]:
        path = folder / "file"
        path.touch(0o600)
        path.write_text(content)
        return mutual(folder) | {option: str(path)}

    return made


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda _: {"use_tls": True}, "use_tls .* needs tls_certificate for sources, and tls_trusted_certificates"),
        (lambda folder: mutual(folder) | {"tls_certificate": str(folder / "no")}, "tls_certificate .*No such file"),
        (
            lambda folder: mutual(folder) | {"tls_certificate_key": "/no"},
            "tls_certificate_key .* cannot be read .*check",
        ),
        (lambda folder: mutual(folder) | {"tls_certificate_key": ""}, "no private key .* tls_certificate_key"),
        (lambda folder: mutual(folder) | {"tls_certificate": ""}, "tls_certificate_key .* needs tls_certificate"),
        (
            lambda folder: mutual(folder) | {"tls_trusted_certificates": "/no"},
            "tls_trusted_certificates .*No such file",
        ),
        (lambda folder: mutual(folder) | {"tls_cipher_suites": "NONE-SUCH"}, "openssl ciphers"),
        (lambda folder: authority().issue(folder, "locked", password=b"x"), "key with a password.* openssl pkey"),
        (
            lambda folder: mutual(folder) | {"tls_certificate": authority().trusted(folder)},
            "the key that belongs to it",
        ),
        (readable_by_others, "tls_certificate_key .* mode 0640.* chmod 600"),
        (with_file("tls_trusted_certificates", "no certificate"), "tls_trusted_certificates .* in PEM form"),
        (with_file("tls_certificate_key", "PRIVATE KEY, but no PEM"), "cannot be used with the key in"),
    ],
)
def test_wrong_options_are_errors_with_the_cure(
    tmp_path: Path, given: Callable[[Path], dict[str, object]], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        tls_of(given(tmp_path))


def test_the_key_may_stand_in_the_file_of_the_certificate(tmp_path: Path) -> None:
    found = mutual(tmp_path)
    both = tmp_path / "both"
    both.touch(0o600)
    both.write_bytes(b"".join(Path(str(found[f"tls_certificate{each}"])).read_bytes() for each in ("", "_key")))
    assert tls_of(found | {"tls_certificate": str(both), "tls_certificate_key": ""})


def test_a_side_without_what_it_needs_is_an_error_with_the_cure(tmp_path: Path) -> None:
    one, other = tls_of(options("without certificate", tmp_path)), tls_of(options("trusts nobody", tmp_path))
    assert one is not None
    assert other is not None
    with pytest.raises(ConfigError, match="a source over lbttcp needs tls_certificate"):
        one.source_side()
    with pytest.raises(ConfigError, match="a receiver over lbttcp needs tls_trusted_certificates"):
        other.receiver_side()


def test_changed_files_are_read_again_and_bad_ones_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = tls_of(mutual(tmp_path))
    assert tls is not None
    first = tls.source_side()
    due_ns = tls.turn(5)
    assert tls.turn(due_ns) == due_ns + SECOND_NS
    assert tls.source_side() is first
    mutual(tmp_path)
    tls.turn(due_ns + SECOND_NS)
    second = tls.source_side()
    assert second is not first
    Path(str(mutual(tmp_path)["tls_certificate_key"])).write_text("no key")
    tls.turn(due_ns + 2 * SECOND_NS)
    assert tls.source_side() is second
    assert "goes on with the certificates that it has" in caplog.text
