"""Weight and scale streams against the loops of the description and against Vela's encoder."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from ethosu import mlw_codec
from ethosu.vela.api import NpuAccelerator, NpuBlockTraversal, npu_encode_bias, npu_encode_weights

from tests.backend.sim.assembler import scale_stream, weight_loops, weight_stream
from tvm_ethosu.backend.sim import Accelerator, DecodeError
from tvm_ethosu.backend.sim.operations import Kernel
from tvm_ethosu.backend.sim.weight_stream import check_complete
from tvm_ethosu.backend.sim.weights import WeightOrder, core_order, decode_scales, decode_weights

SHAPES = [(1, 1, 1, 1), (5, 3, 3, 7), (17, 1, 1, 40), (24, 9, 2, 33), (9, 3, 11, 16), (40, 2, 2, 8)]
VELA = {
    Accelerator.U55_32: NpuAccelerator.Ethos_U55_32,
    Accelerator.U55_64: NpuAccelerator.Ethos_U55_64,
    Accelerator.U55_128: NpuAccelerator.Ethos_U55_128,
    Accelerator.U55_256: NpuAccelerator.Ethos_U55_256,
    Accelerator.U65_256: NpuAccelerator.Ethos_U65_256,
    Accelerator.U65_512: NpuAccelerator.Ethos_U65_512,
}


def random_weights(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal(0, 60, shape), -255, 255).astype(np.int16)


def order_of(
    weights: np.ndarray,
    accelerator: Accelerator,
    core: int,
    *,
    block_depth: int,
    part_kernel: bool = False,
    depthwise: bool = False,
    wide_ifm: bool = False,
    dilation: tuple[int, int] = (1, 1),
) -> WeightOrder:
    outputs, height, width, depth = weights.shape
    kernel = Kernel(height, width, 1, 1, *dilation, part_kernel_first=part_kernel)
    return core_order(
        accelerator,
        core,
        shape=(outputs, depth),
        kernel=kernel,
        block_depth=block_depth,
        depthwise=depthwise,
        wide_ifm=wide_ifm,
    )


@pytest.mark.parametrize(
    "accelerator", [Accelerator.U55_32, Accelerator.U55_128, Accelerator.U65_512]
)
@pytest.mark.parametrize("traversal", ["depth", "part", "depthwise"])
@pytest.mark.parametrize("wide_ifm", [False, True])
def test_order_is_inverse_of_the_loops(
    accelerator: Accelerator, traversal: str, wide_ifm: bool
) -> None:
    options = {
        "part_kernel": traversal == "part",
        "depthwise": traversal == "depthwise",
        "wide_ifm": wide_ifm,
    }
    for shape in SHAPES:
        weights = random_weights((*shape[:3], 1 if traversal == "depthwise" else shape[3]))
        for block_depth, dilation in ((8, (1, 1)), (16, (2, 1)), (24, (1, 2))):
            result = np.zeros_like(weights)
            for core in range(min(accelerator.cores, shape[0])):
                loops = weight_loops(
                    weights, accelerator, core, block_depth, dilation=dilation, **options
                )
                order = order_of(
                    weights,
                    accelerator,
                    core,
                    block_depth=block_depth,
                    dilation=dilation,
                    **options,
                )
                result[core :: accelerator.cores] = decode_weights(
                    weight_stream(list(loops)), order
                )
            np.testing.assert_array_equal(result, weights)


@pytest.mark.parametrize("accelerator", Accelerator)
def test_vela_api_encoder(accelerator: Accelerator) -> None:
    weights = random_weights((20, 3, 3, 24))
    for part_kernel in (False, True):
        traversal = (
            NpuBlockTraversal.PART_KERNEL_FIRST if part_kernel else (NpuBlockTraversal.DEPTH_FIRST)
        )
        result = np.zeros_like(weights)
        for core in range(accelerator.cores):
            order = order_of(weights, accelerator, core, block_depth=16, part_kernel=part_kernel)
            encoded = npu_encode_weights(
                VELA[accelerator],
                weights[core :: accelerator.cores],
                (1, 1),
                8,
                order.block_depth,
                False,
                traversal,
            )
            result[core :: accelerator.cores] = decode_weights(bytes(encoded), order)
        np.testing.assert_array_equal(result, weights)


def test_scales() -> None:
    rows = [(0, 0, 0), (-1, 1, 63), (-(1 << 39), (1 << 32) - 1, 31), ((1 << 39) - 1, 1 << 31, 1)]
    data = np.frombuffer(scale_stream(rows), np.uint8)
    scales = decode_scales(data, 4)
    columns = (scales.bias.tolist(), scales.multiplier.tolist(), scales.shift.tolist())
    assert list(zip(*columns, strict=True)) == rows
    assert bytes(npu_encode_bias(np.int64(rows[2][0]), rows[2][1], rows[2][2])) == bytes(
        data[20:30]
    )
    with pytest.raises(DecodeError, match="5 channels take 50"):
        decode_scales(data, 5)
    damaged = data.copy()
    damaged[19] = 64
    with pytest.raises(DecodeError, match="scale entry 1 has reserved bits"):
        decode_scales(damaged, 4)


def test_wrong_number_of_weights() -> None:
    weights = random_weights((8, 1, 1, 32))
    order = order_of(weights, Accelerator.U55_128, 0, block_depth=8)
    stream = weight_stream([*weights.ravel().tolist(), 1])
    with pytest.raises(DecodeError, match="holds 257 weights, expected 256"):
        decode_weights(stream, order)


def test_odd_block_depth_leaves_second_core_nothing() -> None:
    weights = random_weights((4, 1, 1, 8))
    order = order_of(weights, Accelerator.U65_512, 1, block_depth=1)
    with pytest.raises(DecodeError, match="no channels"):
        decode_weights(weight_stream([0] * 64), order)


def encodings(seed: int) -> list[bytes]:
    """Return weight streams of all kinds the encoder makes: dense, sparse, few values, uniform."""
    rng = np.random.default_rng(seed)
    streams = []
    for count in (1, 12, 13, 100, 3000):
        for values in (
            rng.normal(0, 30, count),
            rng.normal(0, 90, count) * (rng.random(count) < 0.1),
            rng.choice([-7, 9, 100, 0], count),
            rng.integers(-255, 256, count),
            np.zeros(count),
        ):
            plain = np.clip(values, -255, 255).astype(int).tolist()
            streams.append(bytes(mlw_codec.encode(plain)))
    return streams


def test_complete_streams_are_accepted() -> None:
    streams = encodings(1)
    for stream in streams:
        check_complete(stream)
        check_complete(stream + b"\xff" * 5)
    check_complete(b"".join(streams))


def test_streams_without_an_end_are_refused() -> None:
    for stream in encodings(2):
        body = stream.rstrip(b"\xff")
        for length in {0, 1, 2, len(body) // 2, len(body) - 2}:
            if 0 <= length < len(body) - 1:
                with pytest.raises(DecodeError):
                    check_complete(stream[:length])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the codec ends its process: needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_codec_survives_what_the_check_accepts() -> None:
    """Damage streams; each one accepted must decode in a child process that exits normally."""
    generator = random.Random(3)
    streams = [stream for stream in encodings(3) if len(stream) < 600]
    accepted = []
    for _ in range(3000):
        data = bytearray(generator.choice(streams))
        for _ in range(generator.choice([1, 1, 2, 8])):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        try:
            check_complete(bytes(data))
        except DecodeError:
            continue
        accepted.append(bytes(data))
    assert len(accepted) > 100
    child = os.fork()
    if child == 0:
        for data in accepted:
            mlw_codec.decode(bytearray(data))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
