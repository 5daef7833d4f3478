"""RandAugment on a batch of uint8 images: N operations one after the other, each drawn once for the whole batch.

Which operation was drawn, and with which sign, the device alone knows, and one sequence of kernels serves all fourteen:
every operation is a move of pixels, then a blend with another image, then a table of levels, and leaves two of the
three as they are. What does not depend on the images is tabulated when the object is made. Semantics are those of
torchvision's RandAugment on a uint8 tensor of four dimensions; it needs no torchvision.
"""

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.augment.base import check_images
from s6mod.augment.colour import grey
from s6mod.config import Config
from s6mod.errors import InputError

OPERATIONS = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
    *("brightness", "colour", "contrast", "sharpness", "posterize", "solarize", "autocontrast", "equalize"),
)
BY_IMAGE = ("colour", "contrast", "autocontrast", "equalize")  # picked on the device; the blend left is sharpness
BINS = 31
LEVELS = 256


class RandAugmentConfig(Config):
    """How many operations, and how strong."""

    operations: int = Field(3, ge=1, description="N: operations applied one after the other")
    magnitude: int = Field(15, ge=0, lt=BINS, description="M: strength of each operation, 0 to 30")


class RandAugment(nn.Module):
    """N random operations of magnitude M on images of one size.

    A choice is a number below 28: an operation with the positive sign, or, 14 later, with the negative one. Operations
    without a sign are the same in both.
    """

    sources: Tensor  # (28, H * W) int64: which pixel moves here; H * W: none, it becomes 0
    factors: Tensor  # (28,) float32: x away from (> 1) or towards (< 1) what it is blended with; 1: x as it is
    levels: Tensor  # (28, 256) int32: what becomes of each level
    by_image: Tensor  # (28, 4) bool: which of BY_IMAGE it is, if any

    def __init__(self, config: RandAugmentConfig, size: tuple[int, int]) -> None:
        super().__init__()
        self.config = config
        self.size = size
        choices = [(name, sign) for sign in (1, -1) for name in OPERATIONS]
        m = config.magnitude
        tables = {
            "sources": torch.stack([_sources(_affine(name, sign * m, size), size) for name, sign in choices]),
            "factors": torch.tensor([_factor(name, sign * m) for name, sign in choices]),
            "levels": torch.stack([_levels(name, sign * m) for name, sign in choices]),
            "by_image": torch.tensor([[name == other for other in BY_IMAGE] for name, _ in choices]),
        }
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)

    def forward(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """(B, 3, H, W) uint8 -> the same after N operations; new memory."""
        return self.apply_choices(x, self.draw(generator))

    def draw(self, generator: torch.Generator) -> Tensor:
        """N choices, uniform and independent; the generator lives where the tables do."""
        return torch.randint(
            len(self.factors), (self.config.operations,), generator=generator, device=self.factors.device
        )

    def apply_choices(self, x: Tensor, choices: Tensor) -> Tensor:
        """The operations that ``choices`` (N,) name, on all images alike; statistics are each image's own."""
        check_images(x)
        if x.dtype != torch.uint8 or x.shape[2:] != self.size:
            raise InputError(
                f"expected uint8 images of {self.size[0]}x{self.size[1]} pixels, "
                f"got {x.dtype} of {x.shape[2]}x{x.shape[3]}; convert or resize them"
            )
        for choice in choices.split(1):
            colour, contrast, autocontrast, equalize = self.by_image.index_select(0, choice).unbind(1)  # (1,) each
            x = self._move(x, choice)
            x = self._blend(x, choice, colour, contrast)
            x = self._relevel(x, choice, autocontrast, equalize)
        return x

    def _move(self, x: Tensor, choice: Tensor) -> Tensor:
        """Shear, translate, rotate."""
        with_none = F.pad(x.flatten(2), (0, 1))  # (B, 3, H * W + 1)
        return with_none.index_select(2, self.sources.index_select(0, choice)[0]).view(x.shape)

    def _blend(self, x: Tensor, choice: Tensor, colour: Tensor, contrast: Tensor) -> Tensor:
        """Colour blends with the grey image, contrast with its mean, sharpness with the smoothed image."""
        v = x.float()
        dark = (grey(v) + 5e-4).floor()  # in whole levels; grey comes in thousandths, so this mends its rounding only
        base = torch.where(colour, dark, smooth(v))
        base = torch.where(contrast, dark.mean((1, 2, 3), keepdim=True), base)
        return torch.lerp(base, v, self.factors.index_select(0, choice)).clamp_(0, LEVELS - 1).to(torch.uint8)

    def _relevel(self, x: Tensor, choice: Tensor, autocontrast: Tensor, equalize: Tensor) -> Tensor:
        """What a table says of each level; autocontrast and equalize make one for each image and channel."""
        rows = x.flatten(2).flatten(0, 1)  # (R, H * W)
        ordered = rows.sort(1).values
        low, high = ordered[:, :1].int(), ordered[:, -1:].int()  # (R, 1)
        level = self.levels[0]  # (256,): the identity
        stretched = ((level - low) * (LEVELS - 1) // (high - low).clamp(min=1)).clamp(0, LEVELS - 1)

        # From one level to the next an equal number of pixels, so that all below the brightest make 255 steps.
        each = level.to(torch.uint8).expand(len(rows), LEVELS).contiguous()
        darker = torch.searchsorted(ordered, each, out_int32=True)  # (R, 256): how many pixels are, than each level
        step = darker.gather(1, high.long()) // (LEVELS - 1)  # (R, 1); 0: too few pixels to equalize
        equalized = ((darker + step // 2) // step.clamp(min=1)).clamp(max=LEVELS - 1)

        table = self.levels.index_select(0, choice)  # (1, 256)
        table = torch.where(autocontrast & (high > low), stretched, table)  # (R, 256)
        table = torch.where(equalize & (step > 0), equalized, table)
        return table.to(torch.uint8).gather(1, rows.long()).view(x.shape)


def smooth(v: Tensor) -> Tensor:
    """Means over 3x3 pixels, the middle one weighing 5 and the others 1, in whole levels; the border stays."""
    smoothed = v.clone()
    middle = smoothed[:, :, 1:-1, 1:-1]
    middle.copy_(F.avg_pool2d(v, 3, stride=1, divisor_override=1).add_(middle, alpha=4).div_(13).round_())
    return smoothed


# --- what an operation does at a signed magnitude of -30 ... 30 -------------------------------------------------


def _affine(name: str, m: int, size: tuple[int, int]) -> tuple[float, ...]:
    """(a, b, c, d, e, f): the pixel at (x, y), seen from the top left corner, comes from (ax + by + c, dx + ey + f)."""
    H, W = size
    strength = m / (BINS - 1)
    shear, turn = 0.3 * strength, math.radians(30 * strength)
    cos, sin = math.cos(turn), math.sin(turn)
    shift_x, shift_y = (int(150 / 331 * side * strength) for side in (W, H))  # whole pixels, truncated
    matrices = {
        "shear_x": (1, shear, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, shift_x, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, shift_y),
        "rotate": (cos, sin, W / 2 - cos * W / 2 - sin * H / 2, -sin, cos, H / 2 + sin * W / 2 - cos * H / 2),
    }
    return matrices.get(name, (1, 0, 0, 0, 1, 0))


def _sources(affine: tuple[float, ...], size: tuple[int, int]) -> Tensor:
    """For each pixel the one that lies where it comes from, (H * W,) int64; H * W where that is outside."""
    H, W = size
    a, b, c, d, e, f = affine
    y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) + 0.5 for side in size), indexing="ij")
    column, row = (a * x + b * y + c).floor().long(), (d * x + e * y + f).floor().long()
    inside = (column >= 0) & (column < W) & (row >= 0) & (row < H)
    return torch.where(inside, row * W + column, H * W).flatten()


def _factor(name: str, m: int) -> float:
    """Of the blend."""
    return 1 + 0.9 * m / (BINS - 1) if name in ("colour", "contrast", "sharpness") else 1.0


def _levels(name: str, m: int) -> Tensor:
    """What becomes of each level, (256,) int32."""
    level, strength = torch.arange(LEVELS, dtype=torch.int32), abs(m) / (BINS - 1)
    if name == "brightness":
        return ((1 + 0.9 * m / (BINS - 1)) * level).clamp(0, LEVELS - 1).int()
    if name == "posterize":
        return level & -(1 << round(4 * strength))  # the lowest bits go
    if name == "solarize":
        return torch.where(level >= (LEVELS - 1) * (1 - strength), LEVELS - 1 - level, level)
    return level
