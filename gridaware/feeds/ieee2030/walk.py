"""From the DeviceCapability to everything that a server asks of us, whole or not at all.

``/dcap`` leads to the time and to the list of devices; our own EndDevice there, by its LFDI or
SFDI, to its function set assignments; these to DER programs; and each of these to its controls and
its default control.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from gridaware.domain.errors import InvalidInput, Unavailable
from gridaware.feeds.ieee2030.client import Calls
from gridaware.feeds.ieee2030.identity import sfdi_of
from gridaware.feeds.ieee2030.numbers import child, hexadecimal, whole, whole_of
from gridaware.feeds.ieee2030.servertime import ServerTime
from gridaware.feeds.ieee2030.xml import SEP, Element

__all__ = ["ProgramTree", "Tree", "Walk"]

PROGRAMS_AT_MOST = 64
TIME_AT_MOST = 2**40
WATCHED = ("DERControlListLink", "DefaultDERControlLink")


@dataclass(frozen=True, slots=True)
class ProgramTree:
    """One DERProgram with what it holds."""

    mrid: str
    primacy: int
    controls: tuple[Element, ...]
    default: Element | None


@dataclass(frozen=True, slots=True)
class Tree:
    """Everything that was found."""

    programs: tuple[ProgramTree, ...]
    witness: str
    """The same as long as the server knows us, by the same name, with the same programs."""
    poll_seconds: int | None
    """How often the server wants to be asked, as far as it says."""
    mirror_href: str
    """Of the MirrorUsagePointList; empty = there is none."""
    faults: tuple[tuple[InvalidInput, Element], ...] = ()
    """Programs that could not be read."""
    subscriptions_href: str = ""
    """Of our SubscriptionList; empty = there is none."""
    watched: tuple[str, ...] = ()
    """Lists whose changes matter."""


class Walk:
    """Walks one server for one device. One thread at a time."""

    def __init__(self, lfdi: str, time: ServerTime) -> None:
        self._lfdi = lfdi
        self._sfdi = int(sfdi_of(lfdi))
        self._time = time
        self._device_href = ""

    def read(self, calls: Calls) -> Tree:
        """Everything there is.

        Raises:
            Unavailable: some of it was not had, or we are not listed; nothing is concluded.
        """
        try:
            return self._read(calls)
        except InvalidInput as error:
            raise Unavailable(error.code, error.message) from error

    def _read(self, calls: Calls) -> Tree:
        capability = calls.get(calls.client.url, "DeviceCapability")
        self._measure(calls, _href(capability, "TimeLink"))
        device = self._device(calls, _href(capability, "EndDeviceListLink"))
        programs: dict[str, ProgramTree] = {}
        marks: list[str] = []
        faults: list[tuple[InvalidInput, Element]] = []
        watched: list[str] = []
        rates: list[int] = []
        for href in self._program_lists(calls, device):
            page = calls.whole_list(href, "DERProgramList")
            watched.append(href)
            rates += [] if page.poll_seconds is None else [page.poll_seconds]
            for element in page.items:
                if len(marks) >= PROGRAMS_AT_MOST:
                    told = f"there are more than {PROGRAMS_AT_MOST} DER programs"
                    raise InvalidInput("ieee2030-control", told)
                try:
                    mrid, primacy = _program_names(element)
                except InvalidInput as error:
                    faults.append((error, element))
                    continue
                marks.append(f"{mrid} {element.attributes.get('href')}")
                watched += [found for link in WATCHED if (found := _href(element, link))]
                if mrid not in programs:
                    programs[mrid] = self._program(calls, element, mrid, primacy, rates)
        if len(programs) > PROGRAMS_AT_MOST:
            raise InvalidInput(
                "ieee2030-control", f"there are more than {PROGRAMS_AT_MOST} programs"
            )
        changed = device.find("changedTime")  # of one that was registered anew, another
        known_as = [self._device_href, self._lfdi, "" if changed is None else changed.text]
        said = json.dumps([*known_as, *sorted(marks)])
        return Tree(
            tuple(programs.values()),
            hashlib.sha256(said.encode()).hexdigest()[:16],
            min(rates, default=None),
            _href(capability, "MirrorUsagePointListLink"),
            tuple(faults),
            _href(device, "SubscriptionListLink"),
            tuple(watched),
        )

    def _measure(self, calls: Calls, href: str) -> None:
        if not href:
            self._time.absent()
            return
        reply = calls.ask("GET", href)
        time = calls.read(reply, href, "Time")
        seconds = whole_of(time, "currentTime", 0, TIME_AT_MOST)
        self._time.measure(seconds, reply.sent_at, reply.answered_at)

    def _device(self, calls: Calls, list_href: str) -> Element:
        """Our own EndDevice, where it was the last time or else wherever it is listed."""
        device = None
        if self._device_href:
            reply = calls.ask("GET", self._device_href)
            if reply.status == 200:
                device = calls.read(reply, self._device_href, "EndDevice")
            elif reply.status not in {403, 404, 410}:
                told = f"our EndDevice was answered {reply.status}"
                raise Unavailable("ieee2030-refused", told)
        if device is None or not self._is_ours(device):
            self._device_href = ""
            found = (
                calls.whole_list(list_href, "EndDeviceList", self._is_ours) if list_href else None
            )
            if found is None or not found.items:
                told = f"the server lists no EndDevice of ours (LFDI {self._lfdi}): all is held"
                raise Unavailable("ieee2030-not-listed", told)
            device = found.items[0]
        if (enabled := device.find("enabled")) is not None and enabled.text in {"false", "0"}:
            raise Unavailable("ieee2030-not-listed", "our EndDevice is disabled: all is held")
        self._device_href = device.attributes.get("href", "")
        return device

    def _listed(self, calls: Calls, href: str) -> Element:
        items: tuple[Element, ...] = ()
        if href:
            items = calls.whole_list(href, "EndDeviceList", self._is_ours).items
        if not items:
            told = f"the server lists no EndDevice of ours (LFDI {self._lfdi}): all is held"
            raise Unavailable("ieee2030-not-listed", told)
        return items[0]

    def _is_ours(self, device: Element) -> bool:
        lfdi = device.find("lFDI")
        if lfdi is not None:
            return lfdi.text.upper() == self._lfdi
        sfdi = device.find("sFDI")
        return sfdi is not None and sfdi.text.isdecimal() and int(sfdi.text[:20]) == self._sfdi

    def _program_lists(self, calls: Calls, device: Element) -> Iterator[str]:
        href = _href(device, "FunctionSetAssignmentsListLink")
        seen = set()
        assignments = calls.whole_list(href, "FunctionSetAssignmentsList").items if href else ()
        for each in assignments:
            found = _href(each, "DERProgramListLink")
            if found and found not in seen:
                seen.add(found)
                yield found

    def _program(
        self, calls: Calls, element: Element, mrid: str, primacy: int, rates: list[int]
    ) -> ProgramTree:
        href = _href(element, "DERControlListLink") or _href(element, "ActiveDERControlListLink")
        controls: tuple[Element, ...] = ()
        if href:
            page = calls.whole_list(href, "DERControlList")
            controls = page.items
            rates += [] if page.poll_seconds is None else [page.poll_seconds]
        default = None
        if default_href := _href(element, "DefaultDERControlLink"):
            reply = calls.ask("GET", default_href)
            if reply.status != 404:
                default = calls.read(reply, default_href, "DefaultDERControl")
        return ProgramTree(mrid, primacy, controls, default)


def _program_names(element: Element) -> tuple[str, int]:
    mrid = hexadecimal(child(element, "mRID").text, 32, "the mRID").upper()
    return mrid, whole(child(element, "primacy"), 0, 255)


def _href(element: Element, link: str) -> str:
    found = element.find(link, SEP)
    return "" if found is None else found.attributes.get("href", "")
