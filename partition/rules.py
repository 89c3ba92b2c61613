"""The table of operators: one row says what matches, what is refused, how it is realised.

To add an operator, add a row (docs/adding-an-operator.md). Rows stand in the order in which the
partitioner tries them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import relay
from tvm.relay.dataflow_pattern import DFPattern

from tvm_ethosu.partition import constraints as c
from tvm_ethosu.partition.arg_max import ARG_MAX_CONSTRAINTS, lower_arg_max
from tvm_ethosu.partition.arithmetic import lower_arithmetic, product_scales_fit
from tvm_ethosu.partition.bilinear import BILINEAR_CONSTRAINTS, lower_bilinear
from tvm_ethosu.partition.composed import (
    lower_prelu,
    lower_squared_difference,
    operands_are_signed,
    prelu_factors_fit,
    slopes_are_broadcast,
    square_factor_fits,
)
from tvm_ethosu.partition.curves import CURVE_CONSTRAINTS, lower_curve
from tvm_ethosu.partition.lower import (
    Lowered,
    lower_add,
    lower_conv,
    lower_pool,
    lower_requantize,
)
from tvm_ethosu.partition.matmul import MATMUL_CONSTRAINTS, lower_matmul
from tvm_ethosu.partition.moves import MOVE_CONSTRAINTS, lower_move
from tvm_ethosu.partition.params import ConvParams, OpParams
from tvm_ethosu.partition.reductions import REDUCTION_CONSTRAINTS, lower_reduction
from tvm_ethosu.partition.relay import islands, movement, own_islands, parse, patterns
from tvm_ethosu.partition.report import Rejection
from tvm_ethosu.partition.requantize import REQUANTIZE_CONSTRAINTS, lower_any_requantize
from tvm_ethosu.partition.softmax import SOFTMAX_CONSTRAINTS, lower_softmax
from tvm_ethosu.partition.transposed import lower_transposed, transposed_form_fits
from tvm_ethosu.scheduler.ir import ElementKind

Lower = Callable[[OpParams, str, Sequence[str], str], Lowered]


@dataclass(frozen=True)
class Rule:
    """One operator: ``lower`` is None when it becomes addressing only.

    ``moves_only`` says that it rearranges memory, which is no reason to go to the NPU.

    ``calls`` are the Relay operators without which the pattern can't match; ``kind`` narrows
    convolutions, which share one pattern.
    """

    name: str
    tflite: str
    calls: tuple[str, ...]
    pattern: Callable[[], DFPattern]
    parse: Callable[[relay.Call], OpParams]
    constraints: tuple[c.Constraint, ...]
    lower: Lower | None
    realised_as: str
    kind: str | None = None
    moves_only: bool = False

    @property
    def does_work(self) -> bool:
        """Return whether the NPU computes something, rather than copying it."""
        return self.lower is not None and not self.moves_only

    def applies(self, params: OpParams) -> bool:
        """Return whether the parsed operator is of this row's kind."""
        return self.kind is None or (isinstance(params, ConvParams) and params.kind == self.kind)

    def reject(self, params: OpParams) -> Rejection | None:
        """Return the first constraint that the operator breaks, or None."""
        for constraint in self.constraints:
            rejection = constraint(params)
            if rejection is not None:
                return rejection
        return None


_ANY_SHAPE: tuple[c.Constraint, ...] = (c.types_are_activations,)
_TENSORS: tuple[c.Constraint, ...] = (c.dims_fit, *_ANY_SHAPE)
_SPATIAL: tuple[c.Constraint, ...] = (*_TENSORS, c.layout_is_nhwc, c.batch_is_one, c.strides_fit)
_WEIGHTS: tuple[c.Constraint, ...] = (
    c.types_are_equal,
    c.zero_points_fit,
    c.channels_are_last,
    c.weights_fit,
    c.bias_fits,
    c.accumulator_scale_is_product,
    c.conv_scales_fit,
)
_KERNEL: tuple[c.Constraint, ...] = (
    c.groups_fit,
    c.depth_multiplier_is_one,
    c.dilation_fits,
    c.kernel_fits,
    c.conv_padding_fits,
)
_POOL: tuple[c.Constraint, ...] = (
    *_SPATIAL,
    c.types_are_equal,
    c.pool_window_fits,
    c.pool_padding_fits,
    c.pool_rounds_down,
)

_OPERANDS: tuple[c.Constraint, ...] = (
    *_ANY_SHAPE,
    c.types_are_equal,
    c.operands_have_three_dims,
    c.one_side_broadcasts,
)
_QUANTIZED: tuple[c.Constraint, ...] = (c.scales_are_per_tensor, c.zero_points_fit)
_SUM_SCALES: tuple[c.Constraint, ...] = (*_QUANTIZED, c.add_scales_fit)

