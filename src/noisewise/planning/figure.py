"""A plan as a picture: half-widths against epsilon, a panel a coefficient."""

from __future__ import annotations

import math
from pathlib import Path

from noisewise.core.errors import RequestError
from noisewise.planning.result import Plan

COLOURS = {"laplace": "#0072B2", "gaussian": "#D55E00", "isometric": "#009E73", "ball": "#CC79A7"}
FORMATS = (".png", ".svg", ".pdf")
MOST_PANELS = 12


def draw_plan(plan: Plan, path: Path) -> None:
    """Draw a plan; the file's ending decides the format.

    Lines are medians over possible truths, bands hold eight of ten. The dashed line is what exact
    sums would give, a dotted one what is wanted. The first twelve coefficients are shown.
    """
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    if path.suffix not in FORMATS:
        raise RequestError(f"out: {path.name!r} must end in {', '.join(FORMATS)}")
    names = list(dict.fromkeys(row.name for row in plan.rows))[:MOST_PANELS]
    wanted = {answer.name: answer.half_width for answer in plan.answers}
    across = min(3, len(names))
    down = math.ceil(len(names) / across)
    figure = Figure(figsize=(3.4 * across + 0.6, 2.7 * down + 0.8), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes, names, strict=False):
        rows = [row for row in plan.rows if row.name == name]
        for mechanism in dict.fromkeys(row.mechanism for row in rows):
            points = sorted(
                (row for row in rows if row.mechanism == mechanism), key=lambda row: row.epsilon
            )
            x = [row.epsilon for row in points]
            colour = COLOURS.get(mechanism, "#999999")
            axis.plot(
                x, [row.half_width for row in points], color=colour, marker="o", label=mechanism
            )
            low = [row.half_width_low for row in points]
            high = [row.half_width_high for row in points]
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        exact = rows[0].half_width_non_private
        axis.axhline(exact, color="0.3", linestyle="--", linewidth=1, label="exact sums")
        if name in wanted:
            axis.axhline(wanted[name], color="0.3", linestyle=":", linewidth=1.5, label="wanted")
        axis.set(xscale="log", yscale="log", title=name, xlabel="epsilon")
    axes[0].set_ylabel(f"half-width of {100 * plan.level:g}% intervals")
    handles = {
        text: handle
        for axis in axes[: len(names)]
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=110)
