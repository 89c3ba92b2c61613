"""What must hold for a TFLite network as a whole: ends, order, fixed shapes, quantization.

Each check raises a UserError, one sentence with names and values, and returns nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm_ethosu.partition.flatbuffer import Record
    from tvm_ethosu.partition.tflite_file import TfliteFile, TfliteTensor

_VELA_OPERATOR = "CUSTOM ethos-u"


def check_indices(indices: tuple[int, ...], count: int, where: str) -> None:
    """Check that each index is one of ``count`` tensors."""
    for index in indices:
        if not 0 <= index < count:
            raise UserError(f"{where} is no tensor of the file (got {index}, it has {count})")


def check_network(file: TfliteFile, subgraph: Record) -> None:
    """Check all that the module's text promises, the plainest reasons first."""
    _check_not_compiled(file)
    _check_ends(file)
    _check_order(file, _variables(subgraph))
    _check_shapes(file, subgraph)


def _check_not_compiled(file: TfliteFile) -> None:
    if any(operator.name == _VELA_OPERATOR for operator in file.operators):
        raise UserError(
            "Vela has compiled this network for an Ethos-U already: give the network from before"
        )


def _check_ends(file: TfliteFile) -> None:
    for what, indices in (("input", file.inputs), ("output", file.outputs)):
        if not indices:
            raise UserError(f"the network has no {what}s")
        check_indices(indices, len(file.tensors), f"the network's {what}")
    for index, count in Counter(file.inputs).items():
        tensor = file.tensors[index]
        if count > 1:
            raise UserError(f"tensor {tensor.name!r} is listed {count} times as an input")
        if tensor.is_constant:
            raise UserError(f"tensor {tensor.name!r} is an input and a constant at once")


def _check_order(file: TfliteFile, variables: frozenset[int]) -> None:
    """Check that each tensor is written once, and before it is read."""
    ready = {tensor.name for tensor in file.tensors if tensor.is_constant}
    ready |= {file.tensors[index].name for index in (*file.inputs, *variables)}
    for operator in file.operators:
        for name in operator.inputs:
            if name and name not in ready:
                raise UserError(
                    f"{operator} reads tensor {name!r}, which holds no data and which no earlier "
                    "operator writes"
                )
        for name in operator.outputs:
            if name in ready:
                raise UserError(f"{operator} writes tensor {name!r}, which has a value already")
            ready.add(name)
    for index in file.outputs:
        if file.tensors[index].name not in ready:
            raise UserError(
                f"the network's output {file.tensors[index].name!r} is written by no operator"
            )


def _variables(subgraph: Record) -> frozenset[int]:
    return frozenset(
        index
        for index, record in enumerate(subgraph.records("tensors"))
        if record.integer("is_variable")
    )


def _used(file: TfliteFile) -> Iterator[TfliteTensor]:
    """Return the tensors that take part in the network, in the order of the file."""
    names = {name for operator in file.operators for name in operator.inputs + operator.outputs}
    indices = {*file.inputs, *file.outputs}
    return (t for t in file.tensors if t.name in names or t.index in indices)


def _check_shapes(file: TfliteFile, subgraph: Record) -> None:
    records = subgraph.records("tensors")
    for tensor in _used(file):
        record = records[tensor.index]
        if tensor.is_quantized and not tensor.is_constant and not record.has("shape"):
            raise UserError(
                f"tensor {tensor.name!r} has no shape: dynamic shapes are not supported"
            )
        # An entry of -1 stands for a dimension that the caller chooses; the first is the batch,
        # for which the shape says 1.
        signature = record.integers("shape_signature")
        dynamic = [i for i, dim in enumerate(signature) if dim < 0 and i > 0]
        dynamic += [i for i, dim in enumerate(tensor.shape) if dim <= 0]
        if dynamic:
            shown = list(signature or tensor.shape)
            raise UserError(
                f"tensor {tensor.name!r} has a dynamic shape (dimension {dynamic[0]} of {shown}): "
                "convert the network with fixed shapes"
            )


def check_quantized(file: TfliteFile) -> None:
    """Raise a UserError unless at least one operator works on quantized numbers."""
    by_name = {tensor.name: tensor for tensor in file.tensors}
    for operator in file.operators:
        names = (*operator.inputs[:1], *operator.outputs)
        if any(by_name[n].is_quantized and not by_name[n].is_constant for n in names if n):
            return
    floats = (tensor for tensor in _used(file) if tensor.dtype.startswith(("float", "bfloat")))
    tensor = next(floats, file.tensors[file.inputs[0]])
    raise UserError(
        "not a quantized network: no operator works on int8, uint8 or int16 with scales "
        f"(tensor {tensor.name!r} is {tensor.dtype}): quantize it first, for example with "
        "TensorFlow Lite's full integer quantization"
    )
