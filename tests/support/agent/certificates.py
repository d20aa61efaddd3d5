"""Make the certificates of a run as `tfdeploy launch` does, for tests that launch nothing."""

from __future__ import annotations

import datetime
from typing import Any


def make_certs(hosts: list[str]) -> dict[str, dict[str, str]]:
    """Return {host: {"ca": ..., "cert": ..., "key": ...}}, each in PEM. One new certificate
    authority signs all certificates.
    """
    import warnings

    # On Python 3.8, cryptography warns at import that it will drop this version, and pytest would
    # fail on the warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def certificate(name: str, key: Any, issuer: str, signer: Any, ca: bool) -> Any:
        def called(text: str) -> Any:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        builder = (
            x509.CertificateBuilder()
            .subject_name(called(name))
            .issuer_name(called(issuer))
            .public_key(key.public_key())
        )
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(
            datetime.datetime(2000, 1, 1)
        )
        builder = builder.not_valid_after(datetime.datetime(9999, 1, 1)).add_extension(
            x509.BasicConstraints(ca, None), True
        )
        return builder.sign(signer, hashes.SHA256())

    def pem(item: Any) -> str:
        if hasattr(item, "public_bytes"):
            return str(item.public_bytes(serialization.Encoding.PEM).decode())
        plain = serialization.NoEncryption()
        return str(
            item.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain
            ).decode()
        )

    root = ec.generate_private_key(ec.SECP256R1())
    ca = certificate("run", root, "run", root, True)
    certificates = {}
    for host in hosts:
        key = ec.generate_private_key(ec.SECP256R1())
        certificates[host] = {
            "ca": pem(ca),
            "cert": pem(certificate(host, key, "run", root, False)),
            "key": pem(key),
        }
    return certificates
