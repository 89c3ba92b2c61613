"""Bytes, Vela, C, and the ways in: importing this package registers the code generator with TVM."""

if __name__.partition(".")[0] != "tvm_ethosu":
    raise ImportError(
        f"import tvm_ethosu.backend, not {__name__}: the folder name is not the package"
    )

from tvm_ethosu.backend.register import register

register()
