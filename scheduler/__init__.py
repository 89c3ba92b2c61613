"""Plan an NPU graph for the memory it may use; pure Python and numpy, no TVM and no Vela."""

if __name__.partition(".")[0] != "tvm_ethosu":
    raise ImportError(
        f"import tvm_ethosu.scheduler, not {__name__}: the folder name is not the package"
    )
