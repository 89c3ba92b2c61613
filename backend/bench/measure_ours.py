"""One compilation by this project, judged by the simulator and TFLite Micro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_ethosu.backend import sim
from tvm_ethosu.backend.bench.measure_vela import cycles_of
from tvm_ethosu.backend.bench.results import OWN_LEAST, Case, Point
from tvm_ethosu.backend.check import (
    Checker,
    HostNetwork,
    random_inputs,
    run_once,
)
from tvm_ethosu.backend.host import LoadedProgram, as_bytes, load_program, run_on
from tvm_ethosu.backend.network import (
    FirmwareNetwork,
    build_for_firmware,
    build_for_host,
    partition_file,
)
from tvm_ethosu.backend.reference import Reference
from tvm_ethosu.backend.report import REMOVED, operator_rows
from tvm_ethosu.partition import EthosUOptions
from tvm_ethosu.partition.relay.attrs import FunctionTensors
from tvm_ethosu.partition.relay.tensor_names import function_tensors
from tvm_ethosu.partition.tflite_file import TfliteFile, load_tflite
from tvm_ethosu.scheduler.errors import EthosUError

CHECKED_INPUTS = 3
_SEED = 0


@dataclass(frozen=True)
class Tally:
    """Elements that NPU functions gave, and how many are not the reference's."""

    compared: int
    differing: int


def options_for(case: Case, setting: str, limit_bytes: int | None) -> EthosUOptions:
    """Return our options for a budget.

    Raises:
        UserError: the case asks for what this compiler does not offer.
    """
    return EthosUOptions(
        case.accelerator,
        sram_size=limit_bytes,
        memory_mode=case.memory_mode.value,
        system_config=case.vela_options.system_config,
        optimise="size" if setting == OWN_LEAST else "performance",
        share_io=True,  # as in Vela's arena
    )


def measure_ours(case: Case, setting: str, limit_bytes: int | None) -> Point:
    """Compile a case and return what came out; a refusal is a point too."""
    point = Point("ours", setting, limit_bytes)
    try:
        file = load_tflite(case.model)
        options = options_for(case, setting, limit_bytes)
        module = partition_file(file, options)
        network = build_for_firmware(module, options)
    except EthosUError as error:
        return replace(point, refusal=str(error))
    loaded = {f.name: load_program(f.program) for f in network.functions}
    rows = operator_rows(file, network.decisions)
    point = replace(
        point,
        sram_bytes=network.sram.total_bytes,
        cycles=_cycles(network, loaded, case),
        cpu_operators=sum(row.npu_function is None and row.reason != REMOVED for row in rows),
        npu_live_bytes=max((max(f.used_memory_bytes) for f in network.functions), default=0),
    )
    try:
        tally = compare(file, module, loaded)
    except (EthosUError, sim.SimulationError) as error:
        return replace(point, complaint=str(error))
    return replace(point, compared=tally.compared, differing=tally.differing)


def _cycles(network: FirmwareNetwork, loaded: Mapping[str, LoadedProgram], case: Case) -> float:
    return sum(
        cycles_of(loaded[function.name].streams, case) * len(function.used_memory_bytes)
        for function in network.functions
    )


def compare(file: TfliteFile, module: Any, loaded: Mapping[str, LoadedProgram]) -> Tally:
    """Run the NPU functions on what the reference has at their place, and compare.

    Where an input is no tensor of the file (an operator of which the CPU does a part), the whole
    network is built for this host and run.

    Raises:
        SimulationError: a stream does something that the hardware would not do right.
        UserError: TFLite Micro cannot run the network.
    """
    tensors = function_tensors(module)
    known = {tensor.name for tensor in file.tensors}
    used = [name for f in tensors.values() for name in (*f.inputs, *f.outputs)]
    if all(name in known for name in used):
        return _compare_functions(file, tensors, loaded)
    return _compare_network(HostNetwork(file, build_for_host(module), tensors))


def _compare_functions(
    file: TfliteFile, tensors: Mapping[str, FunctionTensors], loaded: Mapping[str, LoadedProgram]
) -> Tally:
    used = [name for f in tensors.values() for name in (*f.inputs, *f.outputs)]
    names = list(dict.fromkeys(name for name in used if name is not None))
    reference = Reference(file.data, names)
    rng = np.random.default_rng(_SEED)
    compared = differing = 0
    for _ in range(CHECKED_INPUTS):
        arrays = reference.run(random_inputs(file, rng))[len(file.outputs) :]
        expected = dict(zip(names, arrays, strict=True))
        for name, function in tensors.items():
            inputs = [as_bytes(expected[key]) for key in function.inputs if key is not None]
            for key, data in zip(function.outputs, run_on(loaded[name], inputs), strict=True):
                ours = data.view(expected[key].dtype)
                compared += ours.size
                differing += int(np.count_nonzero(ours != expected[key].reshape(-1)))
    return Tally(compared, differing)


def _compare_network(network: HostNetwork) -> Tally:
    checker = Checker(network)
    rng = np.random.default_rng(_SEED)
    for _ in range(CHECKED_INPUTS):
        inputs = random_inputs(network.file, rng)
        checker.add(inputs, run_once(network, inputs))
    judged = [c for c in checker.comparisons() if c.on_npu]
    return Tally(sum(c.elements for c in judged), sum(c.differing for c in judged))
