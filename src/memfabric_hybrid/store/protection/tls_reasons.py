"""Why a TLS handshake failed, in sentences that say what to do. Pure."""

from __future__ import annotations

import ssl

_REMEDIES = {  # by OpenSSL's number of what is wrong with a certificate
    3: "add the list of revoked certificates of its authority to tlsCrlFile",
    9: "check the clocks of both machines",
    10: "renew it",
    11: "check the clocks of both machines",
    12: "renew the list of revoked certificates in tlsCrlFile",
    18: "give both sides certificates of an authority in tlsCaFile",
    19: "give both sides certificates of an authority in tlsCaFile",
    20: "give both sides certificates of an authority in tlsCaFile",
    21: "give both sides certificates of an authority in tlsCaFile",
    23: "give it a new certificate, if it is still to be a member",
    26: "members need certificates for both server and client authentication, because any of them may run the store",
}
_ALERTS = {  # what the other end said, by its number in the name that OpenSSL gives it
    "TLSV1_ALERT_UNKNOWN_CA": "that this side's certificate is of no authority it knows; use the same tlsCaFile",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "that this side's certificate has expired; renew it",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "that this side's certificate is revoked; get a new one",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "that it cannot check this side's certificate; look at its log",
    "SSLV3_ALERT_BAD_CERTIFICATE": "that this side's certificate is bad; look at its log",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "that this side's certificate is not for this use; it needs server and"
    " client authentication",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "that this side shows no certificate; set_conf_store_tls gives it one",
    "TLSV1_ALERT_PROTOCOL_VERSION": "that this side does not speak TLS 1.3",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "that the two have no way to encrypt in common",
    "TLSV1_ALERT_DECRYPT_ERROR": "that a signature is wrong; certificate and key of this side may not belong together",
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
        remedy = _REMEDIES.get(error.verify_code, "look at both certificates")
        return f"its certificate is not trusted: {error.verify_message}; {remedy}"
    name = error.reason or ""
    if name in _ALERTS:
        return f"it says {_ALERTS[name]}"
    if name in _OWN:
        return _OWN[name]
    return f"TLS failed: {(name or str(error)).lower().replace('_', ' ')}"
