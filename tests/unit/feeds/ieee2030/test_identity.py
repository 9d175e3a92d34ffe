"""The names of a device, from its certificate."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from gridaware.clock import ManualClock
from gridaware.domain.errors import ConfigError
from gridaware.feeds.ieee2030.identity import lfdi_of, lfdi_of_file, sfdi_of
from gridaware.wiring.identity import issue, make_ca

LFDI = "3E4F45AB31EDFE5B67E343E5E4562E31984E23E5"


def test_the_short_name_of_the_standards_own_example() -> None:
    # IEEE 2030.5-2018, 6.3.4: 0x3E4F45AB3 is 16726121139, whose digits sum to 39; 1 makes it 40.
    assert sfdi_of(LFDI) == "167261211391"
    assert sfdi_of("0" * 40) == "00"


def test_the_long_name_is_of_the_devices_own_certificate_in_a_chain(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 30, tzinfo=UTC))
    authority = make_ca(tmp_path, clock)
    device = issue(tmp_path, "device", clock)
    pem = device.certificate.read_bytes()
    der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
    ours = hashlib.sha256(der).hexdigest()[:40].upper()
    assert lfdi_of_file(str(device.certificate)) == ours
    assert lfdi_of("notes before it\n" + pem.decode() + authority.read_text()) == ours


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!"])
def test_what_is_no_certificate_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificate"):
        lfdi_of(text)
    (tmp_path / "binary").write_bytes(b"\x80\x81")
    for name in ("absent", "binary"):
        with pytest.raises(ConfigError) as caught:
            lfdi_of_file(str(tmp_path / name))
        assert caught.value.code == "ieee2030-certificate"