_FORM, _PARSER = patterns.arithmetic, parse.parse_arithmetic
_COMPARED = (patterns.comparison, parse.parse_comparison, ())
_ARITHMETIC = (
    (ElementKind.SUB, "SUB", "qnn.subtract", _FORM, _PARSER, _SUM_SCALES, "subtraction"),
    (
        ElementKind.MUL,
        "MUL",
        "qnn.mul",
        _FORM,
        _PARSER,
        (*_QUANTIZED, product_scales_fit),
        "multiplication",
    ),
    (ElementKind.MIN, "MINIMUM", "minimum", *_COMPARED, "minimum"),
    (ElementKind.MAX, "MAXIMUM", "maximum", *_COMPARED, "maximum"),
)

# Several operators on two operands: name, Relay call, pattern, parser, limits, how.
_COMPOSED = (
    (
        "squared_difference",
        "subtract",
        islands.squared_difference,
        islands.parse_squared_difference,
        (square_factor_fits,),
        lower_squared_difference,
        "both inputs in one scale with 32 bits, difference, square, product",
    ),
    (
        "prelu",
        "where",
        own_islands.prelu,
        own_islands.parse_prelu,
        (slopes_are_broadcast, prelu_factors_fit),
        lower_prelu,
        "maximum and minimum with 0, a product of each, their sum",
    ),
)

# Relay call, TFLite's name, pattern if it is not the call with one argument, parser.
_MOVES: tuple[tuple[str, str, Callable[[], DFPattern] | None, Callable[..., OpParams]], ...] = (
    (
        "qnn.concatenate",
        "CONCATENATION",
        movement.quantized_concatenate,
        movement.parse_concatenate,
    ),
    ("concatenate", "PACK", movement.concatenate, movement.parse_concatenate),
    ("nn.pad", "PAD, PADV2", movement.pad, movement.parse_pad),
    ("nn.mirror_pad", "MIRROR_PAD", None, movement.parse_mirror_pad),
    (
        "strided_slice",
        "SLICE, STRIDED_SLICE, SPLIT, SPLIT_V, UNPACK",
        None,
        movement.parse_strided_slice,
    ),
    ("transpose", "TRANSPOSE", None, movement.parse_transpose),
    ("reverse", "REVERSE_V2", None, movement.parse_reverse),
    ("tile", "TILE", None, movement.parse_tile),
    ("take", "GATHER", movement.gather, movement.parse_gather),
    ("nn.depth_to_space", "DEPTH_TO_SPACE", None, movement.parse_depth_to_space),
    ("nn.space_to_depth", "SPACE_TO_DEPTH", None, movement.parse_space_to_depth),
    (
        "image.resize2d",
        "RESIZE_NEAREST_NEIGHBOR",
        movement.resize_nearest,
        movement.parse_resize_nearest,
    ),
)

# Functions that TFLite calculates in float: name, TFLite's, Relay call, pattern, parser, int16.
_BETWEEN = "DEQUANTIZE, {}, QUANTIZE"
_INTERPOLATED = "; int16: one of 512 steps, between which TFLite interpolates too"
_FLOAT_CURVES = (
    *(
        (name, tflite, call, islands.curve(call), islands.parse_curve(name), "")
        for name, tflite, call in (
            ("float_exp", _BETWEEN.format("EXP"), "exp"),
            ("float_log", _BETWEEN.format("LOG"), "log"),
            ("float_neg", _BETWEEN.format("NEG"), "negative"),
        )
    ),
    *(
        (name, tflite, call, pattern, own_islands.parse_written(name), wide)
        for name, tflite, call, pattern, wide in (
            ("exp", "EXP", "power", own_islands.exp, _INTERPOLATED),
            ("log", "LOG", "log2", own_islands.log, _INTERPOLATED),
            (
                "rsqrt",
                "RSQRT",
                "sqrt",
                own_islands.rsqrt,
                "; int16: 47 operations in 32 bits, five steps of Newton-Raphson",
            ),
            ("elu", "ELU", "where", own_islands.elu, ""),
            ("gelu", "GELU", "erf", own_islands.gelu, ""),
            ("gelu_approximate", "GELU (approximate)", "tanh", own_islands.gelu_approximate, ""),
        )
    ),
)

# TFLite's name, kind of convolution, name of the row.
_CONVS = (("CONV_2D", "conv2d", "conv2d"), ("DEPTHWISE_CONV_2D", "depthwise", "depthwise_conv2d"))

