"""Make a certificate authority for one run and a key pair for each host of the run, in memory.

Certificates are valid from 1970 to 9999, so that a host can join the run even if its clock is wrong
(for example, reset to 1970). No other operation imports the package `cryptography`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable


def make_certificates(run: str, hosts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return {host: {"ca", "cert", "key"}} in PEM.

    The common name of a certificate is the name of its host, cut to 64 characters.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    pem = serialization.Encoding.PEM

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    authority_key = ec.generate_private_key(ec.SECP256R1())

    def certificate(
        subject: str, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> str:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named(run))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc))
            .not_valid_after(datetime.datetime(9999, 12, 31, tzinfo=datetime.timezone.utc))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(pem).decode()

    ca = certificate(run, authority_key, x509.BasicConstraints(ca=True, path_length=0))
    certificates_by_host = {}
    for host in hosts:
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificates_by_host[host] = {
            "ca": ca,
            "cert": certificate(host, key),
            "key": private.decode(),
        }
    return certificates_by_host
