"""Tiles in fp8 that keep columns in runs, beside dense fp8 by cuBLASLt and STSpMM in fp16.

    PRUNECAST_CACHE=build/fp8 python -m benchmarks.kernels.fp8_tiles build            # no GPU needed
    PRUNECAST_CACHE=build/fp8 python -m benchmarks.kernels.fp8_tiles run --out DIR

Weights and tokens are random, e4m3, C is bf16; every tile keeps as many runs as the others. C of every form
is checked against float64 before it is timed; bursts, cold L2, all in turn. Writes DIR/fp8_tiles.csv.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import prunecast.kernels.tile.cuda as tile_kernel
from benchmarks.suite import build as build_in_fp16
from benchmarks.tile.cases import tile_map
from prunecast.choice import fastest_plan
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, compile
from prunecast.kernels.device.build import CompiledKernel, compile_cubin

LAYERS = ((4096, 4096, 4096), (4096, 4096, 2048), (4096, 11008, 2048), (2048, 2048, 8192))
SPARSITIES = (0.5, 0.75, 0.9)
COLUMNS, THREADS = 128, 384
"""Of a stage; of a block."""
ROUNDING, SUMMING = 2.0**-8, 2.0**-14
"""Of C to bf16; of sums of 32 columns, cut after 13 bits, which grow from nothing: half of the last one's."""
TOKENS_CHECKED = 1024
ARGS = np.dtype(
    [(name, "u8") for name in ("weights", "columns", "stages", "c", "c_row_bytes")]
    + [("tiles", "i4"), ("token_blocks", "i4"), ("scale", "f4"), ("pad", "i4")]
)


class Form(NamedTuple):
    """One compiled form of the kernel."""

    rows: int
    """Of a tile."""
    run: int
    """Columns that are kept together."""

    @property
    def tokens(self) -> int:
        """Of a block."""
        return 128 if self.rows == 256 else 256

    def build(self) -> CompiledKernel:
        """Compile it, or take it from the cache."""
        defines = {"WEIGHT_ROWS": self.rows, "RUN": self.run, "STAGES": 4}
        source = Path(__file__).with_suffix(".cu")
        return compile_cubin(source, "sm_90a", defines, includes=[Path(tile_kernel.__file__).parent])


FORMS = tuple(Form(rows, run) for run in (32, 16, 64) for rows in (256, 128))


