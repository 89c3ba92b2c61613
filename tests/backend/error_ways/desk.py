"""What a user sits at, and what one can do there: type a command, call Python."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backend.error_ways.networks import network, one_convolution, rebuilt, set_to
from tvm_ethosu.backend.cli import main
from tvm_ethosu.backend.vela_raw import FIELDS
from tvm_ethosu.scheduler.errors import EthosUError


@dataclass(frozen=True)
class Desk:
    """Where a user sits: a folder, what was made before (by Vela and by us), a terminal."""

    folder: Path
    made: Path
    patch: pytest.MonkeyPatch
    printed: Callable[[], tuple[str, str]]

    def write(self, name: str, data: bytes | str) -> str:
        path = self.folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def save(self, name: str, shape: tuple[int, ...], dtype: str = "int8") -> str:
        np.save(self.folder / name, np.zeros(shape, dtype))
        return name

    def vela(self, kind: str, change: Callable[[Any], object] | None = None) -> str:
        """Put what Vela made into the folder, a TFLite file perhaps changed."""
        data = (self.made / f"small_vela.{kind}").read_bytes()
        data = data if change is None else rebuilt(data, change)
        return self.write(f"vela.{kind}", data)

    def raw(self, **fields: Any) -> str:
        """Put Vela's raw output into the folder, with other fields than it has."""
        with np.load(self.made / "small_vela.npz") as archive:
            known = {name: archive[name] for name in FIELDS}
        np.savez(self.folder / "raw.npz", **(known | fields))
        return "raw.npz"

    def program(self) -> str:
        """Put the NPU program of the network into the folder."""
        (path,) = (self.made / "out" / "npu").iterdir()
        return self.write("model.npu", path.read_bytes())

    def hide(self, package: str) -> None:
        """Make a package look as if it were not installed."""
        self.patch.setitem(sys.modules, package, None)

    def forget(self, package: str) -> None:
        """Let a package not be found before it is imported."""
        find = importlib.util.find_spec
        self.patch.setattr(
            importlib.util, "find_spec", lambda name: None if name == package else find(name)
        )


Way = Callable[[Desk], str]


def cli(*words: str, code: int = 2, run: Callable[[list[str]], int] = main) -> Way:
    """Type a command, which ends with ``code``."""

    def way(desk: Desk) -> str:
        desk.printed()
        found = run(list(words))
        text = "".join(desk.printed())
        assert found == code, text
        assert "Traceback" not in text
        return text

    return way


def given(prepare: Callable[[Desk], object], *words: str, **options: Any) -> Way:
    """Type a command after a preparation."""

    def way(desk: Desk) -> str:
        prepare(desk)
        return cli(*words, **options)(desk)

    return way


def file(data: bytes | Callable[[], bytes]) -> Way:
    """Ask for an explanation of a file."""

    def way(desk: Desk) -> str:
        desk.write("bad.tflite", data() if callable(data) else data)
        return cli("explain", "bad.tflite")(desk)

    return way


def table(path: str, value: object) -> Way:
    """Ask for an explanation of a convolution in whose file one field is another one."""
    return file(lambda: rebuilt(one_convolution(), set_to(path, value)))


def python(call: Callable[[], object]) -> Way:
    """Call something that raises one of our errors."""

    def way(_desk: Desk) -> str:
        with pytest.raises(EthosUError) as caught:
            call()
        return str(caught.value)

    return way


def raising(error: BaseException) -> Callable[[Desk], None]:
    """Let a step of ``explain`` fail."""

    def fail(*_: object) -> None:
        raise error

    return lambda desk: desk.patch.setattr("tvm_ethosu.backend.network.partition_file", fail)


def process(code: str) -> Way:
    """Run Python in a process of its own; return what it printed to stderr."""

    def way(_desk: Desk) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode != 0
        return done.stderr

    return way


def once(way: Way) -> Way:
    """Do something only the first time, for several sentences that come together."""
    texts: list[str] = []

    def remembered(desk: Desk) -> str:
        if not texts:
            texts.append(way(desk))
        return texts[0]

    return remembered


def twin(desk: Desk) -> None:
    (desk.folder / "twin").mkdir()
    desk.write("twin/model.tflite", network())
