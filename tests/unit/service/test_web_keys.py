"""API keys: shown once, kept as hashes."""

import hashlib

import pytest

from gridaware.domain.errors import ConfigError, Refused
from gridaware.service.keys import KeyRing, api_key_line, new_api_key


def test_a_key_is_known_by_its_hash_and_the_file_does_not_hold_it(tmp_path):
    key = new_api_key()
    line = api_key_line("admin", key)
    assert line == f"admin sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    path = tmp_path / "keys"
    path.write_text(f"\n# remark\n{line}\n{api_key_line('ci', 'other')}\n")
    ring = KeyRing.from_file(path)
    assert (ring.holder(key), ring.holder("other")) == ("admin", "ci")


def test_keys_are_never_alike_and_hard_to_guess():
    keys = {new_api_key() for _ in range(100)}
    assert len(keys) == 100
    assert min(map(len, keys)) >= 43  # 256 bits in base 64


@pytest.mark.parametrize(
    ("key", "code"), [(None, "api-key-absent"), ("", "api-key-absent"), ("gw_x", "api-key-unknown")]
)
def test_nobody_elses_key_is_let_in(key, code):
    with pytest.raises(Refused) as caught:
        KeyRing({"admin": "0" * 64}).holder(key)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "api-key-file-empty"),
        ("# nothing\n", "api-key-file-empty"),
        ("admin gw_plain-text-key\n", "api-key-file-malformed"),
        ("admin sha256:short\n", "api-key-file-malformed"),
    ],
)
def test_a_key_file_that_lets_nobody_in_or_holds_a_key_is_refused(tmp_path, text, code):
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        KeyRing.from_file(path)
    assert caught.value.code == code
    assert "plain-text-key" not in str(caught.value)


def test_a_missing_key_file_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError) as caught:
        KeyRing.from_file(tmp_path / "none")
    assert caught.value.code == "api-key-file-unreadable"
