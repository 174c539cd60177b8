"""A template for matrix products and convolutions, with named knobs, for the template tuner or any other policy:

    python -m tir.tune conv2d --policy template --space examples/template.py

Each axis of a reduction is cut in two; outer loops run in parallel, inner ones are a vector and unrolled.
"""

from schedule.open_schedule import OpenSchedule, is_spatial


def SPACE(s: OpenSchedule) -> None:
    for block in [b for b in s.unscheduled() if s.block(b).is_reduction]:
        outer, reduced, inner = [], [], []
        axes = s.axes(block)
        last = [it.var.name for it, _ in axes if is_spatial(it)][-1]
        for it, loop in axes:
            width = s.sizes(block, it.var.name, vector=it.var.name == last)  # a knob: how many iterations are inside
            first, second = s.split(loop, [None, *width])
            (outer if is_spatial(it) else reduced).append(first)
            (inner if is_spatial(it) else reduced).append(second)
        s.reorder(*outer, *reduced[::2], *reduced[1::2], *inner)
        if s.target.num_cores > 1:
            s.parallel(s.fuse(*outer) if len(outer) > 1 else outer[0])
        s.annotate(reduced[-1], "pragma_auto_unroll_max_step", s.choose(f"unroll {block}", (0, 16, 64, 512)))  # another knob
        s.vectorize(inner[-1])
