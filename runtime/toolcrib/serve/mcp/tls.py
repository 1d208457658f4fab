"""The certificate and the key that HTTP is served over TLS with."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.mcp.options import CertificateFiles


def tls_context(files: CertificateFiles) -> ssl.SSLContext:
    """What connections are encrypted with: TLS 1.2 or later.

    Raises:
        ConfigurationError: A file can't be read or is not PEM, the certificate is not valid now, the key is
            encrypted, or they do not belong together. The message has a line for each.
    """
    faults: list[str] = []
    certificate = _read_certificate(files.certificate, faults)
    key = _read_key(files.key, faults)
    if certificate is not None and key is not None and certificate.public_key() != key.public_key():
        faults.append(f"the key `{files.key}` does not belong to the certificate `{files.certificate}`")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not faults:
        try:
            context.load_cert_chain(files.certificate, files.key)
        except (OSError, ValueError) as error:  # a key too weak for OpenSSL's security level
            faults.append(f"TLS can't be served with `{files.certificate}` and `{files.key}`: {error}")
    if faults:
        raise ConfigurationError("\n".join(faults), code="tls_unusable")
    return context


def _read_certificate(path: Path, faults: list[str]) -> x509.Certificate | None:
    try:
        certificate, *_chain = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        faults.append(f"the certificate `{path}` can't be read: {error.strerror}")
        return None
    except ValueError:
        faults.append(f"`{path}` is not a certificate in PEM")
        return None
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        faults.append(f"the certificate `{path}` expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    elif certificate.not_valid_before_utc > now:
        faults.append(
            f"the certificate `{path}` is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
        )
    return certificate


def _read_key(path: Path, faults: list[str]) -> PrivateKeyTypes | None:
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        faults.append(f"the key `{path}` can't be read: {error.strerror}")
    except TypeError:
        faults.append(f"the key `{path}` is encrypted; decrypt it with `openssl pkey -in ... -out ...`")
    except (ValueError, UnsupportedAlgorithm):
        faults.append(f"`{path}` is not a private key in PEM")
    return None
