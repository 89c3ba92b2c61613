"""What operators look like in Relay as TVM's TFLite importer writes it."""

from __future__ import annotations

from collections.abc import Callable

from tvm.relay.dataflow_pattern import DFPattern, is_constant, is_op, wildcard


def _constants(count: int) -> list[DFPattern]:
    return [is_constant() for _ in range(count)]


def _clipped(pattern: DFPattern) -> DFPattern:
    return pattern.optional(is_op("clip"))


def _accumulated(main: DFPattern) -> DFPattern:
    """Return ``main`` with an optional bias, requantised and optionally clipped."""
    biased = main.optional(lambda x: is_op("nn.bias_add")(x, is_constant()))
    return _clipped(is_op("qnn.requantize")(biased, *_constants(4)))


def conv2d() -> DFPattern:
    """Return ``qnn.conv2d [bias_add] requantize [clip]``, depthwise or not."""
    return _accumulated(is_op("qnn.conv2d")(wildcard(), *_constants(5)))


def padded_conv2d() -> DFPattern:
    """Return ``pad qnn.conv2d [bias_add] requantize [clip]``, depthwise or not."""
    padded = is_op("nn.pad")(wildcard(), is_constant())
    return _accumulated(is_op("qnn.conv2d")(padded, *_constants(5)))


def transposed_conv2d() -> DFPattern:
    """Return ``qnn.conv2d_transpose [bias_add] requantize [clip]``."""
    return _accumulated(is_op("qnn.conv2d_transpose")(wildcard(), *_constants(5)))


def dense() -> DFPattern:
    """Return ``qnn.dense [bias_add] requantize [clip]``."""
    return _accumulated(is_op("qnn.dense")(wildcard(), *_constants(5)))


def matmul(call: str) -> Callable[[], DFPattern]:
    """Return ``call requantize [clip]`` of two matrices that are both calculated."""
    product = is_op(call)(wildcard(), wildcard(), *_constants(4))
    return lambda: _clipped(is_op("qnn.requantize")(product, *_constants(4)))


def average_pool() -> DFPattern:
    """Return ``cast avg_pool2d cast [clip]``: the importer averages in int32."""
    widened = is_op("cast")(wildcard())
    return _clipped(is_op("cast")(is_op("nn.avg_pool2d")(widened)))


def max_pool() -> DFPattern:
    """Return ``max_pool2d [clip]``."""
    return _clipped(is_op("nn.max_pool2d")(wildcard()))


def add() -> DFPattern:
    """Return ``qnn.add [clip]``."""
    return _clipped(is_op("qnn.add")(wildcard(), wildcard(), *_constants(6)))


def arithmetic(call: str) -> Callable[[], DFPattern]:
    """Return the pattern ``call [clip]`` of a quantised operator of two operands."""
    return lambda: _clipped(is_op(call)(wildcard(), wildcard(), *_constants(6)))


def comparison(call: str) -> Callable[[], DFPattern]:
    """Return the pattern ``call`` of an operator of two operands of one quantisation."""
    return lambda: is_op(call)(wildcard(), wildcard())


def clip() -> DFPattern:
    """Return ``clip``."""
    return is_op("clip")(wildcard())


def requantize() -> DFPattern:
    """Return ``requantize [clip]``."""
    return _clipped(is_op("qnn.requantize")(wildcard(), *_constants(4)))


def reduction(name: str) -> DFPattern:
    """Return ``cast mean requantize [clip]``, or with another reduction."""
    reduced = is_op(name)(is_op("cast")(wildcard()))
    return _clipped(is_op("qnn.requantize")(reduced, *_constants(4)))


def arg_max() -> DFPattern:
    """Return ``argmax``."""
    return is_op("argmax")(wildcard())


def reshape() -> DFPattern:
    """Return ``reshape``."""
    return is_op("reshape")(wildcard())


def squeeze() -> DFPattern:
    """Return ``squeeze``."""
    return is_op("squeeze")(wildcard())


def expand_dims() -> DFPattern:
    """Return ``expand_dims``."""
    return is_op("expand_dims")(wildcard())
