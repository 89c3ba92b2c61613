"""What the page shows, as frozen data: no HTML, no pixels.

Sizes are in bytes, times in cycles of the NPU. Positions along the program count operators of the
model as they run: operator 2 takes the place from 2 to 3, and the parts that the NPU makes of it
share that place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tvm_ethosu.backend.outcome import Outcome
from tvm_ethosu.backend.timing import Traffic
from tvm_ethosu.partition.options import EthosUOptions


class Holding(Enum):
    """What a piece of memory is used for; the value is the word for it on the page."""

    INPUT = "network input"
    OUTPUT = "network output"
    TENSOR = "tensor between functions"
    FEATURE_MAP = "feature map inside the NPU function"
    ROLLING = "rolling buffer of a cascade"
    WEIGHTS = "weights moved into SRAM"


_NO_TRAFFIC = Traffic()


@dataclass(frozen=True)
class OperatorRow:
    """An operator of the model, or the part of it that runs in one place.

    Attributes:
        number: its place in the order of execution, from 1.
        name: the operator in TFLite's words.
        tensor: the tensor that it writes.
        function: the NPU function that holds it; empty on the CPU.
        reason: why it is on the CPU; empty on the NPU.
        parts: into how many operations of the NPU's graph it is divided.
        kernels: how many kernel operations do it, all stripes counted.
        cascade: the number of its cascade; None outside of any.
        stripe_rows: rows that its last part makes at a time; None where it makes all at once.
        ifm, ofm: shapes of what it reads first and writes last.
        layouts: memory layouts of IFM and OFM.
        block: the block config of the part that takes longest.
        cycles, macs, utilisation, traffic: as the simulator estimates them for one inference.
        limited_by: what it waits for most of the time.
        weights_bytes: weights and scales, as encoded.
        weights_moved: whether they are moved into SRAM beforehand.
    """

    number: int
    name: str
    tensor: str
    function: str = ""
    reason: str = ""
    parts: int = 0
    kernels: int = 0
    cascade: int | None = None
    stripe_rows: int | None = None
    ifm: str = ""
    ofm: str = ""
    layouts: tuple[str, str] = ("", "")
    block: str = ""
    cycles: float = 0.0
    macs: int = 0
    utilisation: float = 0.0
    traffic: Traffic = _NO_TRAFFIC
    limited_by: str = ""
    weights_bytes: int = 0
    weights_moved: bool = False

    @property
    def on_npu(self) -> bool:
        """Return whether the NPU runs it."""
        return not self.reason


@dataclass(frozen=True)
class Stripe:
    """Rows ``[first, stop)`` of an operator's OFM, made from cycle ``start`` to ``end``."""

    first: int
    stop: int
    start: float
    end: float


@dataclass(frozen=True)
class Lane:
    """An operator of a cascade and its stripes.

    ``whole_bytes`` is its OFM, ``held_bytes`` the memory that the cascade has for it.
    """

    name: str
    tensor: str
    height: int
    stripes: tuple[Stripe, ...]
    whole_bytes: int
    held_bytes: int


@dataclass(frozen=True)
class Cascade:
    """Operators of one NPU function that work stripe by stripe; numbers are those of the rows."""

    number: int
    function: str
    first: int
    last: int
    stripe_rows: int
    lanes: tuple[Lane, ...]

    @property
    def cycles(self) -> float:
        """Return how long it takes."""
        times = [stripe for lane in self.lanes for stripe in lane.stripes]
        return max(s.end for s in times) - min(s.start for s in times)

    @property
    def whole_bytes(self) -> int:
        """Return what the feature maps inside would take whole."""
        return sum(lane.whole_bytes for lane in self.lanes[:-1])

    @property
    def held_bytes(self) -> int:
        """Return what their rolling buffers take."""
        return sum(lane.held_bytes for lane in self.lanes[:-1])


@dataclass(frozen=True)
class Piece:
    """Memory in use from one position of the program to another.

    ``offset_bytes`` is the height at which it is drawn: its address in the scratch memory, or its
    place in the pile above.
    """

    name: str
    holding: Holding
    start: float
    stop: float
    offset_bytes: int
    size_bytes: int
    detail: str = ""


@dataclass(frozen=True)
class Moment:
    """A place of the program: one operator while it runs.

    ``used_bytes`` is all that is in use or kept for the caller, a function's scratch as a whole.
    """

    label: str
    place: str
    used_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class MemoryChart:
    """The memory along the program; ``arena_bytes`` is what TVM planned for all of it."""

    moments: tuple[Moment, ...]
    pieces: tuple[Piece, ...]
    arena_bytes: int
    limit_bytes: int | None

    @property
    def peak(self) -> int:
        """Return the first place where most memory is in use, within the scratch too."""

        def in_use(at: int) -> tuple[int, int]:
            return self.moments[at].used_bytes, sum(piece.size_bytes for piece in self.at(at))

        return max(range(len(self.moments)), key=in_use, default=-1)

    @property
    def is_padded(self) -> bool:
        """Return whether the arena is clearly more than what is in use at any place."""
        used = max((moment.used_bytes for moment in self.moments), default=0)
        return self.arena_bytes > 1.05 * used

    def at(self, place: int) -> tuple[Piece, ...]:
        """Return what is in memory at a place, the largest first."""
        found = (p for p in self.pieces if p.start < place + 1 and place < p.stop)
        return tuple(sorted(found, key=lambda piece: -piece.size_bytes))


@dataclass(frozen=True)
class FunctionSummary:
    """An NPU function: its scratch, what that may be, and its share of the time.

    ``lent_buffers`` lie in the memory of inputs and outputs. While ``waiting_cycles`` pass no
    kernel operation runs.
    """

    name: str
    calls: int
    operators: int
    scratch_bytes: int
    budget_bytes: int | None
    lent_buffers: int
    cycles: float
    waiting_cycles: float


@dataclass(frozen=True)
class Variant:
    """The same network compiled otherwise; without an outcome, ``refusal`` says why."""

    label: str
    outcome: Outcome | None
    refusal: str = ""


@dataclass(frozen=True)
class ReportData:
    """All that the page shows."""

    model: str
    options: EthosUOptions
    outcome: Outcome
    pool_bytes: int
    io_bytes: int
    constants_memory: str
    core_clock_hz: float
    removed_operators: int
    operators: tuple[OperatorRow, ...]
    functions: tuple[FunctionSummary, ...]
    cascades: tuple[Cascade, ...]
    memory: MemoryChart
    variants: tuple[Variant, ...]
