"""Settings: what is refused, where the blame is put, and which source wins."""

from pathlib import Path
from zoneinfo import available_timezones

import pytest

from gridaware.control.site import Policy
from gridaware.domain.errors import ConfigError
from gridaware.domain.target import HardLimit, Overhead, Ramp
from gridaware.wiring.config import Settings, load_settings

EXAMPLE = Path(__file__).parents[3] / "configs" / "site.example.yaml"


def settings_of(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def complaints(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings_of(tmp_path, text)
    assert caught.value.code == "config-invalid"
    headline, *lines = caught.value.message.splitlines()
    count = caught.value.facts["count"]
    assert headline.startswith(f"{count} setting")
    assert len(lines) == count
    return lines


def test_nothing_acts_until_the_operator_says_so() -> None:
    assert load_settings(None).control.act is False


def test_the_commented_example_shows_the_defaults() -> None:
    example, defaults = load_settings(EXAMPLE), Settings()
    for name in set(Settings.model_fields) - {"programmes"}:
        assert getattr(example, name) == getattr(defaults, name), name
    (programme,) = example.programmes
    assert programme == type(programme)(id="default")


def test_a_site_of_the_file_is_what_the_machine_is_told(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        """
site:
  name: north
  overhead: {fixed_watts: 4000, slope: 1.2, quality: measured}
  hard_limit: {watts: 120000, averaging_seconds: 60, margin: 0.05}
  ramp: {up_watts_per_minute: 9000}
control: {act: true, stall_seconds: 30}
programmes:
  - {id: p, deadline_seconds: 30, signal_loss: {hold_seconds: null, fallback_fraction: 0.5}}
feeds:
  - {id: f, kind: webhook, programme: p, authority: {greatest_depth: 0.4}, settings: {b: 1, a: 2}}
""",
    )
    site = settings.site_value(Policy())
    assert (site.name, site.act, site.stall_seconds) == ("north", True, 30)
    assert site.overhead == Overhead(4000, 1.2, "measured")
    assert site.hard_limit == HardLimit(120000, 60, 0.05)
    assert site.ramp == Ramp(None, 9000)
    assert site.programmes[0].signal_loss.hold_seconds is None
    assert site.programmes[0].deadline_seconds == 30
    (feed,) = site.feeds
    assert feed.authority.greatest_depth == 0.4
    assert feed.settings_json == '{"a":2,"b":1}'


def test_every_error_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    lines = complaints(
        tmp_path,
        """site:
  nam: x
  time_zone: Mars/Base
control:
  tick_seconds: -1
programmes:
  - id: "bad id!"
  - id: p
    paid_band: [0.5]
""",
    )
    assert [line.split(":")[0] for line in lines] == [
        "line 2", "line 3", "line 5", "line 7", "line 9",
    ]  # fmt: skip
    assert "did you mean 'name'?" in lines[0]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("site: {hard_limit: {watts: 1, kw: 90}}", "did you mean 'watts' (1 kW = 1000 W)?"),
        ("site: {overhead: {fixed_kw: 3}}", "did you mean 'fixed_watts' (1 kW = 1000 W)?"),
        ("site: {ramp: {up_mw_per_minute: 3}}", "did you mean 'up_watts_per_minute'"),
        ("control: {tick_ms: 100}", "did you mean 'tick_seconds' (1000 ms = 1 s)?"),
        ("control: {stall_minutes: 2}", "did you mean 'stall_seconds' (1 min = 60 s)?"),
        ("site: {hard_limit: {watts: 1, margin_percent: 2}}", "did you mean 'margin'"),
        ("kontrol: {}", "did you mean 'control'?"),
        ("web: {qqqq: 1}", "known here: host, port, api_key_file"),
    ],
)
def test_an_unknown_key_names_the_one_that_was_meant(tmp_path: Path, text: str, hint: str) -> None:
    (line,) = complaints(tmp_path, text)
    assert hint in line


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("site: {hard_limit: {watts: 90 kW}}", "'90 kW'; write the bare number"),
        ("site: {hard_limit: {watts: -5}}", "greater than 0"),
        ("site: {hard_limit: {watts: .nan}}", "finite"),
        ("site: {hard_limit: {watts: .inf}}", "finite"),
        ("site: {hard_limit: {watts: 1e15}}", "less than or equal to"),
        ("site: {hard_limit: {watts: true}}", "not true or false"),
        ("site: {hard_limit: {}}", "watts is missing"),
        ("site: {overhead: {slope: 0.5}}", "greater than or equal to 1"),
        ("control: {act: maybe}", "valid boolean"),
        ("control: {signals_port: 70000}", "65535"),
        ("ray: {address: 127.0.0.1}", "pattern"),
        ("programmes: [{id: a}, {id: a}]", "'a' is given twice"),
        ("feeds: [{id: a, kind: webhook}]", "programme is missing"),
        ("{programmes: [{id: p}], feeds: [{id: a, kind: w, programme: q}]}", "'q'; known: p"),
        ("feeds: [{id: a, kind: w, programme: p, authority: {greatest_depth: 40}}]", "equal to 1"),
    ],
)
def test_an_impossible_value_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    (line,) = complaints(tmp_path, text)
    assert fact in line


