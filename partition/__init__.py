"""Decide which operators the NPU takes and why the others stay; TVM in, NPU graphs out."""

if __name__.partition(".")[0] != "tvm_ethosu":
    raise ImportError(
        f"import tvm_ethosu.partition, not {__name__}: the folder name is not the package"
    )

from tvm_ethosu.partition.options import EthosUOptions
from tvm_ethosu.partition.relay.explain import explain_partition
from tvm_ethosu.partition.relay.partition import partition_for_ethosu
from tvm_ethosu.partition.relay.used_memory import analyze_used_memory, annotate_used_memory
from tvm_ethosu.partition.report import Decision, Rejection

__all__ = [
    "Decision",
    "EthosUOptions",
    "Rejection",
    "analyze_used_memory",
    "annotate_used_memory",
    "explain_partition",
    "partition_for_ethosu",
]
