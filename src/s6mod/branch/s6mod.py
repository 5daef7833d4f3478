"""The S6MOD branch: a selective state space model with class-conditional mixture of discretization.

It turns a backbone's last feature map, the base logits and the targets of the same samples into four loss terms.
It holds no network, steps no optimiser and draws from no generator but the one it is given.
"""

import math
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from s6mod.branch import losses
from s6mod.branch.base import Branch, BranchConfig, BranchShape, Tap, Targets, branches
from s6mod.branch.convolution import convolve_silu
from s6mod.branch.etf import ETF, LEAST, Frame, check_width
from s6mod.branch.mixture import Gate, Patterns, note_means
from s6mod.branch.readout import readout
from s6mod.branch.routing import Aggregate, Distance, Rounding, Routing
from s6mod.branch.scan import NUM_DIRECTIONS, directional_scan
from s6mod.errors import InputError
from s6mod.precision import full_precision
from s6mod.registry import NamedConfig

CONV_SIDE = 3  # of the depthwise convolution that makes X^
DT_MIN, DT_MAX = 1e-3, 1e-1  # step sizes dt at the start


class S6MODConfig(BranchConfig):
    """Configuration of the branch ``s6mod``; the paper's symbols stand in the descriptions."""

    name: Literal["s6mod"] = "s6mod"
    variant: Literal["paper", "plus"] = Field(
        "paper",
        description="plus: the branch sees the base view and a fresh one, has no L_Cont, and predicts where the "
        "method's linear head would",
    )
    view: Literal["shared", "fresh"] = Field(
        "shared",
        description="feature map the branch sees: that of the base view, or that of a fresh augmentation; not for plus",
    )

    d_inner: int = Field(
        128, ge=2, le=65536, description="width d of the branch; for a simplex at least the number of classes"
    )
    frame: Frame = Field(
        "simplex",
        description="vectors of the fixed head: the ETF of all classes, or an orthogonal frame, in which they stay "
        "when classes are added and may be more than d_inner",
    )
    state_dim: int = Field(16, ge=1, le=4096, description="size N of the state of the scan")
    dt_rank: int = Field(16, ge=1, le=4096, description="size R of Delta before it is widened to step sizes")

    num_patterns: int = Field(8, ge=1, le=4096, description="number E of discretization patterns (N in the paper)")
    noisy_gate: bool = Field(
        False, description="add Gaussian noise of a learned size to the gate logits while training"
    )
    leaky_gate: bool = Field(False, description="let dropped patterns keep exp(0) in the gate's softmax")

    fixed_patterns: int | None = Field(
        None, ge=1, description="N_k of every class; none: class-conditional routing chooses it"
    )
    prototype_space: Literal["xhat", "map"] = Field(
        "xhat", description="feature the prototypes average: X^ or the normalised feature map, all positions"
    )
    prototype_momentum: float = Field(0.8, ge=0, lt=1, description="share of the old prototype in the moving average")
    lambda0: float = Field(1 / 24, ge=0, description="how fast uncertainty falls with distance")
    distance: Distance = Field(
        "absolute",
        description="distances as they are, or divided by their running mean (then lambda0 near 1)",
    )
    aggregate: Aggregate = Field("mean", description="sigma_k: mean or maximum over the other seen classes")
    rounding: Rounding = Field("ceil", description="how E sigma_k becomes the whole number N_k")

    divergence: Literal["pq", "qp"] = Field("pq", description="L_Diff: KL(P || Q) or KL(Q || P)")
    weight_dr: float = Field(1.0, ge=0, description="weight of L_DR")
    alpha: float = Field(1.0, ge=0, description="weight of L_Diff")
    beta: float = Field(5.0, ge=0, description="weight of L_Cont; not for plus")
    weight_z: float = Field(1.0, ge=0, description="weight of L_z")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.fixed_patterns is not None and self.fixed_patterns > self.num_patterns:
            raise ValueError(
                f"expected fixed_patterns at most num_patterns, got {self.fixed_patterns} and {self.num_patterns}; "
                "lower the first or raise the second"
            )
        return self


