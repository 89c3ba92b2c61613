"""Commands to typed operations: the register state and its interpretation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from tvm_ethosu.backend.sim.accelerator import Accelerator
from tvm_ethosu.backend.sim.errors import DecodeError
from tvm_ethosu.backend.sim.geometry import Axis, horizontal, vertical
from tvm_ethosu.backend.sim.limits import MAX_OPERATIONS, check_work
from tvm_ethosu.backend.sim.operations import (
    Activation,
    AnyOperation,
    Block,
    ByteRange,
    Conv,
    CoreParameters,
    Depthwise,
    Dma,
    DmaEnd,
    DmaWait,
    ElementType,
    Elementwise,
    ElementwiseMode,
    FeatureMap,
    Function,
    Irq,
    Kernel,
    KernelWait,
    Layout,
    Padding,
    PmuMask,
    Pool,
    PoolMode,
    Rounding,
    Scale,
    ScaleMode,
    Shape,
    Stop,
    Stream,
    Upscale,
)
from tvm_ethosu.backend.sim.registers import BY_NAME, Role
from tvm_ethosu.backend.sim.words import Command, Words, read_commands

_TYPES: Final = {
    (8, 0): ElementType.U8,
    (8, 1): ElementType.S8,
    (16, 0): ElementType.U16,
    (16, 1): ElementType.S16,
    (32, 0): ElementType.U32,
    (32, 1): ElementType.S32,
}
_LARGEST_NARROW_SCALE: Final = 0xFFFF


def decode(words: Words, accelerator: Accelerator) -> Stream:
    """Decode a command stream for ``accelerator``.

    Raises DecodeError with the offset of the word at fault, LimitError for too many operations.
    """
    state: dict[str, int] = {}
    registers: _Registers | None = None
    operations: list[AnyOperation] = []
    word_count = 0
    for command in read_commands(words, accelerator):
        word_count = command.offset + 1 + command.register.space.value
        if command.register.role is Role.SET:
            state[command.register.name] = command.value
            registers = None
            continue
        check_work(len(operations) + 1, MAX_OPERATIONS, "the stream has {} operations or more")
        if registers is None:
            registers = _Registers(MappingProxyType(dict(state)))
        operations.append(_operation(command, registers, accelerator))
    return Stream(accelerator, tuple(operations), word_count)


def _operation(command: Command, registers: _Registers, accelerator: Accelerator) -> AnyOperation:
    name = command.register.name
    try:
        return _BUILDERS[name](command, registers, accelerator)
    except DecodeError as error:
        raise error.at(command.offset, name) from None


class _Registers:
    """Read access to the register state; a register that was never set is an error."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> int:
        value = self.values.get(name)
        if value is None:
            raise DecodeError(f"{name} was never set")
        return value

    def field(self, name: str, field: str) -> int:
        """Return one bit field of a register."""
        value = self[name]
        for part in BY_NAME[name].fields:
            if part.name == field:
                return part.extract(value)
        raise KeyError(field)

    def optional(self, name: str) -> int | None:
        """Return a register, or ``None`` when it was never set."""
        return self.values.get(name)


def _element_type(registers: _Registers, name: str) -> ElementType:
    bits = 8 << registers.field(name, "bits")
    return _TYPES[bits, registers.field(name, "signed")]


def _feature_map(registers: _Registers, prefix: str, shape: Shape) -> FeatureMap:
    precision = f"{prefix}_PRECISION"
    nhwc = registers.field(precision, "layout") == Layout.NHWC.value
    optional = registers.optional
    return FeatureMap(
        name=prefix,
        region=registers[f"{prefix}_REGION"],
        bases=(
            registers[f"{prefix}_BASE0"],
            optional(f"{prefix}_BASE1"),
            optional(f"{prefix}_BASE2"),
            optional(f"{prefix}_BASE3"),
        ),
        stride_y=registers[f"{prefix}_STRIDE_Y"],
        stride_x=registers[f"{prefix}_STRIDE_X"] if nhwc else 0,
        stride_c=0 if nhwc else registers[f"{prefix}_STRIDE_C"],
        height0=registers[f"{prefix}_HEIGHT0_M1"] + 1,
        height1=registers[f"{prefix}_HEIGHT1_M1"] + 1,
        width0=registers[f"{prefix}_WIDTH0_M1"] + 1,
        shape=shape,
        type=_element_type(registers, precision),
        layout=Layout.NHWC if nhwc else Layout.NHCWB16,
        zero_point=registers[f"{prefix}_ZERO_POINT"],
    )


def _kernel(registers: _Registers) -> Kernel:
    def part(name: str) -> int:
        return registers.field("KERNEL_STRIDE", name)

    dilation_y, dilation_x = part("dilation_y") + 1, part("dilation_x") + 1
    height_m1, width_m1 = registers["KERNEL_HEIGHT_M1"], registers["KERNEL_WIDTH_M1"]
    if height_m1 % dilation_y or width_m1 % dilation_x:
        raise DecodeError(
            f"kernel extent {height_m1 + 1}x{width_m1 + 1} does not fit "
            f"dilation {dilation_y}x{dilation_x}"
        )
    return Kernel(
        height=height_m1 // dilation_y + 1,
        width=width_m1 // dilation_x + 1,
        stride_y=(part("y_high") << 1 | part("y_low")) + 1,
        stride_x=(part("x_high") << 1 | part("x_low")) + 1,
        dilation_y=dilation_y,
        dilation_x=dilation_x,
        part_kernel_first=bool(part("part_kernel")),
        decomposition=bool(part("decomposition")),
    )


