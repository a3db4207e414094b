"""The options of TLS, which protects the connections of LBT-TCP."""

from __future__ import annotations

from ipcbus.config.option_values import Option


class TlsContext:
    """The options of TLS for a context."""

    use_tls = Option(
        default=False,
        meaning="Whether all LBT-TCP sessions of the context, those that it sends and those that it receives, use TLS "
        "1.2 or 1.3. Both sides of a session need it. It does not protect topic resolution and other transports: see "
        "network_key_file.",
    )
    tls_certificate = Option(
        default="",
        meaning="File with the certificate of the context in PEM form, followed by those of intermediate authorities. "
        "Sources over LBT-TCP need it, and receivers whose sources have tls_trusted_certificates.",
    )
    tls_certificate_key = Option(
        default="",
        meaning="File with the private key of tls_certificate in PEM form, without a password. Only its owner may be "
        "able to read it. Empty: the key is in the file of tls_certificate.",
    )
    tls_trusted_certificates = Option(
        default="",
        meaning="File with the certificates of the authorities whose certificates the context accepts, in PEM form. "
        "Receivers need it. A source with this option accepts only receivers whose certificate one of these "
        "authorities has signed; a source without it accepts any receiver. The authorities that the system trusts do "
        "not count.",
    )
    tls_cipher_suites = Option(
        default="",
        meaning="Cipher suites for TLS 1.2, in the form of OpenSSL; TLS 1.3 has its own. Empty: those of the system.",
    )
    tls_peer_name = Option(
        default="",
        meaning="Name that the certificate of a peer must have among its alternative names (DNS). Empty: each "
        "certificate of tls_trusted_certificates will do, because sources are found by address. An addition to Ultra "
        "Messaging.",
    )
