"""How the extension modules of pyproject.toml are built: in parts, one for each process, or not again."""

from __future__ import annotations

import os
import warnings

from setuptools import setup
from setuptools.command.build_ext import build_ext


class BuildPart(build_ext):
    """Builds every IPCBUS_BUILD_PARTS-th module from number IPCBUS_BUILD_PART on; all without these variables."""

    def initialize_options(self) -> None:
        """Takes the part of the modules; what is built after it looks at them all."""
        super().initialize_options()
        part = int(os.environ.get("IPCBUS_BUILD_PART", "0"))
        parts = int(os.environ.get("IPCBUS_BUILD_PARTS", "1"))
        modules = self.distribution.ext_modules = (self.distribution.ext_modules or [])[part::parts]
        if "CFLAGS" not in os.environ:
            # By default Python adds debugging information: eight times the size, and a fifth of the time to compile.
            for module in modules:
                module.extra_compile_args = [*(module.extra_compile_args or []), "-g0"]
        # No module relies on the interpreter's lock (docs/decisions/0044): importing one leaves it off.
        self.cython_directives = {"freethreading_compatible": True}

    def run(self) -> None:
        """Builds them, unless an editable install finds them built: setuptools would compile all of them again."""
        if not (self.editable_mode and os.environ.get("IPCBUS_IS_COMPILED")):
            super().run()


warnings.filterwarnings("ignore", ".*experimental")  # [tool.setuptools.ext-modules] is young
setup(cmdclass={"build_ext": BuildPart})
