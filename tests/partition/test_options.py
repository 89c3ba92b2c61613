from __future__ import annotations

import dataclasses
import inspect
import re

import click
import pytest

from tests.conftest import REPOSITORY
from tvm_ethosu.backend.cli import cli
from tvm_ethosu.partition import partition_for_ethosu
from tvm_ethosu.partition.options import OPTION_HELP, EthosUOptions, parse_size
from tvm_ethosu.scheduler.errors import UserError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("65536", 65536), ("64K", 65536), ("64k", 65536), ("64KiB", 65536), (" 1 M", 1048576), (7, 7)],
)
def test_sizes(text: str | int, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "64G", "1.5M", "K", "64 K B", "0x10"])
def test_bad_sizes_are_refused_with_what_was_written(text: str) -> None:
    with pytest.raises(UserError, match="not a number of bytes"):
        parse_size(text)


def test_the_system_config_follows_the_accelerator() -> None:
    assert EthosUOptions("ethos-u55-64").system_config == "Ethos_U55_High_End_Embedded"
    assert EthosUOptions("ethos-u65-512").system_config == "Ethos_U65_High_End"


# --- one text for each option, wherever it is shown ---------------------------------------------

DEFAULTS = {field.name: field.default for field in dataclasses.fields(EthosUOptions)}


def test_every_option_has_its_sentence_and_no_other_has_one() -> None:
    assert OPTION_HELP.keys() == DEFAULTS.keys()


def test_the_partitioner_takes_the_same_options_with_the_same_defaults() -> None:
    parameters = inspect.signature(partition_for_ethosu).parameters
    taken = {name: parameters[name].default for name in parameters if name in DEFAULTS}
    assert taken == DEFAULTS


@pytest.mark.parametrize("documented", [EthosUOptions, partition_for_ethosu])
@pytest.mark.parametrize("name", OPTION_HELP)
def test_docstrings_say_what_help_says(documented: object, name: str) -> None:
    assert f" {name}: {OPTION_HELP[name]}" in " ".join(str(documented.__doc__).split())


def _rows() -> dict[str, list[str]]:
    """Return option -> the other cells of its row in docs/cli.md."""
    section = (REPOSITORY / "docs" / "cli.md").read_text().split("\n## With TVM's tvmc\n")[1]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", section, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}


@pytest.mark.parametrize("command", ["compile", "explain", "run", "firmware", "report"])
def test_page_and_command_line_say_the_same(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    options = {option.opts[0]: option for option in found.params}
    assert list(_rows()) == list(OPTION_HELP)
    for name, (flag, default, meaning) in _rows().items():
        assert meaning == OPTION_HELP[name]
        assert default.strip("`") == str(DEFAULTS[name] if DEFAULTS[name] is not None else "")
        option = options[flag.strip("`")]
        assert isinstance(option, click.Option)
        preset = option.get_default(click.Context(found)) or None
        assert (option.help, preset) == (meaning, DEFAULTS[name] or None)
