"""Figures of matplotlib (extra ``plots``) that show themselves in a notebook, and how they become files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from s6mod.errors import ConfigError, require_installed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Picture: TypeAlias = Figure

DPI = 150


def require_matplotlib() -> None:
    """Refuse, before any work is done, where figures cannot be drawn."""
    require_installed("matplotlib", "figures", "plots")


def new_picture(width: float, height: float) -> "Picture":
    """An empty figure, in inches; pyplot knows nothing of it, so nobody has to close it."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Shown(Figure):
        """A figure that a notebook shows without a word to pyplot."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=DPI)
            return file.getvalue()

    figure = Shown(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def check_picture_file(path: Path) -> None:
    """Refuse a file whose name does not end as that of a picture."""
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if path.suffix[1:].lower() not in FigureCanvasAgg.get_supported_filetypes():
        raise ConfigError(f"expected a picture file such as plan.png or plan.pdf, got {path}; end its name in .png")
