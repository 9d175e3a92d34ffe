"""The web application: routes, keys, problems, bounds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

import gridaware
from gridaware.clock import Clock, SystemClock
from gridaware.service import metrics
from gridaware.service.body_limit import BodyLimit
from gridaware.service.context import Web, require_actor
from gridaware.service.problems import PROBLEM_RESPONSES, add_problem_handlers
from gridaware.service.routes import (
    events,
    feeds,
    fleet,
    health,
    jobs,
    power,
    programmes,
    site,
    stream,
)
from gridaware.service.settings import WebSettings

__all__ = ["build_app"]

API = "/api/v1"


def build_app(settings: WebSettings, clock: Clock | None = None) -> FastAPI:
    """The application for one site.

    It starts whether or not the store and control are there, and says 503 until they are.

    Raises:
        ConfigError: the file of API keys is missing or malformed.
    """
    web = Web(settings, clock or SystemClock())
    forwarder = feeds.SignalForwarder(settings.signals_url)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        forwarder.close()
        web.close()

    app = FastAPI(
        title="gridaware",
        version=gridaware.__version__,
        summary="Makes a GPU cluster yield to the power grid on command.",
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # its page would load scripts from the network
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.web = web
    app.state.forwarder = forwarder
    app.state.registry = metrics.metrics_registry(web)
    add_problem_handlers(app)
    app.add_middleware(BodyLimit, at_most=settings.body_bytes_at_most)
    closed = [Depends(require_actor)]
    for module in (events, feeds, fleet, jobs, power, programmes, site, stream):
        app.include_router(
            module.router, prefix=API, dependencies=closed, responses=PROBLEM_RESPONSES
        )
    # A signal proves itself by its signature, which control checks.
    app.include_router(feeds.signals_router, prefix=API, responses=PROBLEM_RESPONSES)
    app.include_router(metrics.router, dependencies=closed)
    app.include_router(health.router)
    return app
