"""Posteriors of networks and of block summaries for tests of the report, made without rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from noisewise.analyst.network.layout import Layout, normalised
from noisewise.analyst.posterior.network import NetworkFit, NetworkPosterior
from noisewise.core.design import Design
from noisewise.core.kinds.network.graph import Network
from noisewise.core.kinds.network.release import NetworkRelease, NoisyCounts, l1_sensitivity
from noisewise.core.kinds.summary.mechanisms import (
    CELLS,
    CauchyBase,
    ClippedMean,
    Fisher,
    Flat,
    LocationItem,
    LocationScale,
    Mean,
    QuantileItem,
    Question,
    RescaledNormal,
    Sign,
    Stouffer,
    sensitivity_of,
)
from noisewise.core.kinds.summary.release import MeanNoise, MedianNoise, SummaryRelease, SummedNoise
from noisewise.core.privacy import Claim, PureEvent
from noisewise.core.schema import Category, Number, Schema, Unbounded

CLINIC = {
    "smoker": [],
    "region": [],
    "disease": ["smoker", "region"],
    "cough": ["disease", "smoker"],
}
LEVELS = {"region": ("north", "south", "east")}


def clinic(parents=CLINIC, levels=LEVELS, *, dataset="clinic", neighbours="replace_one", rows=1):
    """A network of yes/no columns, but for those whose levels are given."""
    declared = {name: levels.get(name, ("no", "yes")) for name in parents}
    columns = {name: Category(found, found[0]) for name, found in declared.items()}
    return Network.make(Schema(dataset, columns, neighbours, rows), parents)


def made_network(network=None, *, releases=1, aware=True, chains=4, draws=250):
    """A posterior of plain Dirichlet draws: the page must not care where they come from."""
    network = clinic() if network is None else network
    layout, rng = Layout(network), np.random.default_rng(1)
    counts = rng.gamma(1.0, 50.0, layout.cells)
    alpha = np.ones(layout.cells)
    size = (chains, draws, layout.cells)
    theta = normalised(rng.standard_gamma(alpha + counts, size=size), layout)
    info = NetworkFit(
        method="joint" if aware else "plugin",
        algorithm="latent counts" if aware else "clamped counts",
        reason="chosen by auto",
        noise_aware=aware,
        mechanisms=("laplace",) * releases,
        n=(2000,) * releases,
        claims=("epsilon = 1",) * releases,
        digests=tuple(f"sha256:{j}" for j in range(releases)),
        datasets=(network.schema.dataset,) * releases,
        units=("replace_one/2",) * releases,
        noise_scales=(8.0,) * releases,
        concentration=(1.0, 1.0),
    )
    return NetworkPosterior(
        network, theta, info, 0.5 * theta if aware else None, alpha + 2 * counts
    )


def large_network(nodes=50, seed=1):
    """A random graph in which each node has up to three of the eight nodes before it as parents."""
    rng = np.random.default_rng(seed)
    names = [f"measured_quantity_{i}" for i in range(nodes)]
    parents = {}
    for i, name in enumerate(names):
        earlier = names[max(0, i - 8) : i]
        count = min(int(rng.integers(0, 4)), len(earlier))
        parents[name] = [str(x) for x in rng.choice(earlier, count, replace=False)]
    return clinic(parents, dict.fromkeys(names[::3], ("low", "middle", "high")))


def network_release(network=None, epsilon=1, scale=None):
    """A Release of noisy counts, of rows that never were."""
    network = clinic() if network is None else network
    sensitivity = l1_sensitivity(network)
    rng = np.random.default_rng(2)
    n, values = 2000, {}
    for node in network.nodes:
        if network.shape(node) == (2,):
            values[node] = (int(0.3 * n),)
        else:
            share = rng.dirichlet(np.full(network.cells(node), 3.0))
            values[node] = tuple(int(x) for x in np.rint(n * share + rng.laplace(0, 5, len(share))))
    return NetworkRelease(
        network,
        "laplace",
        NoisyCounts(values, float(scale or sensitivity / epsilon), sensitivity),
        n=n,
        claim=Claim(Fraction(epsilon)),
        event=PureEvent(Fraction(epsilon)),
        software="noisewise test",
    )


# --- block summaries ---------------------------------------------------------------------------


def mechanisms(x="hours", y="region[south]"):
    """One of each kind, about two coefficients."""
    asked = (Question(x, 0.0), Question(x, 25.5), Question(y, -1.5))
    base = CauchyBase(0, 10), CauchyBase(0, 3)
    return {
        "sign": Sign(asked),
        "stouffer": Stouffer(asked, 1.25),
        "rescaled_normal": RescaledNormal(asked),
        "fisher": Fisher(asked, 0.2),
        "clipped_mean": ClippedMean(
            (
                QuantileItem(x, 0.05, -100, 100),
                QuantileItem(x, 0.95, -100, 100),
                QuantileItem(y, 0.5, -10, 10),
            )
        ),
        "location_scale": LocationScale((LocationItem(x, *base), LocationItem(y, *base))),
        "mean": Mean((LocationItem(x, *base), LocationItem(y, *base)), 0.2, 4.0),
    }


def summary_release(
    mechanism=None,
    *,
    names=("hours", "region", "income"),
    dataset="people",
    neighbours="replace_one",
    rows=1,
    levels=("north", "south"),
    label="",
    epsilon=4,
):
    """A Release whose values are the blocks' average on a plain scale, with noise of its kind."""
    x, category, target = names
    columns = {x: Unbounded(10), category: Category(levels, levels[0]), target: Number(0, 1000)}
    design = Design(Schema(dataset, columns, neighbours, rows), (x, category), target)
    mechanism = mechanism or mechanisms(x, f"{category}[{levels[1]}]")["sign"]
    budget, blocks, partitions = Fraction(str(epsilon)), 400, 10
    if isinstance(mechanism, LocationScale):
        each = budget / len(mechanism.items)
        noise = MedianNoise(each * Fraction(7, 10), each * Fraction(3, 10), rows)
        values = tuple(int(CELLS * share) for _ in mechanism.items for share in (0.55, 0.4))
    elif isinstance(mechanism, Mean):
        each = budget / len(mechanism.items)
        sensitivity = sensitivity_of(mechanism, partitions, rows)
        sums = SummedNoise(math.ceil(sensitivity / (budget * Fraction(7, 10))), sensitivity)
        noise = MeanNoise(MedianNoise(each / 10, each / 5, rows), sums)
        cells = (int(CELLS * 0.55), int(CELLS * 0.4))
        total = (1 << 20) * blocks * partitions
        values = tuple(v for _ in mechanism.items for v in (*cells, total // 50, total // 6))
    else:
        sensitivity = sensitivity_of(mechanism, partitions, rows)
        noise = SummedNoise(math.ceil(sensitivity / budget), sensitivity)
        middle = (mechanism.low + mechanism.high) * blocks * partitions // 2
        step = (mechanism.high - mechanism.low) * blocks * partitions // 100
        entries = len(getattr(mechanism, "items", getattr(mechanism, "questions", ())))
        values = tuple(middle + step * (3 * i - 2) for i in range(entries))
    return SummaryRelease(
        *(design, blocks, partitions, mechanism, Flat(), values, noise),
        n=160_000 if neighbours == "replace_one" else None,
        claim=Claim(budget),
        event=PureEvent(budget),
        label=label,
        software="noisewise test",
    )
