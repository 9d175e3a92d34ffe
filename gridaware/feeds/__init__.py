"""The grid's side: one file per protocol; signals in, status and reports out.

A newcomer adds a kind as one file: a settings model and a class registered in ``FEED_KINDS``
(:mod:`gridaware.feeds.kind` says what it may implement), named below; another distribution adds
one through the entry point group ``gridaware.feeds``.
"""

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.domain.eventjson import json_object, printable
from gridaware.domain.programme import FeedSpec
from gridaware.feeds import (  # noqa: F401 - they register themselves
    caiso,
    carbon,
    dnp3,
    ercot,
    ercot_4cp,
    file,
    mapped,
    neso_dfs,
    plain_mqtt,
    price,
    schedule,
    webhook,
)
from gridaware.feeds.dsx import kind as dsx  # noqa: F401 - it registers itself
from gridaware.feeds.ieee2030 import kind as ieee2030  # noqa: F401 - it registers itself
from gridaware.feeds.kind import FEED_KINDS, Feed, FeedContext, FeedSettings
from gridaware.feeds.openadr2 import kind as openadr2  # noqa: F401 - it registers itself
from gridaware.feeds.openadr3 import kind as openadr3  # noqa: F401 - it registers itself

__all__ = ["FEED_KINDS", "Feed", "FeedContext", "check_settings", "feed_kind", "open_feed"]


def open_feed(spec: FeedSpec, context: FeedContext) -> Feed[Any]:
    """Make the feed that ``spec`` describes; it does nothing yet.

    Raises:
        NotFound: there is no such kind (``feed-kind-unknown``).
        ConfigError: its settings are wrong, every error named at once.
    """
    kind = feed_kind(spec.kind)
    return kind(context, check_settings(spec.kind, spec.settings_json))


def check_settings(kind_name: str, settings_json: str) -> FeedSettings:
    """The settings of a kind, checked without opening anything.

    Raises:
        NotFound: there is no such kind.
        ConfigError: ``feed-settings-not-json``, ``feed-settings-invalid``, or the more precise code
            of the setting that is wrong.
    """
    model = feed_kind(kind_name).settings_model
    try:
        json_object(settings_json)
    except GridawareError as error:
        raise ConfigError(
            "feed-settings-not-json", f"the settings are not one JSON object: {error}"
        ) from None
    try:
        return model.model_validate_json(settings_json)
    except ValidationError as error:
        raise ConfigError("feed-settings-invalid", _told(model, error)) from None


def feed_kind(name: str) -> type[Feed[Any]]:
    """The kind called ``name``, of this distribution or of another one.

    Raises:
        NotFound: there is none (``feed-kind-unknown``).
    """
    if name not in FEED_KINDS:
        for entry in entry_points(group="gridaware.feeds", name=name):
            FEED_KINDS.register(name)(entry.load())
    return FEED_KINDS.get(name)


def _told(model: type[FeedSettings], error: ValidationError) -> str:
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    known = [name for part in parts for name in part.get("properties", {})]
    lines = []
    for fault in error.errors(include_url=False, include_context=False):
        place = ".".join(printable(str(step)) for step in fault["loc"]) or "settings"
        said = fault["msg"]
        if fault["type"] == "extra_forbidden":
            near = get_close_matches(printable(str(fault["loc"][-1])), known, n=1)
            said = "unknown setting" + (f"; did you mean {near[0]!r}?" if near else "")
        lines.append(f"{place}: {said}")
    return "; ".join(lines)
