"""TVM's own command ``tvmc``, told of the target ``ethos-u`` before it reads its arguments.

TVM 0.19 keeps composite targets in one dictionary and loads no extensions, so a row is added to it.
The flags of a target come from a C++ type in TVM, which a Python package can't add; so the two
functions of ``tvmc`` that make and read such flags are wrapped, and pass every other target on.
"""

from __future__ import annotations

import contextlib
import functools
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import tvm
from tvm.driver import tvmc
from tvm.driver.tvmc import TVMCException, compiler, composite_target, frontends, runner
from tvm.driver.tvmc import main as tvmc_main
from tvm.driver.tvmc import target as tvmc_target
from tvm.driver.tvmc.model import TVMCModel, TVMCPackage

import tvm_ethosu.backend  # noqa: F401  (registers the code generator)
from tvm_ethosu.backend.failures import sentence
from tvm_ethosu.backend.mlf import is_mlf, write_mlf
from tvm_ethosu.backend.network import cpu_refusal
from tvm_ethosu.partition import partition_for_ethosu
from tvm_ethosu.partition.options import OPTION_HELP, REPLACED, check_names, parse_size
from tvm_ethosu.partition.relay.frontend import to_relay
from tvm_ethosu.partition.relay.quiet import quiet_tuning_logs
from tvm_ethosu.partition.tflite_file import load_tflite
from tvm_ethosu.scheduler.errors import EthosUError, UserError

NAME = "ethos-u"
FORMATS = ("so", "tar", "mlf")

# What the running compilation has partitioned, for the sentence of what TVM can't compile.
_PARTITIONED: ContextVar[tvm.IRModule | None] = ContextVar("tvm_ethosu_tvmc", default=None)


@contextlib.contextmanager
def _told_by_tvmc() -> Iterator[None]:
    """Turn an error that was foreseen into one that ``tvmc`` tells as a sentence."""
    try:
        yield
    except EthosUError as error:
        raise TVMCException(sentence(error)) from error


def _parse_flag(name: str, options: Mapping[str, Any]) -> bool:
    if str(options[name]) not in ("0", "1"):
        raise UserError(f"target {NAME}: {name} is 0 or 1 (got '{options[name]}')")
    return str(options[name]) == "1"


def partition(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, mod_name: str = "default", **options: Any
) -> tvm.IRModule:
    """Partition a module with options as ``tvmc`` hands them over, which are texts.

    Raises:
        TVMCException: an option is unknown or a value unsuitable, or the network does not fit.
    """
    with _told_by_tvmc():
        check_names(options, f"target {NAME}")
        if "sram_size" in options:
            options["sram_size"] = parse_size(options["sram_size"])
        for flag in ("overwrite_inputs", "share_io"):
            if flag in options:
                options[flag] = _parse_flag(flag, options)
        made = partition_for_ethosu(mod, params, mod_name=mod_name, **options)
    _PARTITIONED.set(made)
    return made


def _add_flags(parser: ArgumentParser) -> None:
    for action in parser._actions:
        if "--output-format" in action.option_strings:
            action.choices = FORMATS
            action.help = "output format: so, tar (objects) or mlf (C sources); so by default"
    group = parser.add_argument_group(f"target {NAME}")
    for name, text in OPTION_HELP.items():
        group.add_argument(f"--target-{NAME}-{name}", help=text)
    for name, text in REPLACED.items():
        group.add_argument(f"--target-{NAME}-{name}", help=f"gone: {text}")


def _read_flags(args: Namespace) -> dict[str, str]:
    values = {
        name: getattr(args, f"target_{NAME.replace('-', '_')}_{name}", None)
        for name in (*OPTION_HELP, *REPLACED)
    }
    return {name: value for name, value in values.items() if value is not None}