@branches.register("s6mod")
class S6MOD(Branch):
    """The branch for maps of ``channels`` x ``map_size``; ``options`` are the fields of ``S6MODConfig``.

    Called with a feature map (B, C, H, W), base logits (B, num_classes) and labels (B,) or ``Targets``, it returns the
    weighted terms ``dr``, ``diff``, ``cont`` and ``z``, without those whose weight is 0; ``plus`` has no ``cont``. In
    training mode it also updates its prototypes. Under autocast it computes in float32 all the same.
    """

    config_class: ClassVar[type[NamedConfig]] = S6MODConfig
    pattern_load: Tensor  # (E,) mean gate weight of each pattern in the latest step
    mean_patterns: Tensor  # () mean N_k over the samples of the latest step

    def __init__(self, channels: int, num_classes: int, map_size: int | tuple[int, int] = 4, **options: Any) -> None:
        super().__init__()
        self.config = config = S6MODConfig.parse(options)
        self.num_classes = num_classes
        height, width = (map_size, map_size) if isinstance(map_size, int) else map_size
        self.map_shape = (channels, height, width)
        d = config.d_inner

        self.norm = nn.LayerNorm(channels)
        self.in_proj = nn.Linear(channels, 2 * d, bias=False)
        self.conv = nn.Conv2d(d, d, CONV_SIDE, padding=CONV_SIDE // 2, groups=d)
        self.routing = Routing(
            num_classes,
            height * width * (d if config.prototype_space == "xhat" else channels),
            config.num_patterns,
            lambda0=config.lambda0,
            momentum=config.prototype_momentum,
            aggregate=config.aggregate,
            rounding=config.rounding,
            distance=config.distance,
            fixed_patterns=config.fixed_patterns,
        )
        self.gate = Gate(d, config.num_patterns, noisy=config.noisy_gate, leaky=config.leaky_gate)
        self.patterns = Patterns(d, config.dt_rank, config.num_patterns)
        self.bc_proj = nn.Parameter(_uniform(NUM_DIRECTIONS, 2 * config.state_dim, d, bound=d**-0.5))
        self.dt_proj = nn.Parameter(_uniform(NUM_DIRECTIONS, d, config.dt_rank, bound=config.dt_rank**-0.5))
        self.dt_bias = nn.Parameter(_step_size_bias(NUM_DIRECTIONS, d))
        self.A_log = nn.Parameter(torch.arange(1.0, config.state_dim + 1).log().repeat(NUM_DIRECTIONS, d, 1))
        self.D = nn.Parameter(torch.ones(NUM_DIRECTIONS, d))
        self.out_norm = nn.LayerNorm(d)
        self.etf = ETF(d, num_classes, config.frame)

        # Figures of the latest step have buffers of their own, so that a captured step writes where figures() reads.
        self.register_buffer("pattern_load", torch.zeros(config.num_patterns), persistent=False)
        self.register_buffer("mean_patterns", torch.zeros(()), persistent=False)

    @classmethod
    def build(cls, config: NamedConfig, shape: BranchShape) -> Self:
        """The branch for a network of this shape."""
        return cls(shape.channels, shape.num_classes, shape.map_size, **config.plain())

    @classmethod
    def check(cls, config: NamedConfig, num_classes: int) -> None:
        """The simplex needs d_inner >= num_classes."""
        assert isinstance(config, S6MODConfig)
        check_width(config.d_inner, num_classes, config.frame)

    @classmethod
    def growing(cls, config: NamedConfig) -> NamedConfig:
        """With a frame whose vectors stay when classes are added, in a width that has as many as are wanted."""
        assert isinstance(config, S6MODConfig)
        width = max(LEAST, 1 << (config.d_inner - 1).bit_length())
        return config.model_copy(update={"frame": "orthogonal", "d_inner": width})

    @classmethod
    def predicts(cls, config: NamedConfig) -> bool:
        """The ETF head of ``plus`` does."""
        return isinstance(config, S6MODConfig) and config.variant == "plus"

    @full_precision
    def forward(
        self,
        feature_map: Tensor,
        logits: Tensor,
        targets: Tensor | Targets,
        generator: torch.Generator | None = None,
    ) -> dict[str, Tensor]:
        """The weighted terms; their sum is L_S6MOD. ``generator`` is drawn from by a noisy gate only.

        The map may hold several views of the samples, (V B, C, H, W), one after the other: P meets the Q of the last.
        """
        X_hat, Z, prototype_feature = self._paths(feature_map)
        given, targets = targets, targets if isinstance(targets, Targets) else Targets(targets)
        self._check_targets(feature_map, logits, targets)
        if isinstance(given, Tensor):
            self._check_labels(given)
        targets = targets.repeated(len(feature_map) // len(logits))
        q = targets.soft(self.num_classes).to(feature_map.dtype)  # (V B, num_classes)
        if self.training:
            self.routing.update(prototype_feature, targets.unmixed(q))
        most = len(logits) * (1 if targets.mix is None else 2)  # classes in q
        count = self.routing.count_for_targets(q, most)  # N_k, (V B,)
        gate_logits, weights = self.gate(X_hat, count, self.training, generator)  # (V B, E) each
        mu, delta = self._select(X_hat, Z, weights)
        cosines = self.etf(mu)  # (V B, num_classes)
        self._note(count, weights)

        config = self.config
        terms = {}
        if config.weight_dr > 0:
            terms["dr"] = _weighted(config.weight_dr, losses.dot_regression(cosines, q))
        if config.alpha > 0:
            # A part, even if it is all, has kernels of its own backwards.
            Q_logits = cosines if len(cosines) == len(logits) else cosines[-len(logits) :]
            terms["diff"] = _weighted(config.alpha, losses.divergence(logits, Q_logits, config.divergence))
        if config.beta > 0 and config.variant == "paper":
            terms["cont"] = _weighted(config.beta, losses.contrastive_discretization(delta, q))
        if config.weight_z > 0:
            terms["z"] = _weighted(config.weight_z, losses.z_loss(gate_logits))
        return terms

    @property
    def wants_fresh_view(self) -> bool:
        """For plus beside the base pass, for ``view: fresh`` in its place."""
        return self.config.variant == "plus" or self.config.view == "fresh"

    def losses(self, tap: Tap, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """The weighted terms of a tap; P comes from the base pass, whatever the branch sees."""
        seen = tap.again() if self.wants_fresh_view else tap.feature_map
        if self.config.variant == "plus":
            seen = torch.cat([tap.feature_map, seen])
        return self.forward(seen, tap.logits, tap.targets, generator)

    @torch.no_grad()
    @full_precision
    def scores(self, feature_map: Tensor) -> Tensor:
        """Cosines with the ETF's class vectors, (B, num_classes); samples are routed by their own features."""
        cosines: Tensor = self.etf(self.look(feature_map)[0])
        return cosines

    def features(self, feature_map: Tensor) -> Tensor:
        """mu (B, d), of length 1; samples are routed by their own features."""
        return self.look(feature_map)[0]

    @torch.no_grad()
    @full_precision
    def look(self, feature_map: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As at inference, without labels: mu (B, d), the aggregated Delta (B, L, K, R) and gate weights (B, E)."""
        X_hat, Z, prototype_feature = self._paths(feature_map)
        count = self.routing.count(self.routing.sample_uncertainty(prototype_feature))
        _, weights = self.gate(X_hat, count)
        mu, delta = self._select(X_hat, Z, weights)
        return mu, delta, weights

    def figures(self) -> dict[str, Tensor]:
        """Per class ``sigma``, ``patterns`` (N_k) and ``seen``; of the latest step mean N_k and gate weights."""
        sigma = self.routing.uncertainty()
        return {
            "sigma": sigma,
            "patterns": self.routing.count(sigma),
            "seen": self.routing.seen.clone(),
            "prototype_distance": self.routing.mean_distance(),
            "mean_patterns": self.mean_patterns.clone(),
            "pattern_load": self.pattern_load.clone(),
        }

    def alarms(self, figures: dict[str, Any]) -> dict[str, str]:
        """Routing that gives every seen class the fewest or the most patterns, and patterns that are not chosen."""
        E, met = self.config.num_patterns, {}
        counts = [n for n, seen in zip(figures["patterns"], figures["seen"], strict=True) if seen]
        if E > 1 and self.config.fixed_patterns is None and len(counts) > 1:
            for edge in (1, E):
                if all(n == edge for n in counts):
                    met[f"N_k={edge}"] = f"routing has collapsed: N_k = {edge} of {E} for all classes"
        for number, weight in enumerate(figures["pattern_load"], start=1):
            if weight == 0:
                met[f"pattern {number}"] = f"pattern {number} of {E} was chosen at no record"
        return met

    def _paths(self, feature_map: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Two paths: X^ and Z (B, L, d), and the feature that prototypes are made of."""
        C, H, W = self.map_shape
        if feature_map.ndim and feature_map.shape[0] == 0:
            raise InputError(
                f"expected at least one sample, got an empty batch of shape {tuple(feature_map.shape)}; leave it out"
            )
        if feature_map.shape[1:] != (C, H, W):
            raise InputError(
                f"expected a feature map of shape (B, {C}, {H}, {W}), got {tuple(feature_map.shape)}; "
                "build the branch with the channels and map_size of the backbone's last map"
            )
        x = self.norm(feature_map.flatten(2).mT)  # (B, L, C)
        X, Z = self.in_proj(x).chunk(2, dim=-1)  # (B, L, d) each
        assert self.conv.bias is not None
        X_hat = convolve_silu(X, self.conv.weight, self.conv.bias, (H, W))
        return X_hat, Z, (X_hat if self.config.prototype_space == "xhat" else x).detach()

    def _select(self, X_hat: Tensor, Z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Scan with the mixture of discretization: the unit feature mu (B, d), the aggregated Delta (B, L, K, R)."""
        _, H, W = self.map_shape
        # Projections are made once at each position: only the scan knows of the order of a direction.
        BC = F.linear(X_hat, self.bc_proj.flatten(0, 1)).unflatten(2, self.bc_proj.shape[:2])  # (B, L, K, 2 N)
        delta = self.patterns(X_hat, weights)  # (B, L, K, R)
        y = directional_scan(X_hat, delta, BC, self.dt_proj, self.dt_bias, self.A_log, self.D, (H, W))  # (B, L, d)
        norm = self.out_norm
        return readout(y, Z, norm.weight, norm.bias, norm.eps), delta

    def _note(self, count: Tensor, weights: Tensor) -> None:
        note_means(count, weights, self.mean_patterns, self.pattern_load)

    def _check_targets(self, feature_map: Tensor, logits: Tensor, targets: Targets) -> None:
        maps, batch = len(feature_map), len(logits)
        if logits.shape != (batch, self.num_classes) or not batch or maps % batch:
            raise InputError(
                f"expected base logits of shape ({maps}, {self.num_classes}), got {tuple(logits.shape)}; "
                "give those of the samples of the feature map, over all classes"
            )
        labels = targets.labels
        if labels.shape != (batch,) or labels.dtype != torch.int64:
            raise InputError(
                f"expected int64 labels of shape ({batch},), got {labels.dtype} of shape {tuple(labels.shape)}; "
                "give one class number for each sample of the feature map"
            )

    def _check_labels(self, labels: Tensor) -> None:
        """Of somebody's own loop; those of a learner were looked at on the host. A GPU is not waited for."""
        if labels.device.type != "cpu" or torch.compiler.is_compiling():
            return
        wrong = (labels < 0) | (labels >= self.num_classes)
        if wrong.any():
            place = int(wrong.int().argmax())
            raise InputError(
                f"expected labels in 0..{self.num_classes - 1}, got {int(labels[place])} at position {place}; "
                "leave samples without a class out of the batch"
            )


def _weighted(weight: float, term: Tensor) -> Tensor:
    """Most weights are 1, and need no kernels of their own."""
    return term if weight == 1 else weight * term


def _uniform(*shape: int, bound: float) -> Tensor:
    return torch.empty(*shape).uniform_(-bound, bound)


def _step_size_bias(directions: int, d: int) -> Tensor:
    """b_dt (K, d) such that softplus(b_dt) is log-uniform in [DT_MIN, DT_MAX]."""
    dt = torch.empty(directions, d).uniform_(math.log(DT_MIN), math.log(DT_MAX)).exp()
    return dt + torch.log(-torch.expm1(-dt))  # the inverse of softplus
