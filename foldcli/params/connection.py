"""Asking a server: HTTPS with this machine's certificates and proxies, and what failures are called."""

import socket
import ssl
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from foldcli.version import VERSION
from msa.errors import MissingError

SECONDS = 60
"""Without a byte, after which a connection is given up."""

# what a server may say while it will do better soon
_PASSING = {408, 425, 429, 500, 502, 503, 504}

_ADDRESS = "Is it the right address? --url names a mirror, and --from an archive that is here."
_CERTIFICATES = (
    "Nothing was taken from it. Where a site's proxy signs for others, set SSL_CERT_FILE to the certificates "
    "that the site trusts."
)
_NETWORK = (
    "Is there a network, or a proxy to be named in https_proxy? An archive brought from another machine is "
    "read with --from."
)


class Unreachable(MissingError):
    """A file that a server does not give; trying again would not help."""


class ConnectionBroke(Exception):
    """What trying again may mend; its text says what happened."""


class _Https(HTTPRedirectHandler):
    """Follows redirects, though not from https to http, where anyone could have sent the answer."""

    def redirect_request(  # type: ignore[no-untyped-def]
        self, req, fp, code, msg, headers, newurl
    ) -> Request | None:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise Unreachable(
                f"{req.full_url} leads to {newurl}, which is not encrypted", "Name another mirror with --url."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def ask(url: str, headers: dict[str, str], known: bool) -> HTTPResponse:
    """A server's answer, whose body is still to be read: status 200, 206 or 416.

    The environment is heeded as curl does: https_proxy, http_proxy and no_proxy; SSL_CERT_FILE and
    SSL_CERT_DIR name the certificates to trust in place of the system's.

    Args:
        url: https, or http.
        headers: of the request.
        known: whether this server has answered before, so that not reaching it is thought to pass.

    Raises:
        Unreachable: no such host or file, refused, or not to be trusted.
        ConnectionBroke: may be over soon.
    """
    opener = build_opener(HTTPSHandler(context=ssl.create_default_context()), _Https())
    request = Request(url, headers={"User-Agent": f"foldcli/{VERSION}"} | headers)
    try:
        answer: HTTPResponse = opener.open(request, timeout=SECONDS)
        return answer
    except HTTPError as error:
        if error.code == 416:
            return error  # type: ignore[return-value]
        if error.code in _PASSING:
            raise ConnectionBroke(f"{url}: the server says {error.code} {error.reason}") from error
        raise Unreachable(f"{url}: the server says {error.code} {error.reason}", _ADDRESS) from error
    except URLError as error:
        raise _named(url, error.reason, known) from error
    except (OSError, HTTPException) as error:
        raise ConnectionBroke(f"{url}: {said(error)}") from error


def _named(url: str, reason: object, known: bool) -> Exception:
    """Why no connection came about."""
    host = urlsplit(url).hostname or url
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Unreachable(
            f"{url}: the certificate of {host} is not trusted: {reason.verify_message}", _CERTIFICATES
        )
    # a proxy that says no gives its words in a plain OSError
    if "Tunnel connection failed" in str(reason):
        return Unreachable(f"{url}: the proxy refuses: {reason}", _NETWORK)
    text = f"{url}: {said(reason)}"
    absent = isinstance(reason, socket.gaierror | ConnectionRefusedError) and not known
    return Unreachable(text, _NETWORK) if absent else ConnectionBroke(text)


def said(error: object) -> str:
    """A few words for what broke."""
    if isinstance(error, TimeoutError):
        return f"no answer for {SECONDS} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
