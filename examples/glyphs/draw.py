"""Glyphs of the fonts inside matplotlib: characters that all have, drawn once, then distorted on the GPU."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

STYLES = ("", "-Bold", "-Oblique", "-BoldOblique")
FACES = (
    *(f"DejaVuSans{style}" for style in STYLES),
    *(f"DejaVuSansMono{style}" for style in STYLES),
    *(f"DejaVuSerif{style.replace('Oblique', 'Italic')}" for style in STYLES),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
"""Files of matplotlib's folder of fonts."""
RANGES = ((0x21, 0x7E), (0xA1, 0x17F), (0x391, 0x3C9), (0x401, 0x45F), (0x2190, 0x2199), (0x2200, 0x22FF))
"""Latin, Greek and Cyrillic letters, digits, signs, arrows, operators."""
CELL, EM = 64, 40
"""Pixels of a drawn cell and of the font's size in it."""
ALIKE = 0.97
"""Cosine above which two characters in the first face count as one, such as a Latin and a Greek O."""


class Glyphs(NamedTuple):
    """All characters in all faces."""

    characters: str
    cells: npt.NDArray[np.uint8]
    """(characters, faces, CELL, CELL), ink is 255."""


def font_folder() -> Path:
    """Where matplotlib keeps DejaVu and STIX."""
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def shared_characters(folder: Path) -> list[str]:
    """Characters of `RANGES` that every face has."""
    known = [_characters(folder / f"{face}.ttf") for face in FACES]
    wanted = (code for first, last in RANGES for code in range(first, last + 1))
    return [chr(code) for code in wanted if all(code in each for each in known)]


def _characters(file: Path) -> set[int]:
    from fontTools.ttLib import TTFont

    # A lazy font keeps its file open: closed by the garbage collector, it warns in whatever runs then.
    with TTFont(file, lazy=True) as font:
        return set(font.getBestCmap())


def draw_face(file: Path, characters: list[str]) -> npt.NDArray[np.uint8]:
    """(characters, CELL, CELL), each where it stands on its line."""
    from PIL import Image, ImageDraw, ImageFont

    font, cells = ImageFont.truetype(str(file), EM), []
    for character in characters:
        cell = Image.new("L", (CELL, CELL))
        place = ((CELL - font.getlength(character)) / 2, CELL * 0.7)
        ImageDraw.Draw(cell).text(place, character, font=font, fill=255, anchor="ls")
        cells.append(np.asarray(cell))
    return np.stack(cells)


def draw(most_characters: int, processes: int) -> Glyphs:
    """All glyphs, those left out whose first face looks like that of one before."""
    folder = font_folder()
    characters = shared_characters(folder)
    first = draw_face(folder / f"{FACES[0]}.ttf", characters)
    characters = [characters[i] for i in apart(first)[:most_characters]]
    with ProcessPoolExecutor(processes) as pool:
        files = [folder / f"{face}.ttf" for face in FACES]
        cells = list(pool.map(draw_face, files, [characters] * len(FACES)))
    return Glyphs("".join(characters), np.stack(cells, axis=1))


def apart(cells: npt.NDArray[np.uint8]) -> list[int]:
    """Which cells show ink, and look like none before them."""
    flat = cells.reshape(len(cells), -1).astype(np.float32)
    sizes = np.linalg.norm(flat, axis=1)
    alike = flat @ flat.T > ALIKE * np.outer(sizes, sizes)
    return [i for i in range(len(flat)) if sizes[i] > 0 and not alike[i, :i].any()]


class Distortion(NamedTuple):
    """How far images are from what the font draws."""

    turn: float = 0.3
    """Radians, either way."""
    stretch: float = 0.2
    shear: float = 0.25
    shift: float = 0.2
    """Shares of half an image."""
    blur: float = 1.2
    """Pixels."""
    contrast: tuple[float, float] = (0.3, 0.9)
    noise: float = 0.15
    """Standard deviation, of a range of 1."""


def distort(cells: Tensor, pixels: int, how: Distortion, generator: torch.Generator) -> Tensor:
    """Images (count, 1, pixels, pixels) of cells (count, CELL, CELL): moved, blurred, pale and noisy.

    A piece of another cell of the batch lies beside each glyph.
    """
    x = cells[:, None].float() / 255
    x = _moved(x, pixels, how, generator)
    beside = _moved(cells.flip(0)[:, None].float() / 255, pixels, how, generator)
    gap = pixels * 2 // 5
    x = torch.maximum(x, functional.pad(beside, (gap, 0))[..., :pixels].flip(-1) * 0.7)
    x = _blurred(x, how.blur * _uniform(x, generator))
    low, high = how.contrast
    x = x * (low + (high - low) * _uniform(x, generator))
    ground = _uniform(x, generator) * (1 - x.amax((1, 2, 3), keepdim=True))
    noise = torch.randn(x.shape, generator=generator, device=x.device)
    return x + ground + how.noise * _uniform(x, generator) * noise


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    """One number from 0 to 1 an image."""
    return torch.rand((len(like), 1, 1, 1), generator=generator, device=like.device)


def _moved(x: Tensor, pixels: int, how: Distortion, generator: torch.Generator) -> Tensor:
    """Turned, stretched, sheared and shifted at random, sampled at `pixels`."""
    turn, wide, high, shear, right, down = (
        torch.rand((6, len(x)), generator=generator, device=x.device) * 2 - 1
    )
    turn, wide, high = turn * how.turn, 1 + wide * how.stretch, 1 + high * how.stretch
    cos, sin = turn.cos(), turn.sin()
    rows = [
        torch.stack((wide * cos, wide * (shear * how.shear * cos - sin), right * how.shift), 1),
        torch.stack((high * sin, high * (shear * how.shear * sin + cos), down * how.shift), 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), [len(x), 1, pixels, pixels], align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def _blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """A Gaussian of its own for every image, of five pixels."""
    places = torch.arange(-2, 3, device=x.device)
    weights = torch.exp(-0.5 * (places / sigma.clamp_min(0.05).flatten()[:, None]) ** 2)
    weights = (weights / weights.sum(1, keepdim=True))[:, None, None]
    planes, count = x.transpose(0, 1), len(x)
    planes = functional.conv2d(planes, weights, padding=(0, 2), groups=count)
    planes = functional.conv2d(planes, weights.transpose(2, 3), padding=(2, 0), groups=count)
    return planes.transpose(0, 1)
