"""The names that IEEE 2030.5 makes of a device's certificate (clauses 6.3.3 and 6.3.4)."""

import hashlib
import re
import ssl
from pathlib import Path

from gridaware.domain.errors import ConfigError

__all__ = ["lfdi_of", "lfdi_of_file", "sfdi_of"]

CERTIFICATE_BYTES_AT_MOST = 64 * 1024
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def lfdi_of(certificate_pem: str) -> str:
    """The long form: the first 40 hexadecimal digits of the certificate's SHA-256.

    Of a chain it is the first certificate that counts: the device's own.

    Raises:
        ConfigError: it is no PEM certificate (``ieee2030-certificate``).
    """
    found = _CERTIFICATE.search(certificate_pem)
    try:
        der = ssl.PEM_cert_to_DER_cert(found.group() if found else certificate_pem)
    except ValueError as error:
        raise ConfigError("ieee2030-certificate", f"no certificate in PEM: {error}") from None
    return hashlib.sha256(der).hexdigest()[:40].upper()


def lfdi_of_file(path: str) -> str:
    """The long form of the certificate in a file.

    Raises:
        ConfigError: there is none that can be read (``ieee2030-certificate``).
    """
    try:
        with Path(path).open("rb") as file:
            return lfdi_of(file.read(CERTIFICATE_BYTES_AT_MOST).decode("ascii"))
    except OSError as error:
        raise ConfigError("ieee2030-certificate", f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError("ieee2030-certificate", f"{path}: no certificate in PEM") from None


def sfdi_of(lfdi: str) -> str:
    """The short form: 36 bits of the long one, decimal, and a digit that makes its sum 0 mod 10."""
    number = str(int(lfdi[:9], 16))
    return number + str(-sum(map(int, number)) % 10)
