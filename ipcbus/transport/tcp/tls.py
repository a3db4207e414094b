"""TLS for the connections of sessions over TCP: what the options of a context ask for, and one connection's state."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Final, cast

from ipcbus.config import secret_file
from ipcbus.errors import ConfigError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from ipcbus.config import ContextOptions
    from ipcbus.transport.tcp.inflow import Inflow

log = logging.getLogger("ipcbus")

_READ_BYTES: Final = 65536
"""Bytes to read at once; what is decrypted from them fits an `Inflow`, whatever it holds already."""
_LOOK_NS: Final = 1_000_000_000
_KEY_FILE_MAX: Final = 1 << 20
_REFUSAL: Final = bytes((21, 3, 1, 0, 2, 2, 70))
"""An alert of TLS: fatal, protocol version."""


class Tls:
    """The certificates of one context, as its options name them."""

    def __init__(self, options: ContextOptions) -> None:
        """Reads the files.

        Args:
            options: the options of the context, with `use_tls`.

        Raises:
            ConfigError: a file cannot be read or is not what the option says, or there is neither a certificate nor
                anything that shows which certificates of others are valid.
        """
        self._options, self._due_ns = options, 0
        if not options.tls_certificate and not options.tls_trusted_certificates:
            raise ConfigError(
                "option use_tls (scope context) = 1 needs tls_certificate for sources, and tls_trusted_certificates "
                "for receivers: set one or both"
            )
        if options.tls_certificate_key and not options.tls_certificate:
            raise ConfigError(
                f"{_named('tls_certificate_key', options.tls_certificate_key)} needs tls_certificate: set both, or none"
            )
        self._seen = self._files()
        self._server, self._client = self._load()

    def _load(self) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
        """Reads the files; returns what sources and receivers need."""
        options = self._options
        server = client = None
        if options.tls_certificate:
            server = self._context(ssl.PROTOCOL_TLS_SERVER)
            server.num_tickets = 0  # each connection has a handshake of its own
            if options.tls_trusted_certificates:
                server.verify_mode = ssl.CERT_REQUIRED
        if options.tls_trusted_certificates:
            client = self._context(ssl.PROTOCOL_TLS_CLIENT)
            client.check_hostname = False  # peers are found by address, see `tls_peer_name`
            client.verify_mode = ssl.CERT_REQUIRED
        return server, client

    def _files(self) -> list[tuple[int, ...]]:
        options = self._options
        paths = options.tls_certificate, options.tls_certificate_key, options.tls_trusted_certificates
        return [secret_file.state(path) for path in paths if path]

    def turn(self, now_ns: int) -> int:
        """Reads the files again if they have changed, for new connections; returns when to call again."""
        if now_ns < self._due_ns:
            return self._due_ns
        self._due_ns = now_ns + _LOOK_NS
        files = self._files()
        if files != self._seen:
            self._seen = files
            try:
                self._server, self._client = self._load()
                log.info("the context uses changed certificates for new connections")
            except ConfigError as error:
                log.warning("%s. The context goes on with the certificates that it has", error)
        return self._due_ns

    def _context(self, role: ssl._SSLMethod) -> ssl.SSLContext:
        context, options = ssl.SSLContext(role), self._options
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if options.tls_certificate:
            self._load_certificate(context)
        if path := options.tls_trusted_certificates:
            try:
                context.load_verify_locations(path)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"{_named('tls_trusted_certificates', path)} cannot be used ({_why(error)}): name a file with the "
                    "certificates of authorities in PEM form"
                ) from error
        if suites := options.tls_cipher_suites:
            try:
                context.set_ciphers(suites)
            except ssl.SSLError as error:
                raise ConfigError(
                    f"{_named('tls_cipher_suites', suites)} has no cipher suite that this host has for TLS 1.2: see "
                    "`openssl ciphers -tls1_2 -s`, or leave it empty"
                ) from error
        return context

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        certificate, key = self._options.tls_certificate, self._options.tls_certificate_key
        name, path = ("tls_certificate_key", key) if key else ("tls_certificate", certificate)
        if not _has_key(path):
            raise ConfigError(
                f"{_named(name, path)} has no private key in PEM form: set tls_certificate_key to the file that has it"
            )
        secret_file.read(path, _named(name, path), _KEY_FILE_MAX)

        def no_password() -> bytes:
            raise ConfigError(
                f"{_named(name, path)} has a key with a password, which is never asked for: write the key without one "
                f"to a file that only its owner can read: (umask 077; openssl pkey -in {path} -out NEW)"
            )

        try:
            context.load_cert_chain(certificate, key or None, no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{_named('tls_certificate', certificate)} cannot be used with the key in {path!r} ({_why(error)}): "
                "name a certificate in PEM form and the key that belongs to it"
            ) from error

    def accepted(self) -> TlsStream:
        """Returns the state of a connection that a source has accepted; `source_side` says whether it may."""
        return TlsStream(self.source_side(), self._options.tls_peer_name, server=True)

    def connected(self) -> TlsStream:
        """Returns the state of a connection that a receiver makes; `receiver_side` says whether it may."""
        return TlsStream(self.receiver_side(), self._options.tls_peer_name, server=False)

    def source_side(self) -> ssl.SSLContext:
        """Returns what sources need.

        Raises:
            ConfigError: there is no certificate.
        """
        if self._server is None:
            raise ConfigError("a source over lbttcp needs tls_certificate (scope context) while use_tls is on: set it")
        return self._server

    def receiver_side(self) -> ssl.SSLContext:
        """Returns what receivers need.

        Raises:
            ConfigError: nothing shows which certificates of sources are valid.
        """
        if self._client is None:
            raise ConfigError(
                "a receiver over lbttcp needs tls_trusted_certificates (scope context) while use_tls is on: set it"
            )
        return self._client


class TlsStream:
    """TLS of one connection: it reads the socket, and says what to send."""

    def __init__(self, context: ssl.SSLContext, peer_name: str, *, server: bool) -> None:
        """Begins the handshake.

        Args:
            context: certificates and rules.
            peer_name: the name that the peer's certificate must have; empty for any.
            server: whether this is the side of the source.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._peer_name = peer_name if context.verify_mode == ssl.CERT_REQUIRED else ""
        self._server = server
        self.waiting: list[bytes] = []
        """What is to be sent and was not encrypted yet."""
        self.failure = ""
        """Why TLS has failed, in words; empty while it has not."""
        self.over = False
        """Whether nothing more can come."""
        self._established = self._heard = False
        if not server:
            self._shake_hands()

    def read(self, sock: socket.socket, inflow: Inflow) -> int:
        """Reads what waits in the socket; returns the bytes that came, 0 at its end, and -1 when nothing did."""
        try:
            data = sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return -1
        except OSError:
            data = b""
        if not data:
            if not self._server and not self._heard:
                self.failure = self.failure or (
                    "it ended the connection before it sent anything: does it use TLS (use_tls), and does its "
                    "tls_peer_name, if any, fit the certificate of this context?"
                )
            return 0
        if self.over:
            return -1
        self._incoming.write(data)
        got = self._decrypt(inflow) if self._established or self._shake_hands() else 0
        return got or (0 if self._ends() else -1)

    def _ends(self) -> bool:
        """Returns whether to close the connection."""
        # A source leaves that to a client that it refuses, which may not have read yet why.
        return self.over and (self._established or not self._server)

    def _shake_hands(self) -> bool:
        """Takes a step of the handshake; returns whether that is over, with success."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._fail(_why(error))
            return False
        self._established = True
        if self._peer_name and not self._has_name():
            self._fail(f"its certificate does not have the name {self._peer_name!r} of tls_peer_name")
        return not self.over

    def _has_name(self) -> bool:
        names = (self._object.getpeercert() or {}).get("subjectAltName", ())
        found = [str(each[1]).lower() for each in names if each[0] == "DNS"]
        return self._peer_name.lower() in found

    def _decrypt(self, inflow: Inflow) -> int:
        """Moves what has been decrypted to `inflow`; returns how many bytes."""
        total = 0
        try:
            while got := inflow.fill(cast("Callable[[int, memoryview], int]", self._object.read)):
                total += got
                self._heard = True
            self.over = True  # the peer has said that nothing more comes
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(_why(error))
        return total

    def _fail(self, why: str) -> None:
        self.failure, self.over = why, True
        self.waiting.clear()
        if self._server and not self._established and not self._outgoing.pending:
            self._outgoing.write(_REFUSAL)  # OpenSSL says nothing to a client that does not speak TLS

    def take(self) -> bytes:
        """Returns, once, the bytes to send now."""
        if self.waiting and self._established and not self.over:
            rest = memoryview(b"".join(self.waiting))
            self.waiting.clear()
            try:
                while rest:  # one call takes no more than a record of TLS
                    rest = rest[self._object.write(rest) :]
            except ssl.SSLError as error:
                self._fail(_why(error))
        return self._outgoing.read()


_CAUSES: Final = (
    (
        ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "BAD_RECORD_TYPE", "UNKNOWN_PROTOCOL"),
        "what it sends is not TLS: does it use TLS (use_tls)?",
    ),
    (("PEER_DID_NOT_RETURN_A_CERTIFICATE",), "it has no certificate: set tls_certificate there"),
    (("ALERT_CERTIFICATE_REQUIRED",), "it asks for a certificate: set tls_certificate here"),
    (
        ("UNKNOWN_CA", "ALERT_BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "DECRYPT_ERROR"),
        "it does not accept the certificate of this context: compare tls_certificate with its "
        "tls_trusted_certificates and tls_peer_name, and look how long the certificate is valid",
    ),
    (
        ("HANDSHAKE_FAILURE", "NO_SHARED_CIPHER", "UNSUPPORTED_PROTOCOL", "PROTOCOL_VERSION"),
        "it has no version of TLS or cipher suite in common with this context: compare tls_cipher_suites",
    ),
)
"""What errors of OpenSSL mean, by parts of their names."""


def _why(error: Exception) -> str:
    """Returns the reason of an error, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message}): compare it with tls_trusted_certificates"
    name = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    for parts, meaning in _CAUSES:
        if any(part in name for part in parts):
            return f"{meaning} [{name}]"
    if isinstance(error, OSError) and error.strerror and not name:
        return error.strerror
    return name.lower().replace("_", " ") or str(error)


def _has_key(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"PRIVATE KEY" in file.read(_KEY_FILE_MAX)
    except OSError:
        return True  # the error says why it cannot be read


def _named(option: str, value: str) -> str:
    return f"option {option} (scope context) = {value!r}"
