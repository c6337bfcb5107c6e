"""Pictures of balance histories, drawn into the Axes that they are given.

Each function takes data and an Axes, draws, and returns the Axes. Nothing is saved, shown or set
globally: the caller owns the figure. Without an Axes, a function makes a figure of its own.

Colours and themes. An account type has one colour, hatch and line style, of `styles`, in every
figure and on every background; accounts that are all of one type have a hue each. All else (text,
grid, frame, hatches of what is unknown) takes its colour from matplotlib's settings at the time
when the figure is made and drawn into. So a dark figure is one that is made and drawn into with
other settings:

    with matplotlib.rc_context(ba.DARK_STYLE):
        figure, ax = plt.subplots(layout="constrained")
        ba.plot_totals(table, ax=ax)
        figure.savefig("totals.svg")  # within the block too: the file's background is a setting

For an SVG on a page of its own background, make the figure with `facecolor="none"` and save it with
`transparent=True`; draw it once in each theme.

Legends stand beside the Axes; a figure without a layout engine gets matplotlib's constrained one,
which makes room for them.
"""
