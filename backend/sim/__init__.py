"""A functional simulator of the Ethos-U55 and Ethos-U65 command stream.

``decode`` turns words into typed operations, ``run`` executes them on byte arrays, ``estimate``
tells how long they take. The package knows bytes and registers only: it imports nothing of the
compiler it judges.
"""

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.cycles import CycleReport, OperationCycles, estimate
from tvm_ethosu.backend.sim.decode import decode
from tvm_ethosu.backend.sim.engine import OperationReport, RunReport, run
from tvm_ethosu.backend.sim.errors import (
    AmbiguousError,
    DecodeError,
    HazardError,
    LimitError,
    MemoryFault,
    SimulationError,
)
from tvm_ethosu.backend.sim.hardware import SYSTEM_CONFIGS, MemoryMode, SystemConfig
from tvm_ethosu.backend.sim.live import LiveTensor
from tvm_ethosu.backend.sim.memory import Region
from tvm_ethosu.backend.sim.operations import AnyOperation, Stream
from tvm_ethosu.backend.sim.words import payload_words

__all__ = [
    "SYSTEM_CONFIGS",
    "Accelerator",
    "AmbiguousError",
    "AnyOperation",
    "CycleReport",
    "DecodeError",
    "HazardError",
    "LimitError",
    "LiveTensor",
    "MemoryFault",
    "MemoryMode",
    "OperationCycles",
    "OperationReport",
    "Region",
    "RunReport",
    "SimulationError",
    "Stream",
    "SystemConfig",
    "decode",
    "estimate",
    "payload_words",
    "run",
]