def kept_runs(m: int, k: int, form: Form, sparsity: float) -> np.ndarray[Any, np.dtype[np.int32]]:
    """(tiles, runs): first columns of what each tile keeps, whole stages of them, ascending."""
    rng, runs = np.random.default_rng(k), k // form.run
    stage = COLUMNS // form.run
    count = max(round(runs * (1.0 - sparsity) / stage), 1) * stage
    drawn = [np.sort(rng.choice(runs, count, replace=False)) for _ in range(m // form.rows)]
    return (form.run * np.array(drawn)).astype(np.int32)


def packed(weights: np.ndarray[Any, Any], first: np.ndarray[Any, Any], form: Form) -> np.ndarray[Any, Any]:
    """(M, K) bytes as stages; chunk c of 16 bytes of row r of a run lies where the swizzle has it."""
    tiles = weights.reshape(-1, form.rows, weights.shape[1])
    columns = first[:, :, None] + np.arange(form.run)
    runs = np.stack([tile[:, own] for tile, own in zip(tiles, columns, strict=True)])
    chunks = runs.transpose(0, 2, 1, 3).reshape(-1, form.rows, form.run // 16, 16)
    row, chunk = np.ogrid[: form.rows, : form.run // 16]
    return np.ascontiguousarray(chunks[:, row, chunk ^ (row * form.run // 128 % (form.run // 16))])


def pruned(weights: Any, first: np.ndarray[Any, Any], form: Form) -> Any:
    """The weights with zeros where nothing is kept."""
    kept = np.zeros((len(first), weights.shape[1] // form.run), bool)
    np.put_along_axis(kept, first // form.run, True, axis=1)
    import torch

    mask = np.repeat(np.repeat(kept, form.run, axis=1), form.rows, axis=0)
    return weights * torch.from_numpy(mask).cuda()


class Tiles:
    """A layer in one form, ready to be launched."""

    def __init__(self, form: Form, weights: Any, sparsity: float, n: int) -> None:
        import cupy as cp
        import torch

        m, k = weights.shape
        self.form, self.first = form, kept_runs(m, k, form, sparsity)
        stage = self.first.shape[1] * form.run // COLUMNS
        self.arrays = [
            torch.from_numpy(array).cuda()
            for array in (
                packed(weights.view(torch.uint8).cpu().numpy(), self.first, form),
                self.first.reshape(-1),
                np.arange(len(self.first) + 1, dtype=np.int32) * stage,
            )
        ]
        shared = 4 * COLUMNS * (form.rows + form.tokens) + 1024
        kernel = cp.RawModule(path=str(form.build().cubin)).get_function("fp8_tiles")
        kernel.max_dynamic_shared_size_bytes = shared
        self.token_blocks, self.is_token_major = n // form.tokens, form.rows == 256
        blocks = min(cp.cuda.Device().attributes["MultiProcessorCount"], len(self.first) * self.token_blocks)
        self.kernel, self.blocks, self.shared = kernel, blocks, shared

    def bind(self, x: Any, c: Any) -> Callable[[int], None]:
        """A launch on these tokens (N, K) into C, (N, M) or (M, N); takes the stream's handle."""
        from prunecast.kernels.device.launch import PreparedLaunch

        values = [array.data_ptr() for array in self.arrays] + [c.data_ptr(), c.stride(0) * 2]
        args = np.array([(*values, len(self.first), self.token_blocks, 1.0, 0)], ARGS)
        box = token_map(x, self.form)
        launch = PreparedLaunch(
            self.kernel.kernel.ptr,
            [args.ctypes.data, box.ctypes.data],
            blocks=self.blocks,
            threads=THREADS,
            shared_bytes=self.shared,
            overlap=True,
        )
        held = (self, args, box, x, c)
        return lambda stream, held=held: launch(stream)  # type: ignore[misc]


def token_map(x: Any, form: Form) -> np.ndarray[Any, Any]:
    """Tokens (N, K) in boxes of all tokens of a block and one run, swizzled as wide as the run."""
    import ctypes

    from prunecast.kernels.device.launch import answer_of, driver

    room = np.zeros(192, np.uint8)
    found = room[-room.ctypes.data % 64 :][:128]
    n, k = x.shape
    sizes, strides = (ctypes.c_uint64 * 2)(k, n), (ctypes.c_uint64 * 1)(k)
    words = (sizes, strides, (ctypes.c_uint32 * 2)(form.run, form.tokens), (ctypes.c_uint32 * 2)(1, 1))
    swizzle, promotion = {16: 0, 32: 1, 64: 2, 128: 3}[form.run], {64: 1, 128: 2}.get(form.run, 0)
    status = answer_of(driver().cuTensorMapEncodeTiled, ctypes.c_void_p(found.ctypes.data), 0, 2,
                       ctypes.c_void_p(x.data_ptr()), *words, 0, swizzle, promotion, 0)  # fmt: skip
    if status != 0:
        raise RuntimeError(f"cuTensorMapEncodeTiled answers {status}")
    return found


def excess_of(c: Any, a: Any, x: Any, steps: int) -> float:
    """Largest error of C (N, M), summed in so many steps, over its bound; at most 1 is right."""
    a64, x64 = a.double(), x.double()
    wanted, size = x64 @ a64.T, x64.abs() @ a64.abs().T
    return float(
        ((c.double() - wanted).abs() / (ROUNDING * wanted.abs() + steps * SUMMING * size + 1e-6)).max()
    )


def run(out: Path, turns: int, layers: int) -> None:
    """Check and time everything; what fails is told and left out."""
    import cupy as cp
    import torch

    stream = cp.cuda.Stream(non_blocking=True)
    torch.cuda.set_stream(torch.cuda.ExternalStream(stream.ptr))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "fp8_tiles.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("m", "k", "n", "sparsity", "form", "us"))
        for layer in LAYERS[:layers]:
            with stream:
                for row in _measured(layer, stream, turns):
                    writer.writerow((*layer, *row))
                    print(*layer, *row, flush=True)
            file.flush()
            torch.cuda.empty_cache()


def _measured(layer: tuple[int, int, int], stream: Any, turns: int) -> Iterator[tuple[Any, ...]]:
    """Sparsity, form and microseconds."""
    import torch

    from benchmarks.on_gpu.timing import contestant, sets_for, take_turns

    m, k, n = layer
    sets = sets_for(k * n + 2.0 * m * n, "cold")
    weights = torch.randn((m, k), device="cuda").to(torch.float8_e4m3fn)
    xs = [torch.randn((n, k), device="cuda").to(torch.float8_e4m3fn) for _ in range(sets)]
    cs = [torch.empty((n, m), device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
    launches = {"0 dense fp8": _dense(weights, xs)}
    for sparsity in SPARSITIES:
        for form in FORMS if layer == LAYERS[0] else FORMS[:2]:
            name = f"{sparsity} fp8, {form.rows} rows, runs of {form.run}"
            try:
                launches[name] = _checked(Tiles(form, weights, sparsity, n), weights, xs, cs, stream)
            except Exception as reason:  # whatever a library raises, the other forms go on
                print(f"{layer} {name}: {type(reason).__name__} {str(reason)[:200]}", flush=True)
        launches[f"{sparsity} fp16, STSpMM"] = _in_fp16(layer, sparsity, sets)
    contestants = [contestant(name, stream, launch, sets=sets) for name, launch in launches.items()]
    for name, sample in take_turns(stream, contestants, turns).items():
        yield *name.split(" ", 1), f"{1e6 * sample.median:.2f}"


def _dense(weights: Any, xs: list[Any]) -> Callable[[int], Any]:
    import torch

    one, copies = torch.ones((), device="cuda"), [weights.clone() for _ in xs]
    how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    return lambda i: torch._scaled_mm(xs[i], copies[i].t(), **how)


def _checked(tiles: Tiles, weights: Any, xs: list[Any], cs: list[Any], stream: Any) -> Callable[[int], None]:
    """Launches that were found right on the first thousand tokens."""
    wide = tiles.is_token_major
    own = [c if wide else c.view(c.shape[1], c.shape[0]) for c in cs]
    launches = [tiles.bind(x, c) for x, c in zip(xs, own, strict=True)]
    launches[0](stream.ptr)
    a = pruned(weights.float(), tiles.first, tiles.form)
    got = own[0][:TOKENS_CHECKED] if wide else own[0][:, :TOKENS_CHECKED].T
    excess = excess_of(got, a, xs[0][:TOKENS_CHECKED], tiles.first.shape[1] * tiles.form.run // 32)
    if not excess <= 1.0:
        raise RuntimeError(f"wrong by {excess:.3g}")
    return lambda i: launches[i](stream.ptr)


def _in_fp16(layer: tuple[int, int, int], sparsity: float, sets: int) -> Callable[[int], Any]:
    """The project's kernel on as many columns, one by one."""
    import cupy as cp

    m, k, n = layer
    operator = compile(
        plan_in_fp16(layer, sparsity), np.random.default_rng(0).standard_normal((m, k), np.float32)
    )
    bs = [cp.random.standard_normal((k, n), dtype=cp.float32).astype(cp.float16) for _ in range(sets)]
    cs = [cp.empty((m, n), cp.float16) for _ in range(sets)]
    return lambda i: operator(bs[i], out=cs[i])


def plan_in_fp16(layer: tuple[int, int, int], sparsity: float) -> KernelPlan:
    """Tiles of 128 rows."""
    m, k, n = layer
    return fastest_plan("stspmm", tile_map(m, k, 1.0 - sparsity), n, "fp16", load_gpu("h200-sxm"))


def main() -> None:
    """Build, or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--layers", type=int, default=len(LAYERS))
    options = parser.parse_args()
    if options.what == "run":
        run(options.out, options.turns, options.layers)
        return
    with ThreadPoolExecutor(2) as pool:
        for form, kernel in zip(FORMS, pool.map(Form.build, FORMS), strict=True):
            print(f"{form}: {kernel.registers} registers, {kernel.spill_bytes} bytes spilled")
    for layer in LAYERS:
        for sparsity in SPARSITIES:
            build_in_fp16(plan_in_fp16(layer, sparsity))


if __name__ == "__main__":
    main()