RULES: tuple[Rule, ...] = (
    *(
        Rule(
            f"ethos-u.padded_{name}",
            f"PAD with {tflite}",
            ("qnn.conv2d", "qnn.requantize"),
            patterns.padded_conv2d,
            parse.parse_padded_conv,
            (*_SPATIAL, *_KERNEL, *_WEIGHTS, c.pad_can_be_folded),
            lower_conv,
            "padding of the convolution",
            kind=kind,
        )
        for tflite, kind, name in _CONVS
    ),
    Rule(
        "ethos-u.conv2d",
        "CONV_2D",
        ("qnn.conv2d", "qnn.requantize"),
        patterns.conv2d,
        parse.parse_conv,
        (*_SPATIAL, *_KERNEL, *_WEIGHTS),
        lower_conv,
        "convolution",
        kind="conv2d",
    ),
    Rule(
        "ethos-u.depthwise_conv2d",
        "DEPTHWISE_CONV_2D",
        ("qnn.conv2d", "qnn.requantize"),
        patterns.conv2d,
        parse.parse_conv,
        (*_SPATIAL, *_KERNEL, *_WEIGHTS),
        lower_conv,
        "depthwise convolution",
        kind="depthwise",
    ),
    Rule(
        "ethos-u.conv2d_transpose",
        "TRANSPOSE_CONV",
        ("qnn.conv2d_transpose", "qnn.requantize"),
        patterns.transposed_conv2d,
        parse.parse_transposed_conv,
        (
            *_TENSORS,
            c.layout_is_nhwc,
            c.batch_is_one,
            transposed_form_fits,
            c.kernel_fits,
            *_WEIGHTS,
        ),
        lower_transposed,
        "a convolution for each phase of the stride, side by side as channels, and copies",
    ),
    Rule(
        "ethos-u.dense",
        "FULLY_CONNECTED",
        ("qnn.dense", "qnn.requantize"),
        patterns.dense,
        parse.parse_dense,
        (*_TENSORS, *_WEIGHTS),
        lower_conv,
        "1x1 convolution over the batch as a row",
    ),
    *(
        Rule(
            f"ethos-u.{name}",
            tflite,
            (call, "qnn.requantize"),
            patterns.matmul(call),
            parse.parse_matmul,
            (*_TENSORS, *MATMUL_CONSTRAINTS),
            lower_matmul,
            "products of all rows with all columns in 32 bits, and their sums",
        )
        for name, tflite, call in (
            ("batch_matmul", "BATCH_MATMUL", "qnn.batch_matmul"),
            ("matmul", "FULLY_CONNECTED with calculated weights", "qnn.dense"),
        )
    ),
    Rule(
        "ethos-u.avg_pool2d",
        "AVERAGE_POOL_2D",
        ("nn.avg_pool2d",),
        patterns.average_pool,
        parse.parse_average_pool,
        (*_POOL, c.pool_counts_valid_elements, c.average_sums_int32),
        lower_pool,
        "average pooling",
    ),
    Rule(
        "ethos-u.max_pool2d",
        "MAX_POOL_2D",
        ("nn.max_pool2d",),
        patterns.max_pool,
        parse.parse_max_pool,
        _POOL,
        lower_pool,
        "maximum pooling",
    ),
    Rule(
        "ethos-u.add",
        "ADD",
        ("qnn.add",),
        patterns.add,
        parse.parse_add,
        (*_OPERANDS, *_SUM_SCALES),
        lower_add,
        "element-wise addition",
    ),
    *(
        Rule(
            f"ethos-u.{kind.value}",
            tflite,
            (call,),
            form(call),
            parser(kind),
            (*_OPERANDS, *limits),
            lower_arithmetic,
            realised_as,
        )
        for kind, tflite, call, form, parser, limits, realised_as in _ARITHMETIC
    ),
    *(
        Rule(
            f"ethos-u.reduce_{name}",
            tflite,
            (name, "qnn.requantize"),
            partial(patterns.reduction, name),
            parse.parse_reduction,
            (
                *_TENSORS,
                c.types_are_equal,
                *REDUCTION_CONSTRAINTS,
            ),
            lower_reduction,
            realised,
        )
        for name, tflite, realised in (
            ("mean", "MEAN", "convolution with weights of 1"),
            ("sum", "SUM", "convolution with weights of 1"),
            ("max", "REDUCE_MAX", "maximum pooling"),
            ("min", "REDUCE_MIN", "maximum pooling of values turned round"),
        )
    ),
    Rule(
        "ethos-u.arg_max",
        "ARG_MAX",
        ("argmax",),
        patterns.arg_max,
        parse.parse_arg_max,
        ARG_MAX_CONSTRAINTS,
        lower_arg_max,
        "maximum of values and positions in 16 bits, and the position taken out of it",
    ),
    Rule(
        "ethos-u.requantize",
        "QUANTIZE",
        ("qnn.requantize",),
        patterns.requantize,
        parse.parse_requantize,
        REQUANTIZE_CONSTRAINTS,
        lower_any_requantize,
        "1x1 average pooling with a scale; a product of 32 bits from and to int32",
    ),
    Rule(
        "ethos-u.softmax",
        "SOFTMAX",
        ("nn.softmax", "qnn.dequantize", "qnn.quantize"),
        islands.softmax,
        islands.parse_softmax,
        SOFTMAX_CONSTRAINTS,
        lower_softmax,
        "29 operations in 32 bits: maximum, table of exp, sum, Newton-Raphson, product; int16: 13 "
        "operations with interpolated tables of exp and 1/(1 + x)",
    ),
    *(
        Rule(
            f"ethos-u.{name}",
            name.upper(),
            (call, "qnn.dequantize", "qnn.quantize"),
            pattern,
            parser,
            (
                c.is_quantized,
                *_ANY_SHAPE,
                c.types_are_equal,
                operands_are_signed,
                c.operands_have_three_dims,
                c.one_side_broadcasts,
                *_QUANTIZED,
                *limits,
            ),
            lower,
            realised,
        )
        for name, call, pattern, parser, limits, lower, realised in _COMPOSED
    ),
    Rule(
        "ethos-u.resize_bilinear",
        "RESIZE_BILINEAR",
        ("image.resize2d", "qnn.dequantize", "qnn.quantize"),
        islands.resize_bilinear,
        islands.parse_resize_bilinear,
        BILINEAR_CONSTRAINTS,
        lower_bilinear,
        "copies that repeat elements, and a depthwise convolution that blends them",
    ),
    Rule(
        "ethos-u.clip",
        "RELU, RELU6, RELU_N1_TO_1",
        ("clip",),
        patterns.clip,
        parse.parse_clip,
        (*_ANY_SHAPE, c.types_are_equal, c.elementwise_extents_fit, c.limits_stand_alone),
        lower_requantize,
        "copy with limits",
    ),
    *(
        Rule(
            f"ethos-u.{name}",
            name.upper(),
            (call, "qnn.dequantize", "qnn.quantize"),
            islands.curve(call),
            islands.parse_curve(name),
            CURVE_CONSTRAINTS,
            lower_curve,
            f"table of all 256 results; int16: {wide}",
        )
        for name, call, wide in (
            ("logistic", "sigmoid", "the NPU's own sigmoid"),
            ("tanh", "tanh", "the NPU's own tanh"),
            (
                "leaky_relu",
                "nn.leaky_relu",
                "the NPU's own, with different scales the larger of two products",
            ),
            ("abs", "abs", "absolute value with a factor"),
        )
    ),
    *(
        Rule(
            f"ethos-u.{name}",
            tflite,
            (call, "qnn.dequantize", "qnn.quantize"),
            pattern,
            parser,
            CURVE_CONSTRAINTS,
            lower_curve,
            "table of all 256 results" + wide,
        )
        for name, tflite, call, pattern, parser, wide in _FLOAT_CURVES
    ),
    Rule(
        "ethos-u.hard_swish",
        "HARD_SWISH",
        ("divide", "multiply", "add", "qnn.dequantize", "qnn.quantize"),
        islands.hard_swish,
        islands.parse_hard_swish,
        CURVE_CONSTRAINTS,
        lower_curve,
        "table of all 256 results",
    ),
    *(
        Rule(
            f"ethos-u.{name}",
            tflite,
            (name,),
            pattern,
            parse.parse_reshape,
            (*_ANY_SHAPE, c.types_are_equal, c.reshape_keeps_elements, c.elementwise_extents_fit),
            None,
            "addressing, no work",
        )
        for name, tflite, pattern in (
            ("reshape", "RESHAPE", patterns.reshape),
            ("squeeze", "SQUEEZE", patterns.squeeze),
            ("expand_dims", "EXPAND_DIMS", patterns.expand_dims),
        )
    ),
    *(
        Rule(
            f"ethos-u.{call}",
            tflite,
            (call,),
            pattern or movement.one_input(call),
            parser,
            (*_TENSORS, *MOVE_CONSTRAINTS),
            lower_move,
            "copies of boxes",
            moves_only=True,
        )
        for call, tflite, pattern, parser in _MOVES
    ),
)


def find_rule(name: str) -> Rule:
    """Return the row of that name; there is always one for a composite we made."""
    return next(rule for rule in RULES if rule.name == name)
