"""Why a TLS handshake failed, in sentences that say what to do. Pure: the sentences are the core's, which has the same
handshakes between hosts.
"""

from __future__ import annotations

import ssl

from memfabric_hybrid import _native

_ALERTS = {  # what the other end said: the numbers of TLS behind the names that OpenSSL gives them
    "SSLV3_ALERT_HANDSHAKE_FAILURE": 40,
    "SSLV3_ALERT_BAD_CERTIFICATE": 42,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": 43,
    "SSLV3_ALERT_CERTIFICATE_REVOKED": 44,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": 45,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": 46,
    "TLSV1_ALERT_UNKNOWN_CA": 48,
    "TLSV1_ALERT_DECRYPT_ERROR": 51,
    "TLSV1_ALERT_PROTOCOL_VERSION": 70,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": 116,
}
_OWN = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate; set_conf_store_tls gives it one",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "HTTP_REQUEST": "it speaks HTTP",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "NO_SHARED_CIPHER": "the two have no way to encrypt in common",
}


def reason(error: ssl.SSLError) -> str:
    """Seen from the side on which it was raised: "it" is the other end."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _native._explain_tls_distrust(error.verify_code, error.verify_message)
    name = error.reason or ""
    if name in _ALERTS:
        return _native._explain_tls_alert(_ALERTS[name])
    if name in _OWN:
        return _OWN[name]
    return f"TLS failed: {(name or str(error)).lower().replace('_', ' ')}"
