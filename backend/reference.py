"""TFLite Micro as the reference for numbers: outputs and inner tensors of a quantized network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_ethosu.backend.tflm import TflmError, TflmNetwork
from tvm_ethosu.partition.tflite_file import TfliteFile, TfliteTensor, parse_tflite
from tvm_ethosu.scheduler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[Any]

_OUTPUTS_SLOT = 8  # of the field SubGraph.outputs in its vtable


def expose_tensors(data: bytes, tensors: Sequence[str | int]) -> bytes:
    """Return a copy of a TFLite file with these inner tensors as further outputs, in this order.

    ``tensors`` holds names or indices. Nothing else changes: a longer list of outputs is put
    behind the file, and the one offset that leads to the list is bent. A tensor that is an output
    already is not added again.

    Raises:
        UserError: a tensor does not exist, or is an input or a constant.
    """
    file = parse_tflite(data)
    outputs = list(file.outputs)
    for index in _resolve(file, tensors):
        if file.tensors[index].is_constant or index in file.inputs:
            raise UserError(
                f"tensor {file.tensors[index].name!r} is no result of an operator: "
                "it cannot be made an output"
            )
        if index not in outputs:
            outputs.append(index)
    return _with_outputs(data, outputs)


class Reference:
    """A network in TFLite Micro's interpreter, prepared once, to be run on many inputs."""

    def __init__(self, data: bytes, tensors: Sequence[str | int] = ()) -> None:
        """Prepare the network of ``data``; ``tensors`` (names or indices) are to be seen too.

        Raises:
            UserError: the file is damaged, TFLite Micro is not installed, lacks an operator,
                refuses the network, or crashes on it.
        """
        file = parse_tflite(data)
        self._inputs = tuple(file.tensors[index] for index in file.inputs)
        inner = _resolve(file, tensors)
        exposed = expose_tensors(data, [index for index in inner if index not in file.inputs])
        outputs = parse_tflite(exposed).outputs
        wanted = (*file.outputs, *inner)
        # Per result: its place among the interpreter's outputs, or None for an input's index.
        self._sources = tuple(
            (True, outputs.index(index)) if index in outputs else (False, file.inputs.index(index))
            for index in wanted
        )
        try:
            self._network = TflmNetwork(exposed, len(outputs))
        except TflmError as error:
            raise UserError(f"TFLite Micro does not take the network: {error}") from None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the network's outputs, then the inner tensors asked for, in their order.

        ``inputs`` are arrays of the shapes and dtypes that the network states. Each run starts
        from the network's first state, also when it has variables.

        Raises:
            UserError: an input does not fit the network, an operator fails, or crashes.
        """
        self._check(inputs)
        try:
            outputs = self._network.run(inputs)
        except TflmError as error:
            raise UserError(f"TFLite Micro cannot run the network: {error}") from None
        return [
            outputs[index] if is_output else np.array(inputs[index])
            for is_output, index in self._sources
        ]

    def _check(self, inputs: Sequence[Array]) -> None:
        if len(inputs) != len(self._inputs):
            raise UserError(f"the network takes {len(self._inputs)} inputs (got {len(inputs)})")
        for array, tensor in zip(inputs, self._inputs, strict=True):
            if array.shape != tensor.shape or array.dtype.name != tensor.dtype:
                raise UserError(
                    f"input {tensor.name!r} is {tensor.dtype} of shape {list(tensor.shape)} "
                    f"(got {array.dtype.name} of shape {list(array.shape)})"
                )


def run_reference(
    data: bytes, inputs: Sequence[Array], tensors: Sequence[str | int] = ()
) -> list[Array]:
    """Run a network once; as Reference(data, tensors).run(inputs)."""
    return Reference(data, tensors).run(inputs)


def _resolve(file: TfliteFile, tensors: Sequence[str | int]) -> tuple[int, ...]:
    names = {tensor.name: tensor.index for tensor in file.tensors}
    indices = []
    for key in tensors:
        index = names.get(key, -1) if isinstance(key, str) else key
        if not 0 <= index < len(file.tensors):
            raise UserError(f"no such tensor (got {key!r}, the network has {len(file.tensors)})")
        indices.append(_computed(file.tensors[index]).index)
    return tuple(indices)


def _computed(tensor: TfliteTensor) -> TfliteTensor:
    if tensor.is_constant:
        raise UserError(f"tensor {tensor.name!r} is a constant: it is no result to look at")
    return tensor


def _with_outputs(data: bytes, outputs: Sequence[int]) -> bytes:
    """Return the file with another list of outputs; the file has been checked before."""
    import tflite  # part of the extras only

    table = tflite.Model.GetRootAs(data).Subgraphs(0)._tab
    field = int(table.Pos + table.Offset(_OUTPUTS_SLOT))
    changed = bytearray(data)
    changed += bytes(-len(changed) % 4)
    changed[field : field + 4] = (len(changed) - field).to_bytes(4, "little")
    changed += len(outputs).to_bytes(4, "little")
    for index in outputs:
        changed += index.to_bytes(4, "little")
    return bytes(changed)
