"""Where plans get their hardware from: the code generator's encoder, through an entry point.

The partitioner plans with encoded weights, but bytes are the code generator's business, which is
built on the partitioner. So it is found by name, as installed packages announce it.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.scheduler.errors import InternalError
from tvm_ethosu.scheduler.ports import Hardware

_GROUP = "tvm_ethosu.parameters"


def find_hardware(options: EthosUOptions) -> Hardware:
    """Return the hardware that a network is planned for.

    Raises:
        InternalError: no installed package encodes weights.
    """
    found = sorted(entry_points(group=_GROUP), key=lambda entry: entry.name)
    if not found:
        raise InternalError(
            f"installation: no package offers {_GROUP}; install tvm-ethosu again (pip install)"
        )
    return Hardware(options.target, found[0].load()(options.arch))
