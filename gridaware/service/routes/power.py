"""Power over time, and where the energy went."""

import math
from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from gridaware.domain.errors import InvalidInput
from gridaware.domain.eventjson import instant
from gridaware.service.context import Web, WebContext, json_response
from gridaware.service.documents import responses_of
from gridaware.service.energy import energy_answer

__all__ = ["router"]

router = APIRouter(tags=["power and energy"])

_POINTS_AT_MOST = 5000
_POINTS_USUALLY = 600

Start = Annotated[str | None, Query(description="RFC 3339 with an offset.")]
End = Annotated[str | None, Query(description="RFC 3339 with an offset; now where left out.")]
SeriesNames = Annotated[
    list[str],
    Query(
        min_length=1,
        max_length=20,
        description="`meter target gpu_total baseline`, `job:ID`, `node:ID`; may be repeated.",
    ),
]


@router.get("/power", responses=responses_of("Points of each series in turn.", page=True))
def power(
    web: WebContext,
    series: SeriesNames,
    start: Start = None,
    end: End = None,
    step_seconds: Annotated[float | None, Query(gt=0, le=86400, allow_inf_nan=False)] = None,
) -> Response:
    """Power in watts by steps: mean (``watts``), least and greatest; the last hour by default.

    ``watts`` null = nothing held at that time, such as a target that was lifted.
    """
    first, last = _range(web, start, end, timedelta(hours=1))
    span = (last - first).total_seconds()
    step = step_seconds or float(max(math.ceil(span / _POINTS_USUALLY), 1))
    if span / step > _POINTS_AT_MOST:
        raise InvalidInput(
            "power-range-too-fine",
            f"{span:g} s by {step:g} s are more than {_POINTS_AT_MOST} points",
            least_step_seconds=math.ceil(span / _POINTS_AT_MOST),
        )
    items = [
        {
            "at": bucket.at,
            "series": name,
            "watts": bucket.mean_watts,
            "min_watts": bucket.min_watts,
            "max_watts": bucket.max_watts,
            "points": bucket.points,
            "quality": bucket.quality,
        }
        for name in series
        for bucket in web.reader.power(name, first, last, step)
    ]
    answer = {"items": items, "next_cursor": None, "step_seconds": step}
    return json_response(msgspec.json.encode(answer))


@router.get("/reports/energy", responses=responses_of("Figures with method and error band."))
def energy(
    web: WebContext,
    by: Literal["job", "team", "gpu", "total"] | None = None,
    start: Start = None,
    end: End = None,
) -> Response:
    """Energy in joules: the lines that sum to the meter, and the same by job, team and GPU.

    Counts the whole periods (a minute, or less around events) within the range; the last day by
    default. ``by`` leaves out the parts that were not asked for.
    """
    first, last = _range(web, start, end, timedelta(days=1))
    answer = energy_answer(web.reader.energy(first, last), first, last, by)
    return json_response(msgspec.json.encode(answer))


def _range(
    web: Web, start: str | None, end: str | None, usual: timedelta
) -> tuple[datetime, datetime]:
    last = web.clock.wall() if end is None else instant(end, "end")
    first = last - usual if start is None else instant(start, "start")
    if not first < last:
        raise InvalidInput("end-before-start", "the end is not after the start")
    return first, last
