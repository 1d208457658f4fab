"""Load the certificate and the private key for HTTPS."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.http_common.listen_address import CertificateFiles


def tls_context(files: CertificateFiles) -> ssl.SSLContext:
    """A server context for TLS 1.2 or later.

    Raises:
        ConfigurationError: A file cannot be read or is not PEM, the certificate is not valid today, the key is
            encrypted, or the two do not belong together. The message has one line per fault.
    """
    faults: list[str] = []
    certificate = _read_certificate(files.certificate, faults)
    key = _read_key(files.key, faults)
    # OpenSSL reports a foreign key as `key values mismatch`, without the names of the files.
    if certificate is not None and key is not None and certificate.public_key() != key.public_key():
        faults.append(f"the key `{files.key}` does not match the certificate `{files.certificate}`")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # h11 speaks HTTP/1.1 only; clients that offer `h2` as well learn it from ALPN (RFC 7301).
    context.set_alpn_protocols(["http/1.1"])
    if not faults:
        try:
            context.load_cert_chain(files.certificate, files.key)
        except (OSError, ValueError) as error:  # a key too weak for OpenSSL's security level
            faults.append(f"cannot serve TLS with `{files.certificate}` and `{files.key}`: {error}")
    if faults:
        raise ConfigurationError("\n".join(faults), code="tls_unusable")
    return context


def _read_certificate(path: Path, faults: list[str]) -> x509.Certificate | None:
    try:
        certificate, *_chain = x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        faults.append(f"cannot read the certificate `{path}`: {error.strerror}")
        return None
    except ValueError:
        faults.append(f"`{path}` is not a PEM certificate")
        return None
    # OpenSSL loads a certificate outside its validity period without an error, and then every client refuses
    # it.
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        faults.append(f"the certificate `{path}` expired on {certificate.not_valid_after_utc:%Y-%m-%d}")
    elif certificate.not_valid_before_utc > now:
        faults.append(
            f"the certificate `{path}` is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
        )
    return certificate


def _read_key(path: Path, faults: list[str]) -> PrivateKeyTypes | None:
    # Without a passphrase here: `load_cert_chain` asks for that of an encrypted key on the terminal, and
    # blocks.
    try:
        return load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        faults.append(f"cannot read the key `{path}`: {error.strerror}")
    except TypeError:
        faults.append(f"the key `{path}` is encrypted; decrypt it with `openssl pkey -in ... -out ...`")
    except (ValueError, UnsupportedAlgorithm):
        faults.append(f"`{path}` is not a PEM private key")
    return None