def _padding(registers: _Registers) -> Padding:
    return Padding(
        top=registers["IFM_PAD_TOP"],
        left=registers["IFM_PAD_LEFT"],
        bottom=registers["IFM_PAD_BOTTOM"],
        right=registers["IFM_PAD_RIGHT"],
    )


def _activation(registers: _Registers) -> Activation:
    code = registers.field("ACTIVATION", "function")
    functions = {0: Function.CLAMP, 3: Function.TANH, 4: Function.SIGMOID}
    return Activation(
        function=functions.get(code, Function.LUT),
        slot=max(code - 16, 0),
        clip_range=registers.field("ACTIVATION", "clip_range"),
        minimum=registers["ACTIVATION_MIN"],
        maximum=registers["ACTIVATION_MAX"],
    )


def _scale(registers: _Registers, name: str) -> Scale:
    value = registers[name]
    return Scale(multiplier=value & 0xFFFFFFFF, shift=value >> 32)


def _ofm_shape(registers: _Registers) -> Shape:
    return Shape(
        registers["OFM_HEIGHT_M1"] + 1, registers["OFM_WIDTH_M1"] + 1, registers["OFM_DEPTH_M1"] + 1
    )


def _ifm_extent(axis: Axis, up: int) -> int:
    """Return the IFM rows (columns) an operation reads; the registers do not state them."""
    if axis.inputs < 1:
        padding = axis.before + axis.after
        raise DecodeError(f"padding of {padding} leaves no input under the kernel")
    return -(-axis.inputs // up)


def _ifm_shape(ofm: Shape, kernel: Kernel, padding: Padding, upscale: Upscale, depth: int) -> Shape:
    up = 1 if upscale is Upscale.NONE else 2
    rows = vertical(ofm, kernel, padding)
    columns = horizontal(ofm, kernel, padding)
    return Shape(_ifm_extent(rows, up), _ifm_extent(columns, up), depth)


class _Common:
    """Fields of a BlockOperation, gathered once for all four kinds."""

    def __init__(
        self, command: Command, registers: _Registers, *, windowed: bool, full_depth: bool
    ) -> None:
        ofm_shape = _ofm_shape(registers)
        self.offset = command.offset
        self.registers = registers.values
        self.kernel = _kernel(registers) if windowed else Kernel()
        self.padding = _padding(registers) if windowed else Padding()
        self.upscale = Upscale(registers.field("IFM_UPSCALE", "mode"))
        stated = registers["IFM_DEPTH_M1"] + 1
        depth = stated if full_depth else ofm_shape.depth
        upscale = self.upscale if windowed else Upscale.NONE
        ifm_shape = _ifm_shape(ofm_shape, self.kernel, self.padding, upscale, depth)
        self.ifm = _feature_map(registers, "IFM", ifm_shape)
        self.ofm = _feature_map(registers, "OFM", ofm_shape)
        self.activation = _activation(registers)
        self.rounding = Rounding(registers.field("OFM_PRECISION", "rounding"))
        is_global = registers.field("OFM_PRECISION", "global_scale")
        self.global_scale = _scale(registers, "OFM_SCALE") if is_global else None
        self.block = Block(
            registers["OFM_BLK_HEIGHT_M1"] + 1,
            registers["OFM_BLK_WIDTH_M1"] + 1,
            registers["OFM_BLK_DEPTH_M1"] + 1,
        )
        self.blockdep = registers["BLOCKDEP"]
        self.acc_format = registers["ACC_FORMAT"]
        self.ifm_rounding = Rounding(registers.field("IFM_PRECISION", "rounding"))


def _parameters(
    registers: _Registers, accelerator: Accelerator, common: _Common
) -> tuple[CoreParameters, ...]:
    cores = accelerator.cores
    if accelerator.is_u65 and registers["PARALLEL_MODE"] + 1 != cores:
        raise DecodeError(
            f"PARALLEL_MODE asks for {registers['PARALLEL_MODE'] + 1} cores, "
            f"{accelerator.value} is described with {cores}"
        )
    active = min(cores, common.ofm.shape.depth)
    return tuple(
        _core_parameters(registers, suffix, per_channel=common.global_scale is None)
        for suffix in ("", "1")[:active]
    )


def _core_parameters(registers: _Registers, suffix: str, *, per_channel: bool) -> CoreParameters:
    def byte_range(name: str) -> ByteRange:
        start = registers[f"{name}{suffix}_BASE"]
        length = registers[f"{name}{suffix}_LENGTH"]
        return ByteRange(registers[f"{name}_REGION"], start, start + length)

    return CoreParameters(byte_range("WEIGHT"), byte_range("SCALE") if per_channel else None)


def _build_conv(command: Command, registers: _Registers, accelerator: Accelerator) -> AnyOperation:
    common = _Common(command, registers, windowed=True, full_depth=True)
    return Conv(**vars(common), parameters=_parameters(registers, accelerator, common))


def _build_depthwise(
    command: Command, registers: _Registers, accelerator: Accelerator
) -> AnyOperation:
    common = _Common(command, registers, windowed=True, full_depth=False)
    return Depthwise(**vars(common), parameters=_parameters(registers, accelerator, common))


def _build_pool(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    mode = PoolMode(command.value)
    full_depth = mode is PoolMode.REDUCE_SUM
    common = _Common(command, registers, windowed=True, full_depth=full_depth)
    return Pool(**vars(common), mode=mode)


def _build_elementwise(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    mode = ElementwiseMode(command.value)
    common = _Common(command, registers, windowed=False, full_depth=False)
    scaled = mode in (ElementwiseMode.ADD, ElementwiseMode.SUB) and common.ifm.type.bits < 32
    unary = mode.is_unary
    scale_mode = ScaleMode(registers.field("IFM_PRECISION", "scale_mode"))
    opa_scale = _scale(registers, "OPA_SCALE") if scaled else Scale(1, 0)
    both = scaled and scale_mode is ScaleMode.BOTH_16
    if both and opa_scale.multiplier > _LARGEST_NARROW_SCALE:
        raise DecodeError(f"OPA_SCALE {opa_scale.multiplier} has more than the 16 bits of its mode")
    return Elementwise(
        **vars(common),
        mode=mode,
        ifm2=None if unary else _ifm2(registers, common.ofm.shape),
        ifm2_zero_point=0 if unary else registers["IFM2_ZERO_POINT"],
        ifm2_type=None if unary else _element_type(registers, "IFM2_PRECISION"),
        scalar=None if unary else _scalar(registers),
        reversed=not unary and bool(registers.field("IFM2_BROADCAST", "reversed")),
        scale_mode=scale_mode,
        opa_scale=opa_scale,
        opb_scale=registers["OPB_SCALE"] if both else 1,
    )


def _ifm2(registers: _Registers, ofm: Shape) -> FeatureMap | None:
    def broadcast(name: str) -> bool:
        return bool(registers.field("IFM2_BROADCAST", name))

    if broadcast("scalar"):
        return None
    shape = Shape(
        1 if broadcast("height") else ofm.height,
        1 if broadcast("width") else ofm.width,
        1 if broadcast("depth") else ofm.depth,
    )
    return _feature_map(registers, "IFM2", shape)


def _scalar(registers: _Registers) -> int | None:
    if not registers.field("IFM2_BROADCAST", "scalar"):
        return None
    value = registers["IFM2_SCALAR"]
    signed = registers.field("IFM2_PRECISION", "signed")
    return value - 0x10000 if signed and value & 0x8000 else value


def _build_dma(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    def end(name: str) -> DmaEnd:
        register = f"DMA0_{name}_REGION"
        return DmaEnd(
            region=registers.field(register, "region"),
            internal=bool(registers.field(register, "internal")),
            stride_mode=registers.field(register, "stride_mode"),
            address=registers[f"DMA0_{name}"],
        )

    source, destination = end("SRC"), end("DST")
    mode = max(source.stride_mode, destination.stride_mode)
    return Dma(
        offset=command.offset,
        registers=registers.values,
        source=source,
        destination=destination,
        length=registers["DMA0_LEN"],
        rows=registers["DMA0_SIZE0"] if mode >= 1 else 1,
        planes=registers["DMA0_SIZE1"] if mode >= 2 else 1,
        skip_rows=registers["DMA0_SKIP0"] if mode >= 1 else 0,
        skip_planes=registers["DMA0_SKIP1"] if mode >= 2 else 0,
    )


def _build_dma_wait(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    return DmaWait(command.offset, registers.values, command.value)


def _build_kernel_wait(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    return KernelWait(command.offset, registers.values, command.value)


def _build_irq(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    return Irq(command.offset, registers.values, command.value)


def _build_pmu_mask(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    return PmuMask(command.offset, registers.values, command.value)


def _build_stop(command: Command, registers: _Registers, _: Accelerator) -> AnyOperation:
    return Stop(command.offset, registers.values, command.value)


_Builder = Callable[[Command, _Registers, Accelerator], AnyOperation]
_BUILDERS: Final[Mapping[str, _Builder]] = MappingProxyType(
    {
        "CONV": _build_conv,
        "DEPTHWISE": _build_depthwise,
        "POOL": _build_pool,
        "ELEMENTWISE": _build_elementwise,
        "DMA_START": _build_dma,
        "DMA_WAIT": _build_dma_wait,
        "KERNEL_WAIT": _build_kernel_wait,
        "IRQ": _build_irq,
        "PMU_MASK": _build_pmu_mask,
        "STOP": _build_stop,
    }
)
