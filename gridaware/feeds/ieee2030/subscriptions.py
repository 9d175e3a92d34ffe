"""Subscriptions to what a walk reads, so that the server says when to walk again.

They are wishes: polls are the truth, and a server that keeps none is asked again now and then. The
notification comes to a URI that carries a token of ours, or anybody could have us walk.
"""

import base64
import os
from collections.abc import Callable, Sequence
from hmac import compare_digest
from urllib.parse import urlencode, urlsplit
from xml.sax.saxutils import escape

from gridaware.clock import Clock
from gridaware.domain.errors import GridawareError, InvalidInput, Refused, Unavailable
from gridaware.feeds.ieee2030.client import Calls
from gridaware.feeds.ieee2030.xml import NAMESPACE, SEP, read_xml
from gridaware.feeds.kind import Push
from gridaware.feeds.memory import FeedMemory

__all__ = ["Subscriptions"]

UNWANTED_SECONDS = 300.0
"""Between tries where the server does not want them."""
POSTS_AT_MOST = 20
NAMES = ("Notification", "NotificationList")


class Subscriptions:
    """Ours at one server. :meth:`ensure` by one thread at a time, :meth:`verify` by any.

    Args:
        callback_url: of our listener, as the server reaches it.
        memory: keeps the token over restarts.
        clock: of the tries.
        alarm: hears once that the server wants none.
    """

    def __init__(
        self,
        callback_url: str,
        memory: FeedMemory,
        clock: Clock,
        alarm: Callable[[GridawareError], None],
    ) -> None:
        self._clock = clock
        self._alarm = alarm
        kept = memory.get("callback")
        if not isinstance(kept, str) or len(kept) < 32:
            kept = base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("=")
            memory.put("callback", kept)
        self._token = kept
        mark = "&" if urlsplit(callback_url).query else "?"
        self._uri = f"{callback_url}{mark}{urlencode({'token': kept})}"
        self._not_before_seconds = float("-inf")
        self._unwanted = False

    def verify(self, push: Push) -> None:
        """Check that a call is a notification to our URI.

        Raises:
            Refused: it does not carry our token (``ieee2030-stranger``).
            InvalidInput: it is no notification.
        """
        given = push.query.get("token", "")
        if push.method != "POST" or not compare_digest(given.encode(), self._token.encode()):
            raise Refused("ieee2030-stranger", "the call does not carry the token of our URI")
        root = read_xml(push.body)
        if root.space != SEP or root.name not in NAMES:
            raise InvalidInput("ieee2030-control", "it is no notification of 2030.5")

    def ensure(self, calls: Callable[[], Calls], list_href: str, resources: Sequence[str]) -> None:
        """Subscribe to whatever we are not subscribed to. Never raises."""
        if self._clock.monotonic_seconds() < self._not_before_seconds:
            return
        try:
            if not list_href:
                raise Refused("ieee2030-unsubscribed", "the server offers no subscriptions")
            have = self._ours(calls(), list_href)
            missing = [each for each in resources if _path(each) not in have]
            for resource in missing[:POSTS_AT_MOST]:
                self._subscribe(calls(), list_href, resource)
            self._unwanted = False
        except (Unavailable, Refused) as error:
            self._not_before_seconds = self._clock.monotonic_seconds() + UNWANTED_SECONDS
            if not self._unwanted:
                told = f"notifications will not come: {error.message}"
                self._alarm(Refused("ieee2030-unsubscribed", told))
            self._unwanted = True

    def _ours(self, calls: Calls, list_href: str) -> set[str]:
        """Paths of what we are subscribed to by this very URI."""
        found = set()
        for each in calls.whole_list(list_href, "SubscriptionList").items:
            uri, resource = each.find("notificationURI"), each.find("subscribedResource")
            if uri is not None and resource is not None and uri.text == self._uri:
                found.add(_path(resource.text))
        return found

    def _subscribe(self, calls: Calls, list_href: str, resource: str) -> None:
        body = (
            f'<Subscription xmlns="{NAMESPACE}">'
            f"<subscribedResource>{escape(resource)}</subscribedResource>"
            "<encoding>0</encoding><level>+S1</level><limit>1</limit>"
            f"<notificationURI>{escape(self._uri)}</notificationURI></Subscription>"
        )
        reply = calls.ask("POST", list_href, body.encode())
        if not reply.good:
            raise Refused("ieee2030-unsubscribed", f"a subscription was answered {reply.status}")


def _path(href: str) -> str:
    try:
        return urlsplit(href).path
    except ValueError:
        return ""
