"""Which certificates are believed, and what is said where one is not."""

from __future__ import annotations

import os
import ssl

from toolcrib.http.messages import Fault, HTTPError

# X509_V_ERR_... of OpenSSL's x509_vfy.h, in our own words: the library's may quote what the server sent.
_REASONS = {
    9: "is not valid yet",
    10: "has expired",
    18: "is signed by itself",
    19: "leads to a root that is signed by itself and not known here",
    20: "was given out by somebody who is not known here",
    21: "was given out by somebody who is not known here",
    23: "was revoked",
    26: "is not meant for servers",
    62: "is for other names",
    64: "is for other addresses",
}


def client_context() -> ssl.SSLContext:
    """How TLS is spoken: certificates and names are checked, HTTP/1.1 is asked for.

    The roots are those of `SSL_CERT_FILE` or `SSL_CERT_DIR` where the environment names one, else certifi's.

    Raises:
        HTTPError: `tls_failed`: what the environment names can't be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file or folder:
            context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        else:
            import certifi  # noqa: PLC0415 -- only where nothing else is named

            context = ssl.create_default_context(cafile=certifi.where())
    except OSError:
        named = f"SSL_CERT_FILE ({file})" if file else f"SSL_CERT_DIR ({folder})"
        message = f"the certificates that {named} names can't be read"
        raise HTTPError(Fault.TLS_FAILED, message, sent=False) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def tls_failed(host: str, error: ssl.SSLError) -> HTTPError:
    """The error of a handshake, without OpenSSL's text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _REASONS.get(error.verify_code, "can't be trusted")
        message = f"the certificate of `{host}` {reason}"
    else:
        message = f"`{host}` and toolcrib could not agree on TLS"
    return HTTPError(Fault.TLS_FAILED, message, sent=False)
