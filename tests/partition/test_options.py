from __future__ import annotations

import pytest

from tvm_ethosu.partition.options import EthosUOptions, parse_size
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