def test_a_token_in_the_file_is_refused_and_never_shown(tmp_path: Path) -> None:
    (line,) = complaints(tmp_path, "ray: {token: hunter2-hunter2}")
    assert "env:NAME" in line
    assert "hunter2" not in line


def test_a_key_given_twice_is_refused_where_yaml_would_drop_one(tmp_path: Path) -> None:
    (line,) = complaints(tmp_path, "web:\n  port: 1\n  port: 2\n")
    assert line == "line 2: web.port is given twice, again on line 3"


def test_file_yields_to_environment_and_environment_to_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("web: {host: file, port: 1}\ncontrol: {signals_port: 3}\n", encoding="utf-8")
    monkeypatch.setenv("GRIDAWARE__WEB__PORT", "2")
    monkeypatch.setenv("GRIDAWARE__CONTROL__ACT", "true")
    settings = load_settings(path, {"control": {"act": False}})
    assert (settings.web.host, settings.web.port) == ("file", 2)
    assert (settings.control.act, settings.control.signals_port) == (False, 3)


def test_the_environment_reaches_into_a_list_and_a_nested_section(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRIDAWARE__AGENTS__EXPECTED", '["n1", "n2"]')
    monkeypatch.setenv("GRIDAWARE__SITE__HARD_LIMIT__WATTS", "5000")
    settings = load_settings(None)
    assert settings.agents.expected == ("n1", "n2")
    assert settings.site.hard_limit is not None
    assert settings.site.hard_limit.watts == 5000


@pytest.mark.parametrize(
    ("name", "value", "fact"),
    [
        ("GRIDAWARE__WEB__PORT", "many", "web.port is 'many', not a number"),
        ("GRIDAWARE__WEB__PROT", "1", "did you mean 'port'?"),
        ("GRIDAWARE__WEBB__PORT", "1", "did you mean 'web'?"),
    ],
)
def test_the_blame_for_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, fact: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load_settings(None)
    line = caught.value.message.splitlines()[1]
    assert line.startswith(f"{name}: ")
    assert fact in line


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "control: {state_dir: s, tls_dir: /etc/tls}")
    assert settings.state_dir == tmp_path / "s"
    assert settings.tls_dir == Path("/etc/tls")
    assert settings.store_url == f"sqlite:///{tmp_path}/s/gridaware.db"


