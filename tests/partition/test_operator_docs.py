"""What the page of operators says of other compilers is what they say themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_ethosu.partition.operator_docs import (
    ABSENT,
    FORMER_PATTERNS,
    VELA_OPERATORS,
    operators_markdown,
    table_names,
)


def test_every_operator_of_the_others_has_a_row_or_a_reason() -> None:
    page = operators_markdown()
    for name in {*FORMER_PATTERNS, *VELA_OPERATORS}:
        (here,) = re.findall(rf"^\| {re.escape(name)} \| .* \| .* \| (.+) \|$", page, flags=re.M)
        assert here == ("yes" if name in table_names() else ABSENT[name])


@pytest.mark.slow
def test_the_list_of_vela_is_its_own_report(tmp_path: Path) -> None:
    vela = Path(sys.executable).with_name("vela")
    subprocess.run([vela, "--supported-ops-report"], cwd=tmp_path, check=True, capture_output=True)
    report = (tmp_path / "SUPPORTED_OPS.md").read_text()
    table = report.split("TFLite Summary Table")[1].split("\n## ")[0]
    names = re.findall(r"^\| (\w+) \| \[", table, flags=re.M)
    assert sorted(VELA_OPERATORS) == sorted(names)
