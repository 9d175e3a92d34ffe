"""Signatures: the vectors of the RFCs, and every way round them that is known."""

import base64
import hashlib
import hmac
import json

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from gridaware.domain.errors import ConfigError, GridawareError
from gridaware.feeds.dsx.jws import Private, Signer, VerifyKey, read_payload, signer_of, verify
from gridaware.sim.grid.dsx import private_pem, public_pem

P256 = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
ED = ed25519.Ed25519PrivateKey.generate()
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
PAYLOAD = b'{"targets": []}'


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def number(text: str) -> int:
    return int.from_bytes(raw(text), "big")


def signer(key: Private, kid: str = "k") -> Signer:
    return signer_of(private_pem(key), kid, "key")


def keys(key: Private, kid: str = "k") -> dict[str, VerifyKey]:
    return {kid: VerifyKey.from_pem(public_pem(key).encode(), "key")}


def refusal(text: str, known: dict[str, VerifyKey]) -> str:
    with pytest.raises(GridawareError) as caught:
        verify(text, known)
    return caught.value.code


CLAIMS = (
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
)
VECTORS = {
    "RFC 7515 A.2": (
        rsa.RSAPublicNumbers(
            65537,
            number(
                "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJ"
                "PMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0"
                "LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uD"
                "Zlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2"
                "PAcDTW9gb54h4FRWyuXpoQ"
            ),
        ).public_key(),
        "RS256",
        f"eyJhbGciOiJSUzI1NiJ9.{CLAIMS}",
        (
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W"
            "2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkS"
            "jtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnv"
            "Wh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
        ),
    ),
    "RFC 7515 A.3": (
        ec.EllipticCurvePublicNumbers(
            number("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"),
            number("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"),
            ec.SECP256R1(),
        ).public_key(),
        "ES256",
        f"eyJhbGciOiJFUzI1NiJ9.{CLAIMS}",
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    ),
    "RFC 8037 A.4": (
        ed25519.Ed25519PublicKey.from_public_bytes(
            raw("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
        ),
        "EdDSA",
        "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_the_vectors_of_the_standards_hold_and_nothing_near_them(name: str) -> None:
    public, algorithm, signed, signature = VECTORS[name]
    key = VerifyKey(algorithm, public)
    assert key.matches(raw(signature), signed.encode())
    assert not key.matches(raw(signature), signed.encode() + b"x")
    assert not key.matches(raw(signature)[:-1] + b"\0", signed.encode())
    assert not key.matches(b"", signed.encode())


OTHERS: dict[str, tuple[Private, Private]] = {
    "ES256": (P256, ec.generate_private_key(ec.SECP256R1())),
    "RS256": (RSA, rsa.generate_private_key(65537, 2048)),
    "EdDSA": (ED, ed25519.Ed25519PrivateKey.generate()),
}


@pytest.mark.parametrize("algorithm", OTHERS)
def test_what_is_signed_is_read_with_its_key_and_no_other(algorithm: str) -> None:
    key, other = OTHERS[algorithm]
    text = signer(key).sign(PAYLOAD)
    assert json.loads(raw(text.split(".")[0])) == {"alg": algorithm, "kid": "k"}
    assert verify(text, keys(key)).payload == PAYLOAD == read_payload(text)
    assert refusal(text, keys(other)) == "jws-signature"
    assert refusal(text, keys(key, "another")) == "jws-key-unknown"
    head, _, mark = text.split(".")
    assert refusal(f"{head}.{part(b'{}')}.{mark}", keys(key)) == "jws-signature"


def forged(header: object, mark: bytes = b"x") -> str:
    return f"{part(json.dumps(header).encode())}.{part(PAYLOAD)}.{part(mark)}"


def test_no_algorithm_but_the_keys_own_is_taken() -> None:
    for algorithm in ("none", "None", "HS256", "ES384", "RS256", "EdDSA", "", None, 1, ["ES256"]):
        assert refusal(forged({"alg": algorithm, "kid": "k"}), keys(P256)) == "jws-algorithm"
    assert refusal(forged({"kid": "k"}), keys(P256)) == "jws-algorithm"


def test_a_public_key_is_no_secret_of_an_hmac() -> None:
    header = {"alg": "HS256", "kid": "k"}
    signed = f"{part(json.dumps(header).encode())}.{part(PAYLOAD)}"
    mark = hmac.new(public_pem(RSA).encode(), signed.encode(), hashlib.sha256).digest()
    assert refusal(f"{signed}.{part(mark)}", keys(RSA)) == "jws-algorithm"


def test_a_key_in_the_message_is_not_believed() -> None:
    stranger = ed25519.Ed25519PrivateKey.generate()
    header = {"alg": "EdDSA", "kid": "k", "jwk": {"kty": "OKP"}, "jku": "https://evil.example"}
    signed = f"{part(json.dumps(header).encode())}.{part(PAYLOAD)}"
    text = f"{signed}.{part(stranger.sign(signed.encode()))}"
    assert refusal(text, keys(ED)) == "jws-signature"
    assert refusal(forged({"alg": "EdDSA"}), keys(ED)) == "jws-key-unknown"


def test_extensions_that_must_be_understood_are_refused() -> None:
    header = {"alg": "EdDSA", "kid": "k", "crit": ["b64"], "b64": False}
    signed = f"{part(json.dumps(header).encode())}.{part(PAYLOAD)}"
    assert refusal(f"{signed}.{part(ED.sign(signed.encode()))}", keys(ED)) == "jws-algorithm"


@pytest.mark.parametrize(
    "text",
    ["", "a.b", "a.b.c.d", "a..c", "=.=.=", "a b.c.d", "\u00e9.a.b", "e30.e30.", "AB.e30.e30"],
)
def test_what_is_not_compact_is_refused(text: str) -> None:
    assert refusal(text, keys(P256)) == "jws-malformed"


def test_one_signature_in_two_forms_has_one_fingerprint() -> None:
    head, body, mark = signer(P256).sign(PAYLOAD).split(".")
    r, s = raw(mark)[:32], int.from_bytes(raw(mark)[32:], "big")
    twin = f"{head}.{body}.{part(r + (ORDER - s).to_bytes(32, 'big'))}"
    prints = {verify(text, keys(P256)).fingerprint for text in (f"{head}.{body}.{mark}", twin)}
    assert len(prints) == 1
    again = verify(signer(P256).sign(PAYLOAD), keys(P256)).fingerprint
    assert again not in prints  # said anew


@pytest.mark.parametrize(
    "key",
    [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 1024)],
    ids=["P-384", "RSA-1024"],
)
def test_weak_or_other_keys_are_refused_when_they_are_read(key: Private) -> None:
    with pytest.raises(ConfigError) as public:
        VerifyKey.from_pem(public_pem(key).encode(), "key")
    with pytest.raises(ConfigError) as private:
        signer_of(private_pem(key), "k", "key")
    assert public.value.code == private.value.code == "dsx-key"


def test_a_key_that_is_none_or_the_wrong_half_is_refused() -> None:
    for pem in (b"", b"0123456789abcdef", private_pem(P256)):
        with pytest.raises(ConfigError):
            VerifyKey.from_pem(pem, "key")
    with pytest.raises(ConfigError):
        signer_of(public_pem(P256).encode(), "k", "key")
