"""A site's settings: YAML < environment ``GRIDAWARE__SECTION__KEY`` < flag.

Everything that is wrong is told at once, each with its line (or its variable), and an unknown key
with the nearest known one. Nothing is guessed: a key with another unit is refused, not converted.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from gridaware.control.site import Policy, Site
from gridaware.domain.catalogue import SiteProgramme
from gridaware.domain.errors import ConfigError, Refused
from gridaware.domain.programme import FeedSpec
from gridaware.feeds.secrets import read_secret
from gridaware.wiring.catalogue import check_exclusive
from gridaware.wiring.sections import (
    AgentsSection,
    ControlSection,
    FeedSection,
    ProgrammeSection,
    RaySection,
    SiteSection,
    StoreSection,
    WebSection,
)
from gridaware.wiring.settings_errors import (
    ENVIRONMENT_PREFIX,
    Complaint,
    complaints_of,
    refusal,
    unknown_key,
)
from gridaware.wiring.settings_file import SettingsFile, read_settings_file

__all__ = ["Settings", "load_settings"]


class Settings(BaseSettings):
    """Everything an operator has set. Relative paths start at the settings file's folder."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    site: SiteSection = SiteSection()
    control: ControlSection = ControlSection()
    store: StoreSection = StoreSection()
    ray: RaySection = RaySection()
    web: WebSection = WebSection()
    agents: AgentsSection = AgentsSection()
    programmes: tuple[ProgrammeSection, ...] = ()
    """Contracts with the grid."""
    feeds: tuple[FeedSection, ...] = ()
    """Sources of signals that are there from the start."""

    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        for kind, ids in (
            ("programme", [programme.id for programme in self.programmes]),
            ("feed", [feed.id for feed in self.feeds]),
        ):
            twice = sorted({name for name in ids if ids.count(name) > 1})
            if twice:
                raise ValueError(f"the {kind} id {twice[0]!r} is given twice")
        declared = [programme.id for programme in self.programmes]
        for feed in self.feeds if declared else ():
            if feed.programme not in declared:
                raise ValueError(
                    f"the feed {feed.id!r} speaks for the programme {feed.programme!r}; "
                    f"known: {', '.join(declared)}"
                )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags over environment over the file; nothing else is read."""
        del dotenv_settings, file_secret_settings
        both = init_settings()
        flags = InitSettingsSource(settings_cls, both.get("flags", {}))
        file = InitSettingsSource(settings_cls, both.get("file", {}))
        return flags, env_settings, file

    def path(self, name: str) -> Path:
        """A path of the settings, made absolute."""
        return (self._folder / Path(name).expanduser()).absolute()

    @property
    def state_dir(self) -> Path:
        """Where the ledger, the series and control's socket are."""
        return self.path(self.control.state_dir)

    @property
    def tls_dir(self) -> Path:
        """Where the CA and the controller's certificate are."""
        return self.path(self.control.tls_dir)

    @property
    def api_key_file(self) -> Path:
        """Where the hashes of the API keys are."""
        return self.path(self.web.api_key_file)

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store."""
        return self.store.url or f"sqlite:///{self.state_dir / 'gridaware.db'}"

    def ray_token(self) -> str | None:
        """Ray's token, or None where the cluster asks for none.

        Raises:
            ConfigError: the setting names a variable or file that is not there.
        """
        return None if self.ray.token is None else read_secret(self.ray.token).decode()

    def feed_specs(self) -> tuple[FeedSpec, ...]:
        """The feeds of the file, as control knows them."""
        return tuple(
            feed.value(json.dumps(feed.settings, sort_keys=True, separators=(",", ":")))
            for feed in self.feeds
        )

    def catalogued(self) -> tuple[str, ...]:
        """Ids under which the catalogue may know the site's programmes."""
        declared = [p.catalogue or p.id for p in self.programmes]
        return tuple(declared or [feed.programme for feed in self.feeds])

    def site_programmes(self) -> tuple[SiteProgramme, ...]:
        """The site's own programmes, as people are shown them."""
        return tuple(each.shown(self.site.time_zone) for each in self.programmes)

    def site_value(self, policy: Policy) -> Site:
        """Everything that decisions depend on, as the machine knows it."""
        site = self.site
        return Site(
            name=site.name,
            act=self.control.act,
            overhead=site.overhead.value(),
            ramp=site.ramp.value(),
            hard_limit=None if site.hard_limit is None else site.hard_limit.value(),
            policy=policy,
            programmes=tuple(p for each in self.programmes for p in each.values(site.time_zone)),
            feeds=self.feed_specs(),
            reference_window_seconds=site.reference_window_seconds,
            stall_seconds=self.control.stall_seconds,
            settle_after_seconds=site.settle_after_seconds,
        )


def load_settings(path: Path | None, flags: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a file (None: defaults), the environment and flags together.

    Args:
        path: the YAML file.
        flags: nested like the file; what they name wins over everything.

    Raises:
        ConfigError: ``config-invalid`` with every complaint and its place, or the file cannot be
            read.
    """
    file = SettingsFile(Path(), {}) if path is None else read_settings_file(path)
    complaints = _unknown_variables()
    settings: Settings | None = None
    try:
        settings = Settings(flags=dict(flags or {}), file=dict(file.values))  # type: ignore[call-arg]
    except ValidationError as error:
        complaints += complaints_of(error, Settings)
    except SettingsError as error:
        raise ConfigError(
            "config-invalid", f"a {ENVIRONMENT_PREFIX} variable is not what its key takes: {error}"
        ) from error
    if complaints or file.duplicates or settings is None:
        raise refusal(file, complaints)
    settings._folder = Path() if path is None else path.parent.absolute()
    _check_exclusive(settings, file)
    return settings


def _check_exclusive(settings: Settings, file: SettingsFile) -> None:
    """Programmes that exclude each other are not registered together."""
    try:
        check_exclusive(settings.catalogued())
    except Refused as error:
        line = file.line_of(("programmes",)) or file.line_of(("feeds",))
        place = f"{file.path}:{line}: " if line is not None else ""
        raise ConfigError(error.code, f"{place}{error.message}", **error.facts) from error


def _unknown_variables() -> list[Complaint]:
    """pydantic-settings passes over a variable of an unknown section; we do not."""
    complaints = []
    for name in sorted(os.environ):
        if name.startswith(ENVIRONMENT_PREFIX):
            section = name.removeprefix(ENVIRONMENT_PREFIX).split("__")[0].lower()
            if section not in Settings.model_fields:
                hint = unknown_key(section, Settings.model_fields)
                complaints.append(Complaint((section,), hint, variable=name))
    return complaints
