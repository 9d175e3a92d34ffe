"""The web process: the API and its pages. Control does not need it.

``python -m gridaware.wiring.web --config FILE``
"""

import argparse
import contextlib
import logging
import os
import sys
from pathlib import Path

import uvicorn

from gridaware.clock import SystemClock
from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.domain.fixes import fix_for
from gridaware.service.app import build_app
from gridaware.service.settings import WebSettings
from gridaware.wiring.catalogue import load_catalogue
from gridaware.wiring.config import Settings, load_settings

__all__ = ["main", "web_settings"]

YIELDS = 10
"""Niceness: where control and this process share processors, an answer to the grid goes first."""
STOP_SECONDS = 2
"""Open streams get this long to end."""
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - looked up, not bound
"""Where a listener on every address is reached from here."""


def web_settings(settings: Settings) -> WebSettings:
    """What the web process takes from a site's settings."""
    control = settings.control
    host = ANY_ADDRESS.get(control.signals_host, control.signals_host)
    return WebSettings(
        store=settings.store_url,
        control_socket=settings.state_dir / "control.sock",
        signals_url=f"http://{host}:{control.signals_port}",
        api_key_file=settings.api_key_file,
        host=settings.web.host,
        port=settings.web.port,
        programmes=settings.site_programmes(),
        catalogue=load_catalogue,
    )


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m gridaware.wiring.web")
    parser.add_argument("--config", type=Path, required=True, help="the site's settings file")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        settings = web_settings(load_settings(options.config))
        app = build_app(settings, SystemClock())
    except GridawareError as error:
        fix = fix_for(error.code)
        told = f"error[{error.code}]: {error.message}\n" + (f"  fix      {fix}\n" if fix else "")
        sys.stderr.write(told)
        return 2 if isinstance(error, ConfigError) else 1
    with contextlib.suppress(OSError):
        os.nice(YIELDS)
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
