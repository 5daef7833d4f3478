"""The pairs of networks (CCL-DC) that were published, each of a method; a pair of your own is such a class.

A pair says which un-augmented images its chain starts from, and the defaults that are its own. What it does in a step
is said in ``ccldc``.
"""
# A pair has another name than its method and draws other views, so it stands in for the method nowhere.
# mypy: disable-error-code="assignment, misc"

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from s6mod.memory import ReplayMemory
from s6mod.methods import der, er, er_ace, onpro
from s6mod.methods.base import Peer, Rate, methods
from s6mod.methods.ccldc import CCLDC, CollaborationConfig, KDWeight, OwnWeight, ViewsWeight
from s6mod.methods.der_pp import DERPP, DERPPConfig
from s6mod.methods.er import ER, ERConfig
from s6mod.methods.er_ace import ERACE, ERACEConfig
from s6mod.methods.ocm import OCM, OCMConfig, OCMOptimizerConfig, WithRotated
from s6mod.methods.onpro import OnPro, OnProConfig

# --- ER -------------------------------------------------------------------------------------------------------


class ERCollaborationConfig(CollaborationConfig):
    """How two networks that learn by ER, ER-ACE or DER++ learn from each other."""

    own_weight: OwnWeight = 0.5
    views_weight: ViewsWeight = 0.5
    kd_weight: KDWeight = 2.0


class ERCCLDCConfig(ERConfig):
    """Options of er-ccldc."""

    name: Literal["er-ccldc"] = "er-ccldc"
    collaboration: ERCollaborationConfig = ERCollaborationConfig()


@methods.register("er-ccldc")
class ERCCLDC(CCLDC, ER):
    """Two networks that learn by ER and from each other."""

    config_class = ERCCLDCConfig
    config: ERCCLDCConfig

    def chain_batch(self, views: er.Views) -> tuple[Tensor, Tensor]:
        """[memory ; stream]."""
        return views.images, views.targets.labels


# --- OCM ------------------------------------------------------------------------------------------------------


class OCMCollaborationConfig(CollaborationConfig):
    """How two networks that learn by OCM learn from each other."""

    own_weight: OwnWeight = 1.0
    views_weight: ViewsWeight = 0.25
    kd_weight: KDWeight = 4.0


class OCMCCLDCOptimizerConfig(OCMOptimizerConfig):
    """The optimiser of a pair: the published OCM sets its rates in code, and its pair does not."""

    betas: tuple[Rate, Rate] = Field((0.9, 0.999), description="decay rates of the moment estimates")
    weight_decay: float = Field(0.0, ge=0, description="weight decay")


class OCMCCLDCConfig(OCMConfig):
    """Options of ocm-ccldc; why its MSE has another target is said in ``OCMConfig``."""

    name: Literal["ocm-ccldc"] = "ocm-ccldc"
    optimizer: OCMCCLDCOptimizerConfig = OCMCCLDCOptimizerConfig()
    mse_target: Literal["logits", "features"] = Field(
        "features", description="what of the teacher the logits of old classes are drawn to"
    )
    collaboration: OCMCollaborationConfig = OCMCollaborationConfig()


@methods.register("ocm-ccldc")
class OCMCCLDC(CCLDC, OCM):
    """Two networks that learn by OCM and from each other."""

    config_class = OCMCCLDCConfig
    config: OCMCCLDCConfig

    def chain_batch(self, views: list[WithRotated]) -> tuple[Tensor, Tensor]:
        """The stream; after the first task [stream ; memory]."""
        return torch.cat([part.plain.images for part in views]), torch.cat([part.plain.labels for part in views])


# --- OnPro ----------------------------------------------------------------------------------------------------


class OnProCollaborationConfig(CollaborationConfig):
    """How two networks that learn by OnPro learn from each other."""

    own_weight: OwnWeight = 1.0
    views_weight: ViewsWeight = 0.25
    kd_weight: KDWeight = 1.0


class OnProCCLDCConfig(OnProConfig):
    """Options of onpro-ccldc."""

    name: Literal["onpro-ccldc"] = "onpro-ccldc"
    collaboration: OnProCollaborationConfig = OnProCollaborationConfig()


@methods.register("onpro-ccldc")
class OnProCCLDC(CCLDC, OnPro):
    """Two networks that learn by OnPro and from each other."""

    config_class = OnProCCLDCConfig
    config: OnProCCLDCConfig

    def chain_batch(self, views: onpro.Views) -> tuple[Tensor, Tensor]:
        """The stream, and after the first task the mixed memory with one label for each image."""
        if views.memory is None:
            return views.images, views.single
        stream = views.stream.images[: len(views.arrived)]
        return torch.cat([stream, views.images]), torch.cat([views.arrived, views.single])


# --- ER-ACE and DER++, with the weights of ER's pair ------------------------------------------------------------


class ERACECCLDCConfig(ERACEConfig):
    """Options of er-ace-ccldc."""

    name: Literal["er-ace-ccldc"] = "er-ace-ccldc"
    collaboration: ERCollaborationConfig = ERCollaborationConfig()


@methods.register("er-ace-ccldc")
class ERACECCLDC(CCLDC, ERACE):
    """Two networks that learn by ER-ACE and from each other."""

    config_class = ERACECCLDCConfig
    config: ERACECCLDCConfig

    def chain_batch(self, views: er_ace.Views) -> tuple[Tensor, Tensor]:
        """[memory ; stream]."""
        return views.images, views.targets.labels


class DERPPCCLDCConfig(DERPPConfig):
    """Options of der++-ccldc."""

    name: Literal["der++-ccldc"] = "der++-ccldc"
    collaboration: ERCollaborationConfig = ERCollaborationConfig()


@methods.register("der++-ccldc")
class DERPPCCLDC(CCLDC, DERPP):
    """Two networks that learn by DER++ and from each other; the memory keeps the logits of both."""

    config_class = DERPPCCLDCConfig
    config: DERPPCCLDCConfig

    def chain_batch(self, views: der.Views) -> tuple[Tensor, Tensor]:
        """What a cross-entropy sees: [second draw from memory ; stream], of the first batch of a run the stream."""
        seen = slice(views.parts["stream"].stop)
        return views.images[seen], views.labels[seen]

    def values(self) -> dict[str, tuple[int, ...]]:
        """z of both networks."""
        return {"logits": (self.num_peers, self.num_classes)}

    def stored(self, memory: ReplayMemory, rows: Tensor, peer: Peer) -> Tensor:
        """Of the network's own z."""
        return super().stored(memory, rows, peer)[:, peer.number]

    def keep(self, carries: list[Tensor]) -> dict[str, Tensor]:
        """The stream's logits of both networks."""
        return {"logits": torch.stack(carries, 1)}
