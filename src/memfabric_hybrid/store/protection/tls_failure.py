"""The end of a TLS stream. Apart from the stream: who has no TLS does not load OpenSSL."""

from __future__ import annotations


class TlsFailure(OSError):
    """The stream is over; the text says why, and what to do."""
