"""Adds one file to wheels and editable installs: ``tvm_ethosu.pth``, at the top of site-packages.

Python runs it at its start, and it imports ``tvm_ethosu.tvmc_hook``, so that TVM's ``tvmc`` knows
the target. All else is in pyproject.toml, which has no way to say this.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

NAME = "tvm_ethosu.pth"
# The package may be gone or be another one's: then no start of Python says a word.
LINE = "import sys; exec('try: import tvm_ethosu.tvmc_hook\\nexcept ImportError: pass')\n"


class BuildWithPth(build_py):
    """Builds the package, and puts the file where the wheel takes it from."""

    def run(self) -> None:
        """Build, then write the file."""
        super().run()
        # An editable wheel is made of what is "installed" into it, any other of what is built.
        folder = self.build_lib
        if self.editable_mode:
            folder = self.get_finalized_command("install").install_lib
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / NAME).write_text(LINE)


setup(cmdclass={"build_py": BuildWithPth})
