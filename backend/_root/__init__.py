"""An Apache TVM code generator for Arm Ethos-U microNPUs.

The three packages follow the way of the data: ``tvm_ethosu.partition`` decides what the NPU
takes, ``tvm_ethosu.scheduler`` plans it for the memory there is, ``tvm_ethosu.backend`` turns
the plan into bytes and runs them.

PYTEST_DONT_REWRITE: Python's start imports this for ``tvmc_hook``, earlier than pytest would like.
"""

__version__ = "0.1.0"
