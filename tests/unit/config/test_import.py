import subprocess
import sys


def test_importing_the_package_alone_loads_nothing_heavy() -> None:
    """Help and completion import the package; pydantic alone would cost them a quarter second."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import config, sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()

    assert "config" in loaded
    assert not {"pydantic", "pydantic_settings", "tomllib", "config.settings"} & set(loaded)


def test_the_policy_needs_no_pydantic() -> None:
    """`policy check` and `policy explain` stay quick."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import config.policy, sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()

    assert "config.policy" in loaded
    assert "pydantic" not in loaded
