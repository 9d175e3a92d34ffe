"""What registers mean: word order, types, patterns without a value, scale factors, bad maps."""

from pathlib import Path

import pytest

from gridaware.devices.modbus import _Counter
from gridaware.devices.registers import Field, load_map, ten_to
from gridaware.domain.errors import ConfigError, DeviceError, DeviceNotSupported

MAPS = Path(__file__).parents[3] / "configs" / "meters"
GOOD = """
manual: none
accuracy_share: 0.005
power: {register: 10, type: int32, scale: 0.1}
"""


@pytest.mark.parametrize(
    ("kind", "words", "little", "value"),
    [
        ("int16", [0xFF38], False, -200.0),
        ("uint16", [0xFF38], False, 65336.0),
        ("int32", [0xFFFE, 0x7960], False, -100000.0),
        ("int32", [0x7960, 0xFFFE], True, -100000.0),
        ("uint32", [0x0001, 0x86A0], False, 100000.0),
        ("uint64", [0, 0, 0x0001, 0x86A0], False, 100000.0),
        ("int64", [0x86A0, 0x0001, 0, 0], True, 100000.0),
        # IEEE 754: 12345.678 and 1.5
        ("float32", [0x4640, 0xE6B6], False, pytest.approx(12345.678, abs=1e-3)),
        ("float64", [0x3FF8, 0, 0, 0], False, 1.5),
    ],
)
def test_words_become_a_number_in_either_order(
    kind: str, words: list[int], little: bool, value: float
) -> None:
    assert Field(0, kind, 1.0).value(words, little=little) == value


@pytest.mark.parametrize(
    ("kind", "words", "absent"),
    [
        ("int16", [0x8000], [0x8000]),  # SunSpec
        ("uint32", [0, 0], [0]),  # SunSpec acc32
        ("int64", [0x8000, 0, 0, 0], [1 << 63]),  # Schneider
        ("float32", [0xFFC0, 0x0000], []),  # Schneider: any NaN
        ("float32", [0x7F80, 0x0000], []),  # infinity
    ],
)
def test_what_means_no_value_is_never_a_number(
    kind: str, words: list[int], absent: list[int]
) -> None:
    with pytest.raises(DeviceNotSupported) as refused:
        Field(7, kind, 1.0, frozenset(absent)).value(words, little=False)
    assert refused.value.code == "meter-value-absent"


def test_a_scale_factor_is_a_signed_power_of_ten_or_refused() -> None:
    assert [ten_to(0), ten_to(2), ten_to(0xFFFE)] == [1.0, 100.0, 0.01]
    with pytest.raises(DeviceError):
        ten_to(0x8000)  # not implemented


def test_a_counter_that_wraps_goes_on_and_one_that_starts_anew_begins_an_epoch() -> None:
    field = Field(0, "uint32", 3600.0, wraps_at=1 << 32)
    counter = _Counter()
    before = counter.joules(float((1 << 32) - 10), field)
    after = counter.joules(20.0, field)
    assert after - before == pytest.approx(30 * 3600.0)
    assert counter.epoch == 0
    assert counter.joules(5.0, field) < after
    assert counter.epoch == 1


@pytest.mark.parametrize("path", sorted(MAPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_map_that_comes_with_us_names_its_manual(path: Path) -> None:
    made = load_map(path)
    assert len(made.manual) > 40
    assert 0 < made.accuracy_share <= 0.02
    assert made.energy is not None
    assert made.energy.scale == 3600.0  # all of them count watt hours


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "not a table"),
        (GOOD.replace("power", "powr"), "powr"),
        (GOOD.replace("manual: none", ""), "manual"),
        (GOOD.replace("int32", "int24"), "type is one of"),
        (GOOD.replace("register: 10", "register: 70000"), "0 to 65535"),
        (GOOD.replace("register: 10, ", ""), "register"),
        (GOOD.replace("0.005", "5"), "accuracy_share"),
        (GOOD.replace("scale: 0.1", "scale: ten"), "scale"),
        (GOOD.replace("scale: 0.1", "sign: 0"), "sign"),
        (GOOD.replace("scale: 0.1", "absent: nan"), "absent"),
        (GOOD.replace("scale: 0.1", "scale_register: 3"), "together"),
        (GOOD + "together: true\nenergy: {register: 900, type: int16}", "125"),
        (GOOD + "function: 6", "function"),
        (GOOD + "word_order: middle", "word_order"),
        ("power: [", ""),
    ],
)
def test_a_map_that_is_wrong_is_refused_with_its_name(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_map(path)
    assert refused.value.code == "meter-map"
    assert "mine.yaml" in refused.value.message
    assert what in refused.value.message
