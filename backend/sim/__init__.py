"""A functional simulator of the Ethos-U55 and Ethos-U65 command stream.

``decode`` turns words into typed operations, ``run`` executes them on byte arrays. The package
knows bytes and registers only: it imports nothing of the compiler it judges.
"""

from tvm_ethosu.backend.sim.accelerator import Accelerator
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
from tvm_ethosu.backend.sim.memory import Region
from tvm_ethosu.backend.sim.operations import AnyOperation, Stream
from tvm_ethosu.backend.sim.words import payload_words

__all__ = [
    "Accelerator",
    "AmbiguousError",
    "AnyOperation",
    "DecodeError",
    "HazardError",
    "LimitError",
    "MemoryFault",
    "OperationReport",
    "Region",
    "RunReport",
    "SimulationError",
    "Stream",
    "decode",
    "payload_words",
    "run",
]
