"""Draw balance histories into matplotlib Axes.

Each function takes data and an Axes, draws, and returns the Axes. Nothing is saved, shown or set
globally: the caller owns the figure. Without an Axes, a function makes a new figure.

Colours and themes. An account type has the same colour, hatch and line style in every figure and on
every background (see `styles`); accounts that all have one type get a hue each. Everything else
(text, grid, frame, hatches of unknown stretches) takes its colour from matplotlib's settings while
the figure is made and drawn into. So make and draw a dark figure with other settings:

    with matplotlib.rc_context(ba.DARK_STYLE):
        figure, ax = plt.subplots(layout="constrained")
        ba.plot_totals(table, ax=ax)
        figure.savefig("totals.svg")  # in the block too: the file's background is a setting

For an SVG on a page that has its own background, make the figure with `facecolor="none"` and save
it with `transparent=True`; draw it once per theme.

Legends are beside the Axes. A figure without a layout engine gets matplotlib's constrained one,
which makes room for them.
"""