def test_a_token_is_read_from_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SECRET", "0123456789abcdef\n")
    assert settings_of(tmp_path, "ray: {token: 'env:RAY_SECRET'}").ray_token() == "0123456789abcdef"
    monkeypatch.delenv("RAY_SECRET")
    with pytest.raises(ConfigError, match="RAY_SECRET"):
        settings_of(tmp_path, "ray: {token: 'env:RAY_SECRET'}").ray_token()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"site: [unclosed", "config-yaml-malformed"),
        (b"- a\n- list\n", "config-yaml-malformed"),
        (b"\xff\xfe", "config-yaml-malformed"),
        (b"a: " + b"x" * (1 << 20), "config-yaml-malformed"),
        (b"a: !!python/object/apply:os.system ['true']", "config-yaml-malformed"),
    ],
)
def test_a_file_that_is_no_settings_file_is_refused(
    tmp_path: Path, content: bytes, code: str
) -> None:
    path = tmp_path / "site.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert caught.value.code == code


def test_aliases_that_multiply_are_stopped(tmp_path: Path) -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    path = tmp_path / "site.yaml"
    path.write_text("\n".join(["a0: &a0 [x, x]", *levels]), encoding="utf-8")
    with pytest.raises(ConfigError, match="more than"):
        load_settings(path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match="no file") as caught:
        load_settings(Path("/nowhere/site.yaml"))
    assert caught.value.code == "config-file-missing"


def test_the_zones_of_the_tz_database_are_taken(tmp_path: Path) -> None:
    assert "Europe/Berlin" in available_timezones()
    assert settings_of(tmp_path, "site: {time_zone: Europe/Berlin}").site.time_zone


def test_a_list_that_is_no_json_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRIDAWARE__AGENTS__EXPECTED", "[n1")
    with pytest.raises(ConfigError, match=r"(?i)agents"):
        load_settings(None)


def test_a_site_names_its_meters_in_the_order_in_which_they_are_believed(tmp_path: Path) -> None:
    site = settings_of(
        tmp_path,
        """
site:
  rating_watts: 90000
  meters:
    - {name: main, module: gridaware.devices.modbus, options: {host: m, port: 1502, unit: 3}}
    - {name: sum, module: device_sum, accuracy_share: 0.03}
    - {name: scraped, module: gridaware.devices.prometheus, stale_seconds: 45}
""",
    ).site
    assert [meter.name for meter in site.meters] == ["main", "sum", "scraped"]
    assert site.meters[0].options == {"host": "m", "port": "1502", "unit": "3"}
    assert (site.rating_watts, site.meters[2].stale_seconds) == (90000.0, 45.0)


def test_the_one_meter_of_older_settings_is_an_order_of_one(tmp_path: Path) -> None:
    old = "site: {meter: {module: gridaware.sim.meter, options: {window: /w}}}"
    (meter,) = settings_of(tmp_path, old).site.meters
    assert (meter.name, meter.module, meter.options) == (
        "site",
        "gridaware.sim.meter",
        {"window": "/w"},
    )
    default = "site: {meter: {module: gridaware.devices.device_sum, options: {}}}"
    assert settings_of(tmp_path, default).site.meters == ()


@pytest.mark.parametrize(
    ("site", "what"),
    [
        ("{meter: {module: a}, meters: []}", "not both"),
        ("{meters: [{name: a, module: x}, {name: a, module: y}]}", "given twice"),
        ("{meters: [{name: a, module: device_sum}, {name: b, module: device_sum}]}", "one sum"),
        ("{meters: [{name: a, module: x, parts: [{module: y}]}]}", "parts"),
        ("{meters: [{name: a, module: meter_sum}]}", "parts"),
        ("{meters: [{name: A b, module: x}]}", "name"),
        ("{meters: [{name: a}]}", "module"),
        ("{meters: [{name: a, module: x, accuracy_share: 2}]}", "accuracy_share"),
        ("{meters: [{name: a, module: x, options: {unit: [1]}}]}", "unit"),
        ("{meters: [{name: a, module: x, option: {}}]}", "option"),
    ],
)
def test_meters_that_cannot_be_are_told_with_their_place(
    tmp_path: Path, site: str, what: str
) -> None:
    assert any(what in line for line in complaints(tmp_path, f"site: {site}"))
