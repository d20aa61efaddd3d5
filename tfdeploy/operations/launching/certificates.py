"""A certificate authority for one run and a key pair for each of its hosts, made in memory.

The only caller of `cryptography`. Valid from 1970 to 9999, so that a host with a wrong clock, even one at zero, can join.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable


def certificates(run: str, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """host -> {"ca", "cert", "key"} in PEM; the common name of a certificate is its host's name."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    def build(subject: str, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc))
            .not_valid_after(datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc))
        )

    authority_key = ec.generate_private_key(ec.SECP256R1())
    issuer = named(run)
    authority = (
        build(run, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    ca = authority.public_bytes(serialization.Encoding.PEM).decode()
    made = {}
    for host in hosts:
        key = ec.generate_private_key(ec.SECP256R1())
        cert = build(host, issuer, key.public_key()).sign(authority_key, hashes.SHA256())
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        made[host] = {"ca": ca, "cert": cert.public_bytes(serialization.Encoding.PEM).decode(), "key": private.decode()}
    return made
