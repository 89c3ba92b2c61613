"""How each sentence of docs/errors.md is reached: a module for each of the page's sections.

A way takes a ``Desk``, a folder with a network and with what Vela made of it, and returns what the
user is told: what a command prints, or the text of an exception in Python.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.backend.error_ways.anywhere import ANYWHERE
from tests.backend.error_ways.build import PYTHON, TVMC
from tests.backend.error_ways.demo import BENCH
from tests.backend.error_ways.desk import Way
from tests.backend.error_ways.firmware import FIRMWARE
from tests.backend.error_ways.memory import MEMORY
from tests.backend.error_ways.options import OPTIONS
from tests.backend.error_ways.reference import REFERENCE
from tests.backend.error_ways.simulate import SIMULATE
from tests.backend.error_ways.sram import SRAM
from tests.backend.error_ways.sweep import SWEEP
from tests.backend.error_ways.the_file import FILE

# The sections of the page in its order: a sentence may stand in several.
SECTIONS: Mapping[str, Mapping[str, Way]] = {
    "Anywhere": ANYWHERE,
    "The file": FILE,
    "Options": OPTIONS,
    "SRAM": SRAM,
    "partition_for_ethosu and relay.build": {**PYTHON, **TVMC},
    "memory, analyze_used_memory, annotate_used_memory": MEMORY,
    "sweep": SWEEP,
    "simulate and disassemble": SIMULATE,
    "Firmware and machine run": FIRMWARE,
    "The reference": REFERENCE,
    "The demo, the benchmark and the coverage": BENCH,
}
