"""What can go wrong with every command."""

from __future__ import annotations

from collections.abc import Mapping

from tests.backend.error_ways.desk import Desk, Way, cli, given, process, raising


def _in_the_way(desk: Desk) -> None:
    desk.write("occupied", "")


ANYWHERE: Mapping[str, Way] = {
    "…: cannot be written (…)": given(
        _in_the_way, "compile", "model.tflite", "-o", "occupied/deeper"
    ),
    "the package '…' is not installed; pip install 'tvm-ethosu[relay]'": process(
        "import sys; sys.modules['tvm'] = None; from tvm_ethosu.entry import main; main()"
    ),
    "TFLite files need the package tflite: …": given(
        lambda desk: desk.hide("tflite.BuiltinOperator"), "explain", "model.tflite"
    ),
    "--json took '…': write --json last, or --json=-": cli("explain", "--json", "model.tflite"),
    "…: unknown ending (got …, known: …)": cli("run", "model.tflite", "--output", "outputs.txt"),
    "this machine has too little memory for it": given(
        raising(MemoryError()), "explain", "model.tflite"
    ),
    "interrupted": given(raising(KeyboardInterrupt()), "explain", "model.tflite", code=130),
    "unexpected error, our fault (…)": given(
        raising(RuntimeError("?")), "explain", "model.tflite", code=1
    ),
}