def _add_format() -> None:
    """Let models be exported as ``mlf`` beside what TVM 0.19 writes."""
    export = TVMCModel.export_package

    def export_package(
        model: TVMCModel,
        executor_factory: Any,
        package_path: str | None = None,
        cross: Any = None,
        cross_options: str | None = None,
        output_format: str = "so",
    ) -> str:
        if output_format == "mlf":
            with _told_by_tvmc():
                return str(
                    write_mlf(executor_factory, Path(package_path or "module.tar").absolute())
                )
        path = export(model, executor_factory, package_path, cross, cross_options, output_format)
        return str(path)

    TVMCModel.export_package = export_package
    read = TVMCPackage.import_package

    def import_package(package: TVMCPackage, package_path: str) -> None:
        if is_mlf(Path(package_path)):
            # C sources: there is nothing in it that this machine could load.
            package.type, package.lib_path, package.params, package.graph = "mlf", None, None, None
            package.executor_type = "aot"
        else:
            read(package, package_path)

    TVMCPackage.import_package = import_package
    run = runner.run_module

    def run_module(package: TVMCPackage, *arguments: Any, **options: Any) -> Any:
        if package.type == "mlf":
            with _told_by_tvmc():
                raise UserError("tvmc run: mlf archives hold C for firmware (compile with -f so)")
        return run(package, *arguments, **options)

    runner.run_module = tvmc.run = run_module


def _add_importer() -> None:
    """Let TFLite files that TVM's own way of importing fails on be imported as ours are.

    It lacks dense layers with a scale per channel, for one; where ours fails too, it says why.
    """
    load = frontends.TFLiteFrontend.load

    @functools.wraps(load)
    def load_either_way(
        frontend: Any, path: str, shape_dict: Any = None, **options: Any
    ) -> tuple[tvm.IRModule, dict[str, Any]]:
        try:
            mod, params = load(frontend, path, shape_dict, **options)
            return mod, params
        except Exception:
            if shape_dict or options:
                raise
        with _told_by_tvmc():
            return to_relay(load_tflite(path, quantized=False))

    frontends.TFLiteFrontend.load = load_either_way


def _quiet_compile() -> None:
    """Let builds for this target tell our errors as sentences, and look for no tuning logs."""
    compile_model = compiler.compile_model

    @functools.wraps(compile_model)
    def compile_quietly(tvmc_model: TVMCModel, target: Any, *arguments: Any, **options: Any) -> Any:
        if NAME not in str(target):
            return compile_model(tvmc_model, target, *arguments, **options)
        _PARTITIONED.set(None)
        with quiet_tuning_logs(), _told_by_tvmc():
            try:
                return compile_model(tvmc_model, target, *arguments, **options)
            except tvm.TVMError as error:
                module = _PARTITIONED.get()
                if module is None:
                    raise
                raise cpu_refusal(module, error) from None

    compiler.compile_model = tvmc.compile = compile_quietly


def register_tvmc() -> None:
    """Make ``tvmc`` and ``tvm.driver.tvmc`` accept the target; a second call changes nothing."""
    if NAME in composite_target.REGISTERED_CODEGEN:
        return
    composite_target.REGISTERED_CODEGEN[NAME] = {
        "config_key": None,
        "pass_default": False,
        "default_target": None,
        "pass_pipeline": partition,
    }
    generate, reconstruct = (
        tvmc_target._generate_codegen_args,
        tvmc_target._reconstruct_codegen_args,
    )

    def generate_args(parser: ArgumentParser, name: str) -> None:
        if name == NAME:
            _add_flags(parser)
        else:
            generate(parser, name)

    def reconstruct_args(args: Namespace, name: str) -> dict[str, Any]:
        return _read_flags(args) if name == NAME else reconstruct(args, name)

    tvmc_target._generate_codegen_args = generate_args
    tvmc_target._reconstruct_codegen_args = reconstruct_args
    _add_format()
    _add_importer()
    _quiet_compile()


def main() -> None:
    """Run TVM's ``tvmc`` with this target registered; it exits with its own code."""
    register_tvmc()
    tvmc_main.main()


if __name__ == "__main__":
    main()
