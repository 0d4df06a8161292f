"""Norms, activation, rotary positions and dense layers against their formulas."""

from __future__ import annotations

import pytest
import torch

from autospec.engine.cpu import linear
from autospec.engine.cpu.elementwise import (
    fused_add_rmsnorm_cpu,
    rmsnorm_cpu,
    rotary_embedding_cpu,
    silu_and_mul_cpu,
)
from autospec.engine.cpu.linear import convert_weight_packed, weight_packed_linear
from autospec.errors import EngineError

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 1e-2}


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Assert equality up to what the dtype can hold."""
    torch.testing.assert_close(
        got.double(), want, rtol=TOLERANCE[got.dtype], atol=TOLERANCE[got.dtype]
    )


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The formula in double precision."""
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 64), (9, 64), (2, 3, 64)])
def test_rmsnorm(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Each row is divided by its root mean square and scaled."""
    x, weight = torch.randn(shape).to(dtype), torch.rand(64).to(dtype)
    close(rmsnorm_cpu(x, weight, 1e-5), norm(x, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_add_rmsnorm_writes_sum_and_norm(dtype: torch.dtype) -> None:
    """The residual becomes the sum, x the norm of it."""
    x, residual = torch.randn(5, 64).to(dtype), torch.randn(5, 64).to(dtype)
    weight, total = torch.rand(64).to(dtype), x + residual
    fused_add_rmsnorm_cpu(x, residual, weight, 1e-5)
    assert torch.equal(residual, total)
    close(x, norm(total, weight, 1e-5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 12), (7, 12), (2, 3, 12)])
def test_silu_and_mul(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """The first half gates the second."""
    x = torch.randn(shape).to(dtype)
    gate, up = x.double().chunk(2, -1)
    close(silu_and_mul_cpu(x), gate * gate.sigmoid() * up)


def rotated(
    x: torch.Tensor, positions: torch.Tensor, cache: torch.Tensor, neox: bool
) -> torch.Tensor:
    """Each pair of values turned by its angle, one at a time."""
    out, rotary = x.double().clone(), cache.shape[1]
    for token, position in enumerate(positions.tolist()):
        for i in range(rotary // 2):
            first, second = (i, i + rotary // 2) if neox else (2 * i, 2 * i + 1)
            cos, sin = cache[position, i].double(), cache[position, rotary // 2 + i].double()
            a, b = x[token, :, first].double(), x[token, :, second].double()
            out[token, :, first] = a * cos - b * sin
            out[token, :, second] = b * cos + a * sin
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary", [8, 4])
@pytest.mark.parametrize("layout", ["apart", "side by side", "by head"])
@pytest.mark.parametrize("tokens", [1, 6])
def test_rotary_embedding(
    tokens: int, layout: str, rotary: int, neox: bool, dtype: torch.dtype
) -> None:
    """Query and key are turned, wherever they lie in memory, and keep their shapes."""
    size, heads, kv_heads = 8, 3, 1
    fused = torch.randn(tokens, (heads + 2 * kv_heads) * size).to(dtype)
    query, key, value = torch.split(fused, [heads * size, kv_heads * size, kv_heads * size], -1)
    kept = value.clone()
    if layout == "apart":
        query, key = query.clone(), key.clone()
    if layout == "by head":
        query, key = query.reshape(tokens, heads, size), key.reshape(tokens, kv_heads, size)
    cache, positions = torch.randn(50, rotary).to(dtype), torch.randint(0, 50, (tokens,))
    shapes = query.shape, key.shape
    new_query, new_key = rotary_embedding_cpu(positions, query, key, size, cache, neox)
    assert (new_query.shape, new_key.shape) == shapes
    assert torch.equal(value, kept)
    for new, old, count in ((new_query, query, heads), (new_key, key, kv_heads)):
        want = rotated(old.reshape(tokens, count, size), positions, cache, neox)
        close(new.reshape(tokens, count, size), want)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("tokens", [0, 1, 7, 40])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_packed_linear(tied: bool, tokens: int, biased: bool, dtype: torch.dtype) -> None:
    """A weight, packed or not yet, multiplies as it should; the bias may stay in float32."""
    weight, x = torch.randn(48, 32).to(dtype) / 8, torch.randn(tokens, 32).to(dtype)
    bias = torch.randn(48) if biased else None
    packed = weight if tied else convert_weight_packed(weight)
    got = weight_packed_linear(x, packed, bias, True)
    want = x.double() @ weight.double().T
    assert got.dtype == dtype
    close(got, want if bias is None else want + bias.double())


@pytest.mark.parametrize("packed_types", [(), (torch.float32,)])
@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("biased", [False, True])
def test_packed_linear_of_a_plainer_cpu(
    monkeypatch: pytest.MonkeyPatch,
    biased: bool,
    tokens: int,
    packed_types: tuple[torch.dtype, ...],
) -> None:
    """Without kernels for half types, or for any, the product is the same."""
    monkeypatch.setattr(linear, "_can_pack", lambda dtype: dtype in packed_types)
    test_packed_linear(False, tokens, biased, torch.bfloat16)
    test_packed_linear(True, tokens, biased, torch.float32)


def test_a_packed_weight_keeps_shape_and_dtype() -> None:
    """SGLang wraps the packed weight as a parameter and asks it both."""
    packed = torch.nn.Parameter(
        convert_weight_packed(torch.randn(48, 32, dtype=torch.bfloat16)), requires_grad=False
    )
    assert packed.shape == (48, 32)
    assert packed.dtype == torch.bfloat16


def test_weights_that_cannot_be_packed_are_refused() -> None:
    """Experts and quantized weights raise an error that says so."""
    with pytest.raises(EngineError, match="3 dimensions"):
        convert_weight_packed(torch.zeros(2, 16, 32))
    with pytest.raises(EngineError, match="int8"):
        convert_weight_packed(torch.zeros(16, 32, dtype=torch.int8))


def test_wrong_kinds_are_refused() -> None:
    """Shapes and dtypes that do not fit are named."""
    with pytest.raises(EngineError, match="weight_packed_linear"):
        weight_packed_linear(torch.zeros(2, 31), torch.zeros(48, 32), None, True)
    with pytest.raises(EngineError, match="rmsnorm_cpu"):
        rmsnorm_cpu(torch.zeros(2, 8), torch.zeros(9), 1e-5)
    with pytest.raises(EngineError, match="fused_add_rmsnorm_cpu"):
        fused_add_rmsnorm_cpu(torch.zeros(2, 8), torch.zeros(1, 8), torch.zeros(8), 1e-5)
    with pytest.raises(EngineError, match="must be even"):
        silu_and_mul_cpu(torch.zeros(2, 7))
    zeros = torch.zeros(2, 8)
    with pytest.raises(EngineError, match="one dtype"):
        rotary_embedding_cpu(torch.zeros(2).long(), zeros, zeros, 8, zeros.bfloat16(), True)
    with pytest.raises(EngineError, match="positions"):
        rotary_embedding_cpu(torch.zeros(2), zeros, zeros, 8, zeros, True)
