"""One HTTP call to the API: key, deadline, pages, and problems turned into errors of ours."""

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import requests

from gridaware.client.shapes import Json
from gridaware.domain import errors
from gridaware.domain.errors import GridawareError, InvalidInput, TimedOut, Unavailable

__all__ = ["Transport", "decoded", "part"]

TIMEOUT_SECONDS = (3.05, 30.0)
"""To connect, and between two bytes of an answer."""

_KINDS = {
    name: kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, GridawareError)
}
_KIND_OF_STATUS = {
    401: "Refused",
    403: "Refused",
    404: "NotFound",
    409: "Refused",
    500: "Bug",
    502: "Unavailable",
    503: "Unavailable",
    504: "TimedOut",
}


class Transport:
    """Calls to one API.

    Raises:
        InvalidInput: the URL is not one of http or https.
    """

    def __init__(self, url: str, api_key: str | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput("api-url-malformed", f"{url!r} is not an http or https URL")
        self._url = url
        self._session = requests.Session()
        self._session.headers["Accept"] = "application/json"
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"

    def close(self) -> None:
        """Let go of the connections."""
        self._session.close()

    def get(self, path: str, **params: Any) -> Json:
        """The object at a path; a parameter that is None is left out."""
        return decoded(self.call("GET", path, params=params))

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        """Ask for something to be done, once even if the call is repeated underneath."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        return decoded(self.call("POST", path, json=body, headers=key))

    def pages(self, path: str, **params: Any) -> Iterator[Json]:
        """Every item of a list, page after page."""
        cursor: str | None = None
        while True:
            answer = self.call("GET", path, params={**params, "cursor": cursor})
            page = decoded(answer)
            if not isinstance(page.get("items"), list):
                raise _malformed(answer)
            yield from page["items"]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def call(self, method: str, path: str, **request: Any) -> requests.Response:
        """One call.

        Raises:
            GridawareError: what the server's problem says, with its code and facts.
            Unavailable: the server does not answer, or not in time.
        """
        url = f"{self._url}/api/v1{path}"
        try:
            answer = self._session.request(method, url, timeout=TIMEOUT_SECONDS, **request)
        except requests.Timeout as error:
            raise TimedOut("api-timeout", f"{self._url} did not answer in time") from error
        except requests.ConnectionError as error:
            raise Unavailable("api-unreachable", f"{self._url} does not answer") from error
        except requests.exceptions.InvalidJSONError as error:
            raise InvalidInput(
                "number-not-finite", "a number of the request is no finite number"
            ) from error
        except (requests.RequestException, ValueError) as error:
            raise InvalidInput("api-request-malformed", f"{url}: {error}") from error
        if not answer.ok:
            raise _problem(answer)
        return answer


def part(name: str) -> str:
    """A name as one part of a path.

    Raises:
        InvalidInput: it would leave no part, and so name the list or what lies above it.
    """
    if name in {"", ".", ".."}:
        raise InvalidInput("api-name-malformed", f"{name!r} cannot be a name")
    return quote(name, safe="")


def decoded(answer: requests.Response) -> Json:
    """The JSON object of an answer.

    Raises:
        Unavailable: it is something else, so that is not our API (``api-answer-malformed``).
    """
    try:
        body = json.loads(answer.content)
    except ValueError as error:
        raise _malformed(answer) from error
    if not isinstance(body, dict):
        raise _malformed(answer)
    return body


def _malformed(answer: requests.Response) -> Unavailable:
    return Unavailable(
        "api-answer-malformed",
        f"{answer.request.method} {answer.url} answered something that is not ours",
        status=answer.status_code,
    )


def _problem(answer: requests.Response) -> GridawareError:
    """The error that an RFC 9457 problem stands for."""
    try:
        body = json.loads(answer.content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        return _malformed(answer)
    usual = _KIND_OF_STATUS.get(answer.status_code, "InvalidInput")
    kind = _KINDS.get(str(body.get("kind")), _KINDS[usual])
    message = str(body.get("detail") or body.get("title") or answer.reason)
    wrong = body.get("errors")
    if isinstance(wrong, list) and len(wrong) > 1:  # one alone is in the detail already
        message = "\n".join([message, *(_in_words(item) for item in wrong)])
    facts = body.get("facts")
    return kind(body["code"], message, **(facts if isinstance(facts, dict) else {}))


def _in_words(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    return f"{item.get('where')}: {item.get('detail')}"
