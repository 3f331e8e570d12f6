"""What setuptools is told to ship is what there is; for anything else it warns at every build."""

import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_every_folder_with_files_is_a_package_that_is_listed() -> None:
    """To setuptools a folder of SQL alone is a package as well."""
    file = CHECKOUT / "pyproject.toml"
    configured = tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["setuptools"]
    shipped = {file for kinds in configured["package-data"].values() for file in kinds} | {"*.py"}

    folders = {
        found.parent.relative_to(CHECKOUT)
        for top in {name.partition(".")[0] for name in configured["packages"]}
        for pattern in shipped
        for found in (CHECKOUT / top).rglob(pattern)
    }

    assert {".".join(folder.parts) for folder in folders} == {*configured["packages"]}
    assert {*configured["package-data"]} <= {*configured["packages"]}
