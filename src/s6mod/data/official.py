"""The published data sets: where they are fetched, how their files lie, and who reads them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from s6mod.data.cifar import CIFAR10, CIFAR100, cifar_source
from s6mod.data.download import Download
from s6mod.data.fashion_mnist import fashion_mnist_source
from s6mod.data.source import Source
from s6mod.data.tiny_imagenet import tiny_imagenet_source
from s6mod.errors import DataError


@dataclass(frozen=True)
class Official:
    """One published data set."""

    name: str
    folder: str  # the one its archive unpacks to
    marker: str  # a file in it (or its gzipped form) that the folder is known by
    downloads: tuple[Download, ...]
    read: Callable[[Path, bool], Source]  # from that folder, passing over bad images or not

    def find(self, root: Path) -> Path | None:
        """The folder with the official files: below ``root``, or ``root`` itself."""
        for folder in (root / self.folder, root):
            if any((folder / name).is_file() for name in (self.marker, f"{self.marker}.gz")):
                return folder
        return None

    def source(self, root: Path, skip_bad: bool = False) -> Source:
        """A source of the official files under ``root``."""
        folder = self.find(root)
        if folder is None:
            raise DataError(
                f"expected {self.name} in {root / self.folder}, got no file {self.marker} there; "
                f"run s6mod data {self.name}, or with --from an archive or folder that you have"
            )
        return self.read(folder, skip_bad)


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"

OFFICIAL: dict[str, Official] = {
    official.name: official
    for official in (
        Official(
            name=CIFAR10.name,
            folder=CIFAR10.folder,
            marker=CIFAR10.meta,
            downloads=(Download(_CIFAR + "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
            read=lambda folder, skip_bad: cifar_source(CIFAR10, folder),
        ),
        Official(
            name=CIFAR100.name,
            folder=CIFAR100.folder,
            marker=CIFAR100.meta,
            downloads=(Download(_CIFAR + "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
            read=lambda folder, skip_bad: cifar_source(CIFAR100, folder),
        ),
        Official(
            name="fashion-mnist",
            folder="fashion-mnist",
            marker="train-images-idx3-ubyte",
            downloads=(
                Download(_FASHION + "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
                Download(_FASHION + "train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
                Download(_FASHION + "t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
                Download(_FASHION + "t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
            ),
            read=lambda folder, skip_bad: fashion_mnist_source(folder),
        ),
        Official(
            name="tiny-imagenet",
            folder="tiny-imagenet-200",
            marker="wnids.txt",
            downloads=(
                Download("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),
            ),
            read=tiny_imagenet_source,
        ),
    )
}
