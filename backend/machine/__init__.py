"""Machines that run firmware: our own, which every computer has, and Arm's FVP.

``image`` reads the ELF file, ``corstone300`` is the memory map, ``npu`` the NPU's register block on
the simulator, ``unicorn_machine`` the CPU around it, ``fvp`` Arm's executable, ``result`` what
comes out of either.
"""

RUNNABLE = ("unicorn", "fvp")
