"""A test may restart a node's processes as a reboot of the machine would."""

from gridaware.clock import SystemClock, boot_id


def test_the_boot_of_a_test_has_its_own_id_and_its_clock_begins_anew(tmp_path, monkeypatch):
    real = (boot_id(), SystemClock().boot_seconds())
    file = tmp_path / "boot"
    monkeypatch.setenv("GRIDAWARE_TEST_BOOT_FILE", str(file))
    assert boot_id() == real[0], "no file yet"
    file.write_text(f"another {real[1] - 7.0}", encoding="ascii")
    assert boot_id() == "another"
    assert 7.0 <= SystemClock().boot_seconds() < 60.0
