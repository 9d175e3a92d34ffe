"""OAuth2 client credentials, as servers of OpenADR 3 really grant them.

The specification sends the secret in a form, many authorities want HTTP Basic: what worked is
remembered. A token is renewed at half its life, so an outage of the authority has as long to end.
"""

import base64
import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, Unavailable
from gridaware.feeds.http import Answer, exchange
from gridaware.feeds.memory import FeedMemory
from gridaware.feeds.openadr3.settings import check_url

__all__ = ["Credentials", "Tokens"]

LIFE_SECONDS = 3600.0
"""Of a token whose authority does not say (the reference server's last for ever)."""
RENEWALS_APART_SECONDS = 10.0
ANSWER_BYTES_AT_MOST = 64 * 1024
EXCHANGE_SECONDS = 5.0
_WAYS = ("form", "basic")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are at the token's authority."""

    client_id: str
    secret: str
    scope: str | None = None
    token_url: str | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    given_seconds: float
    life_seconds: float


class Tokens:
    """The token of one feed; any thread.

    Args:
        base: URL of the server, checked.
        credentials: None = a server that asks for none.
        clock: lives are counted on it.
        memory: what worked is remembered in it.
        ca_file: authorities to trust in place of the system's.
        insecure: whether plain http may be spoken to other machines.
    """

    def __init__(
        self,
        base: str,
        credentials: Credentials | None,
        clock: Clock,
        memory: FeedMemory,
        *,
        ca_file: str | None = None,
        insecure: bool = False,
    ) -> None:
        self._base = base
        self._credentials = credentials
        self._clock = clock
        self._memory = memory
        self._ca_file = ca_file
        self._insecure = insecure
        self._lock = threading.Lock()
        self._token: _Token | None = None
        self._tried_seconds = float("-inf")

    def current(self) -> str | None:
        """The token to send; None where there are no credentials.

        Raises:
            Unavailable: the authority gives none (``openadr3-token``).
        """
        if self._credentials is None:
            return None
        with self._lock:
            now, token = self._clock.monotonic_seconds(), self._token
            if token is not None and now < token.given_seconds + token.life_seconds / 2:
                return token.text
            good = token is not None and now < token.given_seconds + token.life_seconds
            if good and token is not None:
                if now < self._tried_seconds + RENEWALS_APART_SECONDS:
                    return token.text
                try:
                    return self._renew(self._credentials)
                except GridawareError:
                    return token.text  # it is good for its other half
            return self._renew(self._credentials)

    def renew(self, refused: str) -> bool:
        """Replace a token that the server refused; False where that was just done, or fails."""
        if self._credentials is None:
            return False
        with self._lock:
            if self._token is not None and self._token.text != refused:
                return True  # another thread did
            if self._clock.monotonic_seconds() < self._tried_seconds + RENEWALS_APART_SECONDS:
                # A server whose every token is refused must not be stormed with requests for one.
                self._token = None
                return False
            self._renew(self._credentials)
            return True

    # ------------------------------------------------------------------------------------------

    def _renew(self, who: Credentials) -> str:
        now = self._clock.monotonic_seconds()
        self._tried_seconds = now
        url = self._url(who)
        known = self._memory.get("token_way")
        ways = sorted(_WAYS, key=lambda way: way != known)
        said = ""
        for way in ways:
            answer = self._ask(url, who, way)
            if answer.status >= 500 or answer.status == 429:
                raise Unavailable("openadr3-token", f"the authority answered {answer.status}")
            token = _read(answer)
            if token is not None:
                with suppress(GridawareError):  # a full disk costs a try more after a restart
                    self._memory.put("token_way", way)
                self._token = _Token(token[0], now, token[1])
                return token[0]
            said = said or f"the authority answered {answer.status}"
        self._token = None
        raise Unavailable("openadr3-token", f"{said}, to a form and to Basic alike")

    def _ask(self, url: str, who: Credentials, way: str) -> Answer:
        form = {"grant_type": "client_credentials"}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if who.scope is not None:
            form["scope"] = who.scope
        if way == "form":
            form |= {"client_id": who.client_id, "client_secret": who.secret}
        else:  # RFC 6749 2.3.1: each half is form-encoded first
            pair = f"{quote(who.client_id, safe='')}:{quote(who.secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return exchange(
            "POST",
            url,
            headers=headers,
            body=urlencode(form).encode(),
            deadline_seconds=EXCHANGE_SECONDS,
            answer_bytes_at_most=ANSWER_BYTES_AT_MOST,
            ca_file=self._ca_file,
        )

    def _url(self, who: Credentials) -> str:
        """Where tokens are given: set, or told by the server, or where 3.0.1 has it."""
        if who.token_url is not None:
            return who.token_url
        told = exchange(
            "GET",
            f"{self._base}/auth/server",
            headers={"Accept": "application/json"},
            deadline_seconds=EXCHANGE_SECONDS,
            answer_bytes_at_most=ANSWER_BYTES_AT_MOST,
            ca_file=self._ca_file,
        )
        if told.status == 200:
            found = _object(told.body).get("tokenURL")
            if isinstance(found, str) and len(found) <= 2000:
                if self._base.startswith("https://") and not found.startswith("https://"):
                    told_so = "the server names a token authority that is not https"
                    raise Unavailable("openadr3-token", told_so)
                return check_url(found, insecure=self._insecure)
        if told.status >= 500:
            raise Unavailable("openadr3-token", f"/auth/server answered {told.status}")
        return f"{self._base}/auth/token"


def _read(answer: Answer) -> tuple[str, float] | None:
    if not 200 <= answer.status < 300:
        return None
    said = _object(answer.body)
    token, life = said.get("access_token"), said.get("expires_in")
    if not isinstance(token, str) or not 0 < len(token) <= 16_384 or not token.isprintable():
        return None
    if isinstance(life, str) and life.isascii() and life.isdigit() and len(life) < 10:
        life = int(life)
    if isinstance(life, bool) or not isinstance(life, int | float) or not 0 < life < 1e9:
        life = LIFE_SECONDS
    return token, float(life)


def _object(body: bytes) -> dict[str, object]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
